"""Meta two-sample testing. Read the imports from top to bottom: they follow the data."""

from m2st_core.types import Cancelled, TestResult, TwoSample  # isort: skip
from m2st_core.presets import PRESETS  # isort: skip
from m2st_core.tasks import TASKS, make_task  # isort: skip
from m2st_core.testing import METHODS, two_sample_test  # isort: skip

__version__ = "0.1.0"

__all__ = ["METHODS", "PRESETS", "TASKS", "Cancelled", "TestResult", "TwoSample", "make_task", "two_sample_test"]
