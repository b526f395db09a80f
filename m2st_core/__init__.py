"""Meta two-sample testing. Read the imports from top to bottom: they follow the data."""

from m2st_core.version import VERSION  # isort: skip
from m2st_core.types import Cancelled, TestResult, TwoSample  # isort: skip
from m2st_core.presets import PRESETS  # isort: skip
from m2st_core.tasks import TASKS, make_task  # isort: skip
from m2st_core.tasks.meta import hdgm_meta_tasks  # isort: skip
from m2st_core.tasks.separate import Separated, separate  # isort: skip
from m2st_core.tasks.tables import EXAMPLES, Cleaning, CleanData, Encoding, Upload  # isort: skip
from m2st_core.tasks.tables import prepare, read_files, read_table, read_tables  # isort: skip
from m2st_core.learners.noise_floor import Relatedness  # isort: skip
from m2st_core.learners.relatedness import relatedness  # isort: skip
from m2st_core.testing import METHODS, MetaLearner, load_learner, meta_train, two_sample_test  # isort: skip
from m2st_core.testing.learner_zip import open_learner  # isort: skip
from m2st_core.testing import Analysis, Answer, Explanation, Verdict, analyse, answer, examine, explain, holm  # isort: skip
from m2st_core.experiments.history_check import HistoryCheck, history_check  # isort: skip
from m2st_core.experiments.target_gamma import TargetGamma, target_gamma  # isort: skip
from m2st_core.experiments.recommend import Recommendation, recommend  # isort: skip
from m2st_core.experiments.own_data import Outcome, Plan, carry_out  # isort: skip
from m2st_core.reports import html_report  # isort: skip

__version__ = VERSION

__all__ = [
    "EXAMPLES",
    "METHODS",
    "PRESETS",
    "TASKS",
    "TargetGamma",
    "Analysis",
    "Answer",
    "Cancelled",
    "CleanData",
    "Cleaning",
    "Encoding",
    "Explanation",
    "HistoryCheck",
    "MetaLearner",
    "Outcome",
    "Plan",
    "Recommendation",
    "Relatedness",
    "Separated",
    "TestResult",
    "TwoSample",
    "Upload",
    "Verdict",
    "analyse",
    "answer",
    "carry_out",
    "examine",
    "explain",
    "hdgm_meta_tasks",
    "history_check",
    "holm",
    "html_report",
    "load_learner",
    "make_task",
    "meta_train",
    "open_learner",
    "prepare",
    "read_files",
    "read_table",
    "read_tables",
    "recommend",
    "relatedness",
    "separate",
    "target_gamma",
    "two_sample_test",
]
