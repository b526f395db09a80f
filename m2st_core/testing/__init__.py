"""Room 5: sample + kernel → p-value."""

from m2st_core.testing.methods import METHODS, Method
from m2st_core.testing.two_sample import run_tests, two_sample_test

__all__ = ["METHODS", "Method", "run_tests", "two_sample_test"]
