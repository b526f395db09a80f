"""One thread per process: small tests are fastest so, and timings do not depend on the machine's cores."""

import sys

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_main():
    """AppTest leaves its script behind as __main__, which every spawned process would then run again."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
