"""Room 5: sample + kernel → p-value."""

from m2st_core.testing.meta import MetaLearner, load_learner, meta_train
from m2st_core.testing.methods import METHODS, Method
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.testing.two_sample import two_sample_test

__all__ = [
    "METHODS",
    "MetaLearner",
    "Method",
    "learn_once",
    "load_learner",
    "meta_train",
    "run_tests",
    "two_sample_test",
]
