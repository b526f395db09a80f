"""Meta two-sample testing. Read the imports from top to bottom: they follow the data."""

from m2st_core.types import Cancelled, TestResult, TwoSample  # isort: skip
from m2st_core.presets import PRESETS  # isort: skip
from m2st_core.tasks import TASKS, make_task  # isort: skip
from m2st_core.tasks.meta import hdgm_meta_tasks  # isort: skip
from m2st_core.tasks.tables import Cleaning, CleanData, Encoding, Upload, prepare, read_table, read_tables  # isort: skip
from m2st_core.learners.relatedness import Relatedness, relatedness  # isort: skip
from m2st_core.testing import METHODS, MetaLearner, load_learner, meta_train, two_sample_test  # isort: skip

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PRESETS",
    "TASKS",
    "Cancelled",
    "CleanData",
    "Cleaning",
    "Encoding",
    "MetaLearner",
    "Relatedness",
    "TestResult",
    "TwoSample",
    "Upload",
    "hdgm_meta_tasks",
    "load_learner",
    "make_task",
    "meta_train",
    "prepare",
    "read_table",
    "read_tables",
    "relatedness",
    "two_sample_test",
]
