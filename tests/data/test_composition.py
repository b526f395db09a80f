"""Text that differs only in Unicode composition (ä as one letter, or as a and a mark) is the same text."""

import json
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.__main__ import main
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.upload import Upload

FORMS = ("NFC", "NFD")
FEATURES = {"city = Bern", "city = Köln", "city = Zürich", "v"}
CITIES = ("Köln", "Zürich", "Bern")


def cities(form, seed, rows=60):
    """CSV text of cities, spelled in one form, with a number each."""
    generator = np.random.default_rng(seed)
    lines = (f"{normalize(form, generator.choice(CITIES))},{generator.normal():.3f}" for _ in range(rows))
    return "\n".join(["city,v", *lines])


def grouped(values, seed=0, header="group,v", **options):
    """An upload of one file whose group column has these values in turn."""
    generator = np.random.default_rng(seed)
    lines = [header, *(f"{values[i % len(values)]},{generator.normal():.3f}" for i in range(40))]
    return Upload((read_table("d.csv", "\n".join(lines).encode()),), group="group", **options)


def test_cells_that_look_the_same_are_one_category(tmp_path, capsys):
    for form, name in zip(FORMS, "pq", strict=True):
        (tmp_path / f"{name}.csv").write_text(cities(form, ord(name)), encoding="utf-8")
    files = [str(tmp_path / f"{name}.csv") for name in "pq"]
    assert set(prepare(Upload(tuple(m2st.read_files(files)))).features) == FEATURES
    assert main(["test", *files, "--method", "Omnibus", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["p_value"] > 0.05


@pytest.mark.parametrize("typed", FORMS)
def test_groups_that_look_the_same_are_one_group(typed):
    values = [normalize(form, "Süd") for form in FORMS] + ["Nord"]
    made = assemble(grouped(values, groups=(normalize(typed, "Süd"),)))
    assert made.target.labels == ("Süd", "Nord")


def test_tasks_that_look_the_same_are_one_task():
    lines = [f"{normalize(FORMS[i % 2], 'Zürich')},{'ab'[i // 2 % 2]},{i * 7 % 11}" for i in range(40)]
    table = read_table("r.csv", "\n".join(["task,group,v", *lines]).encode())
    assert [pair.name for pair in assemble(Upload((), (table,))).related] == ["Zürich"]
    halves = [
        read_table(f"{normalize(form, 'Köln')}_{side}.csv", cities("NFC", 0).encode())
        for form, side in zip(FORMS, "PQ", strict=True)
    ]
    assert [pair.name for pair in assemble(Upload((), tuple(halves))).related] == ["Köln"]


def test_related_groups_may_be_typed_in_any_form():
    target, related = grouped(["a", "b"]), grouped(["Süd", "Nord"])
    said = tuple(normalize("NFD", value) for value in ("Süd", "Nord"))
    made = assemble(Upload(target.target, related.target, group="group", related_groups=said))
    assert made.related[0].labels == ("Süd", "Nord")
    with pytest.raises(TableError, match="no related task compares 'Sud'"):
        assemble(Upload(target.target, related.target, group="group", related_groups=("Sud", "Nord")))


def test_labels_of_frames_that_look_the_same_are_one_column():
    generator = np.random.default_rng(0)
    x, y = (
        pd.DataFrame({normalize(form, "ä"): generator.normal(size=20), "b": generator.normal(size=20)})
        for form in FORMS
    )
    result = m2st.two_sample_test(x, y[y.columns[::-1]], "MMD-M", n_permutations=99)
    assert not any("only in" in note for note in result.notes)
    spelled = zip(FORMS, (x, y), strict=True)
    numbered = [frame.assign(**{normalize(form, "schlüssel"): range(20)}) for form, frame in spelled]
    sample = as_two_sample(*numbered, ids=normalize("NFD", "schlüssel"))
    assert sample.columns == ("ä", "b") and all(len(ids) == 20 for ids in sample.ids)
