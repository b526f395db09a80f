"""Runs as tables."""

from m2st_core.dashboard.power_lab.results import as_python, as_shell, spec_differences
from m2st_core.sweeps.spec import SweepSpec

SPEC = SweepSpec(methods=("MMD-M",))


def test_differing_entries_come_first_and_are_marked():
    table = spec_differences({"a": SPEC, "b": SPEC.with_(repeats=5, task="blobs", settings={})})
    assert set(table.index[table["differs"]]) >= {"repeats", "task", "settings.delta"}
    assert table["differs"].is_monotonic_decreasing and table.loc["repeats"].tolist()[:2] == ["20", "5"]


def test_the_code_holds_the_spec():
    for text in (as_python(SPEC), as_shell(SPEC)):
        assert SPEC.to_toml() in text
    compile(as_python(SPEC), "page", "exec")
