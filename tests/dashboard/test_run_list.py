"""Runs as tables and as sentences."""

import pandas as pd

from m2st_core.dashboard.explore.results import sweep_as_python, sweep_as_shell
from m2st_core.studies.power import (
    difference_names,
    level_finding,
    level_table,
    power_finding,
    spec_differences,
    sweep_finding,
)
from m2st_core.sweeps.spec import SweepSpec, origin_of

SPEC = SweepSpec(methods=("MMD-M",))


def summary(**rates):
    """A summary with sizes 50 and 100."""
    rows = [
        {"method": name.replace("_", "-"), "m_te": m_te, "rate": rate, "error": 0.02}
        for name, values in rates.items()
        for m_te, rate in zip((50, 100), values, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["method", "m_te", "rate", "error"])
    return table.assign(origin=table["method"].map(origin_of))


def test_the_finding_speaks_of_the_papers_tests_and_of_the_best_one_without_related_tasks():
    numbers = {"Meta_MKL": (0.3, 0.72), "Meta_KL": (0.2, 0.7), "Meta_WiTS": (0.9, 1.0)}
    said = power_finding(summary(**numbers, MMD_D=(0.1, 0.4)), "hdgm")
    assert said == (
        "With 100 rows per mode (200 per sample) to test, **Meta-MKL** finds the difference in **72 of 100** samples, "
        "Meta-KL in 70. The best test without related tasks, MMD-D, finds it in 40 of 100."
    )
    assert "**Meta-MKL** finds the difference in **30 of 100**" in power_finding(summary(**numbers), "blobs", 50)
    better = power_finding(summary(**numbers, MMD_O=(0.3, 0.8)), "hdgm")
    assert better.endswith(
        "**MMD-O** uses no related tasks and is as good or better at every size: it finds it in 80 of 100."
    )
    alike = power_finding(summary(**numbers, MMD_O=(0.1, 0.71)), "hdgm")
    assert alike.endswith("**MMD-O** uses no related tasks and is about as good: it finds it in 71 of 100.")
    ours = power_finding(summary(Meta_WiTS=(0.9, 1.0), MMD_M=(0.2, 0.3)), "blobs")
    assert ours.startswith(
        "With 100 rows per sample to test, **Meta-WiTS (ours)** finds the difference in **100 of 100**"
    )
    assert power_finding(summary(MMD_M=(0.2, 0.3)), "blobs").endswith("in **30 of 100** samples.")
    assert power_finding(summary(), "hdgm") == ""


def test_a_level_that_is_not_kept_is_named():
    table = pd.DataFrame({"method": ["MMD-M", "ME"], "low": [0.03, 0.08], "tests": [200, 200]})
    assert level_finding(table, 0.05) == "More false alarms than α = 0.05: ME."
    assert level_finding(table[:1], 0.05).startswith("False alarms as α = 0.05 promises, in 200 tests")


def test_specs_that_differ_in_their_methods_only_are_named_by_these():
    assert difference_names([SPEC, SPEC.with_(methods=("Meta-WiTS",))]) == ["MMD-M", "Meta-WiTS (ours)"]
    assert difference_names([SPEC, SPEC.with_(seed=1, n_tasks=(20,))]) == ["N=100, seed 0", "N=20, seed 1"]


def test_differing_entries_come_first_and_are_marked():
    table = spec_differences({"a": SPEC, "b": SPEC.with_(repeats=5, task="blobs", settings={})})
    assert set(table.index) >= {"repeats", "task", "settings.delta"} and "seed" not in table.index
    assert table.loc["repeats"].tolist() == ["20", "5"]


def test_the_code_holds_the_spec():
    for text in (sweep_as_python(SPEC), sweep_as_shell(SPEC)):
        assert SPEC.to_toml() in text
    exec(compile(sweep_as_python(SPEC), "page", "exec"), {"__name__": "page"})  # its imports exist


def test_without_a_difference_the_finding_speaks_of_false_alarms():
    rows = pd.DataFrame({"method": ["MMD-M"], "rejections": [11], "tests": [200]})
    for spec in (SPEC.with_(null=True), SPEC.with_(settings={"delta": 0.0})):
        assert sweep_finding(spec, rows) == level_finding(level_table(rows), 0.05)
