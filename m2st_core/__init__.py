"""Meta two-sample testing. Read the imports from top to bottom: they follow the data."""

# ruff: noqa: E402, I001 - the order tells the story

# What travels
from m2st_core.types import VERSION, Cancelled, TestResult, TwoSample
from m2st_core.presets import PRESETS

# Samples and related tasks: drawn, read from files, kept apart
from m2st_core.data import TASKS, make_task
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.data.tables.files import read_files, read_table, read_tables
from m2st_core.data.tables.upload import Upload
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.prepare import Prepared, prepare
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.images.features import Extractor, extractor, network_extractor
from m2st_core.data.images.features import image_features, read_features
from m2st_core.data.images.files import ImageSample, read_image_tasks, read_images
from m2st_core.data.separate import Separated, separate

# Learn from related tasks, then test
from m2st_core.learners.relatedness import Relatedness, relatedness
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.learner_files import load_learner, open_learner
from m2st_core.testing.two_sample import examine, two_sample_test

# One upload: recommendation, plan, test, correction, effect, explanation, answer, report
from m2st_core.analysis.related import RelatedCheck, TargetGamma, check_related_tasks, target_gamma
from m2st_core.analysis.recommendation import Recommendation, recommend
from m2st_core.analysis.plan import Analysis, Outcome, Plan, analyse, carry_out
from m2st_core.analysis.correction import CorrectedTest, holm
from m2st_core.analysis.effect import EffectSize, effect_size
from m2st_core.analysis.explanation import Explanation, explain
from m2st_core.analysis.answer import Answer, answer_of
from m2st_core.analysis.report import html_report
from m2st_core.analysis.images import compare_images, prepare_images

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
    "Prepared",
    "Cleaning",
    "CorrectedTest",
    "EffectSize",
    "Encoding",
    "Explanation",
    "Extractor",
    "ImageSample",
    "RelatedCheck",
    "MetaLearner",
    "Outcome",
    "Plan",
    "Recommendation",
    "Relatedness",
    "Separated",
    "TestResult",
    "TestSettings",
    "TwoSample",
    "Upload",
    "analyse",
    "answer_of",
    "carry_out",
    "effect_size",
    "examine",
    "explain",
    "hdgm_related_tasks",
    "check_related_tasks",
    "compare_images",
    "extractor",
    "holm",
    "html_report",
    "image_features",
    "load_learner",
    "make_task",
    "meta_train",
    "network_extractor",
    "open_learner",
    "prepare",
    "prepare_images",
    "read_files",
    "read_features",
    "read_image_tasks",
    "read_images",
    "read_table",
    "read_tables",
    "recommend",
    "relatedness",
    "separate",
    "target_gamma",
    "two_sample_test",
]
