"""Meta two-sample testing. Read the imports from top to bottom: they follow the data."""

from m2st_core.types import Cancelled, TestResult, TwoSample  # isort: skip
from m2st_core.presets import PRESETS  # isort: skip
from m2st_core.tasks import TASKS, make_task  # isort: skip
from m2st_core.tasks.meta import hdgm_meta_tasks  # isort: skip
from m2st_core.learners.relatedness import Relatedness, relatedness  # isort: skip
from m2st_core.testing import METHODS, MetaLearner, load_learner, meta_train, two_sample_test  # isort: skip
from m2st_core.testing import Analysis, Answer, Explanation, Verdict, analyse, answer, examine, explain, holm  # isort: skip
from m2st_core.experiments.history_check import HistoryCheck, history_check  # isort: skip
from m2st_core.experiments.target_gamma import TargetGamma, target_gamma  # isort: skip
from m2st_core.experiments.recommend import Recommendation, recommend  # isort: skip

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PRESETS",
    "TASKS",
    "TargetGamma",
    "Analysis",
    "Answer",
    "Cancelled",
    "Explanation",
    "HistoryCheck",
    "MetaLearner",
    "Recommendation",
    "Relatedness",
    "TestResult",
    "TwoSample",
    "Verdict",
    "analyse",
    "answer",
    "examine",
    "explain",
    "hdgm_meta_tasks",
    "history_check",
    "holm",
    "load_learner",
    "make_task",
    "meta_train",
    "recommend",
    "relatedness",
    "target_gamma",
    "two_sample_test",
]
