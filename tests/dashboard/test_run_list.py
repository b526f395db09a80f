"""Runs as tables and as sentences."""

import pandas as pd

from m2st_core.dashboard.power.results import sweep_as_python, sweep_as_shell
from m2st_core.studies.power import (
    difference_names,
    level_finding,
    level_table,
    power_finding,
    spec_differences,
    sweep_finding,
)
from m2st_core.sweeps.spec import SweepSpec

SPEC = SweepSpec(methods=("MMD-M",))


def summary(**rates):
    """A summary with sizes 50 and 100."""
    rows = [
        {"method": name.replace("_", "-"), "m_te": m_te, "rate": rate, "m_tr": 50.0 if name == "Meta_WiTS" else None}
        for name, values in rates.items()
        for m_te, rate in zip((50, 100), values, strict=True)
    ]
    return pd.DataFrame(rows)


def test_the_finding_follows_the_numbers():
    said = power_finding(summary(MMD_M=(0.2, 0.5), Meta_WiTS=(0.85, 1.0)), "per mode")
    assert said == (
        "**Meta-WiTS (ours)** reaches 80 % power with 50 test rows per mode and 50 training rows. "
        "**MMD-M** does not with 100."
    )
    said = power_finding(summary(MMD_M=(0.2, 0.8), Meta_WiTS=(0.1, 0.3)), "per sample")
    assert said.startswith("**MMD-M** reaches 80 % power with 100") and "Meta-WiTS (ours)** does not with 100" in said
    none = power_finding(summary(MMD_M=(0.2, 0.5), Meta_WiTS=(0.1, 0.3)), "per mode")
    assert none == "No test reaches 80 % power with 100 rows per mode. **MMD-M** comes closest, with 50 %."
    assert power_finding(summary().reindex(columns=["method", "m_te"]), "per mode") == ""


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
