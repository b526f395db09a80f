"""Room 5: sample + kernel → p-value."""

from m2st_core.testing.analysis import FAMILIES, Analysis, Family, Verdict, analyse, holm
from m2st_core.testing.answer import Answer, answer
from m2st_core.testing.examined import Examined
from m2st_core.testing.explain import Explanation, explain
from m2st_core.testing.meta import MetaLearner, load_learner, meta_train
from m2st_core.testing.methods import METHODS, ORIGINS, Method
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.testing.two_sample import examine, two_sample_test

__all__ = [
    "FAMILIES",
    "METHODS",
    "ORIGINS",
    "Analysis",
    "Answer",
    "Examined",
    "Explanation",
    "Family",
    "MetaLearner",
    "Method",
    "Verdict",
    "analyse",
    "answer",
    "examine",
    "explain",
    "holm",
    "learn_once",
    "load_learner",
    "meta_train",
    "run_tests",
    "two_sample_test",
]
