"""Everything of the paper can be run on a server."""

import pytest

from m2st_core.dashboard.jobs.sweeps import check_sweep_limits
from m2st_core.paper.experiments import PAPER
from m2st_core.sweeps.spec import SpecError


@pytest.mark.parametrize("name", [name for name, e in PAPER.items() if e.full is not None and e.kind != "images"])
def test_the_paper_s_synthetic_experiments_fit(name, monkeypatch):
    monkeypatch.setattr("m2st_core.sweeps.cost.machine_factor", lambda: 1.0)
    check_sweep_limits(PAPER[name].full)


@pytest.mark.parametrize("name", [name for name, e in PAPER.items() if e.kind == "images"])
def test_the_paper_s_images_take_days_and_belong_on_the_command_line(name, monkeypatch):
    monkeypatch.setattr("m2st_core.sweeps.cost.machine_factor", lambda: 1.0)
    with pytest.raises(SpecError, match=r"It would take \d+ hours of one core"):
        check_sweep_limits(PAPER[name].full)
