"""One thread per process: small tests are fastest so, and timings do not depend on the machine's cores."""

from __future__ import annotations

import sys

import pytest
import torch
from xdist.scheduler import LoadFileScheduling

torch.set_num_threads(1)
SLOW_FILES = (
    "analysis/test_analysis.py",
    "analysis/test_effect.py",
    "analysis/test_explain.py",
    "analysis/test_reports.py",
    "analysis/test_uploads_valid.py",
    "browser/",
    "data/test_separate.py",
    "data/test_table_large.py",
    "learners/test_contract.py",
    "learners/test_learners.py",
    "learners/test_relatedness.py",
    "learners/test_selective.py",
    "learners/test_weights.py",
    "pages/test_every_page.py",
    "pages/test_images_page.py",
    "pages/test_learn.py",
    "pages/test_power.py",
    "pages/test_relatedness_page.py",
    "pages/test_paper.py",
    "pages/test_history.py",
    "pages/test_your_data.py",
    "paper/test_committed.py",
    "permutation/test_blocks.py",
    "sweeps/test_sweep.py",
    "test_cli.py",
    "test_device.py",
    "test_gpu.py",
    "testing/test_images.py",
    "testing/test_memory.py",
    "testing/test_meta.py",
    "testing/test_splits.py",
)
BROWSER = "tests/browser/"
SLOW_TESTS = ("keep_their_level", "keeps_its_level", "absurd_value", "directions_there_are", "same_seed_same_result")


def pytest_collection_modifyitems(items):
    """Mark what ``pytest -m "not slow"`` leaves out: browsers, processes, and levels over many simulated tests."""
    for item in items:
        if any(name in item.nodeid for name in SLOW_FILES) or any(name in item.name for name in SLOW_TESTS):
            item.add_marker(pytest.mark.slow)


class ByFile(LoadFileScheduling):
    """A worker has whole files, and one has all walks in a browser, which share a server."""

    def _split_scope(self, nodeid):
        return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)


@pytest.fixture(autouse=True)
def own_main():
    """AppTest leaves its script behind as __main__, which every spawned process would then run again."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
