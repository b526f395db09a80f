"""Everything of the paper can be run on a server."""

import pytest

from m2st_core.dashboard.limits import check_limits
from m2st_core.experiments.paper import PAPER


@pytest.mark.parametrize("name", [name for name, experiment in PAPER.items() if experiment.full is not None])
def test_the_paper_fits(name, monkeypatch):
    monkeypatch.setattr("m2st_core.experiments.cost.machine_factor", lambda: 1.0)
    check_limits(PAPER[name].full)
