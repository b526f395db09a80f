"""Meta two-sample testing. Read the imports from top to bottom: they follow the data."""

from m2st_core.types import VERSION  # isort: skip
from m2st_core.types import Cancelled, TestResult, TwoSample  # isort: skip
from m2st_core.presets import PRESETS  # isort: skip
from m2st_core.data import TASKS, make_task  # isort: skip
from m2st_core.data.synthetic import hdgm_related_tasks  # isort: skip
from m2st_core.data.separate import Separated, separate  # isort: skip
from m2st_core.data.tables.examples import EXAMPLES  # isort: skip
from m2st_core.data.tables.encoding import Cleaning, Encoding  # isort: skip
from m2st_core.data.tables.clean import CleanData  # isort: skip
from m2st_core.data.tables.upload import Upload  # isort: skip
from m2st_core.data.tables.clean import prepare  # isort: skip
from m2st_core.data.tables.files import read_files  # isort: skip
from m2st_core.data.tables.files import read_table, read_tables  # isort: skip
from m2st_core.learners.relatedness import Relatedness  # isort: skip
from m2st_core.learners.relatedness import relatedness  # isort: skip
from m2st_core.testing.methods import METHODS  # isort: skip
from m2st_core.testing.meta import MetaLearner, meta_train  # isort: skip
from m2st_core.testing.learner_files import load_learner  # isort: skip
from m2st_core.testing.two_sample import two_sample_test  # isort: skip
from m2st_core.testing.learner_files import open_learner  # isort: skip
from m2st_core.analysis.correction import Analysis, CorrectedTest, analyse, holm  # isort: skip
from m2st_core.analysis.effect import EffectSize, effect_size  # isort: skip
from m2st_core.analysis.explanation import Explanation, explain  # isort: skip
from m2st_core.testing.two_sample import examine  # isort: skip
from m2st_core.analysis.related_check import RelatedCheck, check_related_tasks  # isort: skip
from m2st_core.analysis.gamma import TargetGamma, target_gamma  # isort: skip
from m2st_core.analysis.recommendation import Recommendation, recommend  # isort: skip
from m2st_core.analysis.plan import Outcome, Plan, carry_out  # isort: skip
from m2st_core.analysis.report import html_report  # isort: skip

__version__ = VERSION

__all__ = [
    "EXAMPLES",
    "METHODS",
    "PRESETS",
    "TASKS",
    "TargetGamma",
    "Analysis",
    "Cancelled",
    "CleanData",
    "Cleaning",
    "CorrectedTest",
    "EffectSize",
    "Encoding",
    "Explanation",
    "RelatedCheck",
    "MetaLearner",
    "Outcome",
    "Plan",
    "Recommendation",
    "Relatedness",
    "Separated",
    "TestResult",
    "TwoSample",
    "Upload",
    "analyse",
    "carry_out",
    "effect_size",
    "examine",
    "explain",
    "hdgm_related_tasks",
    "check_related_tasks",
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
