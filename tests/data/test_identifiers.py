"""Columns that tell rows apart are not compared, measurements are; repeated rows are remarked upon."""

import json
import unicodedata

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.__main__ import main
from m2st_core.analysis.answer import answer_of
from m2st_core.analysis.plan import Plan, carry_out
from m2st_core.analysis.report import DataSource, as_command, as_python
from m2st_core.data.identifiers import numbers_identify
from m2st_core.data.repeated_rows import repeated_rows_note
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.upload import Upload
from tests.data.kinds_of_columns import (
    COPIES,
    DISCRETE,
    IDENTIFIERS,
    MEASUREMENTS,
    shares_remarked,
    shares_set_aside,
)

HALF = 30
COUNT = np.arange(2 * HALF)
NUMBERED = {
    "id": 1001 + COUNT,
    "record_no": 5 + 3 * COUNT,
    "timestamp": 1_700_000_000 + 61 * COUNT + COUNT**2,
    "x": 1 + COUNT,
    "v1": 12 + 7 * COUNT,
    "k": 0.5 + COUNT,
    "date": 45_000 + COUNT // 2,
}


def null_file(header, shuffled=True):
    """CSV text of two groups that do not differ, and whose rows were numbered one group after the other."""
    generator = np.random.default_rng(3)
    frame = pd.DataFrame({header: NUMBERED[header], **{c: generator.normal(size=2 * HALF).round(3) for c in "abc"}})
    frame["group"] = ["old"] * HALF + ["new"] * HALF
    return (frame.sample(frac=1, random_state=1) if shuffled else frame).to_csv(index=False)


def upload(text, **roles):
    return Upload((read_table("d.csv", text.encode()),), group="group", **roles)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("header", NUMBERED)
def test_the_shell_finds_no_difference_where_only_the_numbering_differs(header, shuffled, tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_text(null_file(header, shuffled))
    command = ["test", str(path), "--group-column", "group", "--method", "Omnibus", "--json"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["p_value"] > 0.05
    (said,) = [note for note in result["notes"] if f"{header!r} is not compared: it " in note]
    assert said.endswith(f". --use {header} compares it all the same.")
    assert main([*command, "--use", header]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["p_value"] <= 0.001
    assert any(f"{header!r} is compared by choice, although it " in note for note in result["notes"])


@pytest.mark.parametrize("rows", [20, 60, 500])
def test_identifiers_are_set_aside_and_measurements_stay(rows):
    """Of 39 measurements in 40 files not one in a hundred may go; the rate per column is below 1 in 1,000."""
    draws = 40 if rows < 500 else 8
    assert set(shares_set_aside(IDENTIFIERS, rows, 4).values()) == {1.0}
    assert sum(shares_set_aside(MEASUREMENTS, rows, draws).values()) / len(MEASUREMENTS) < 0.01


@pytest.mark.parametrize("makes", [IDENTIFIERS, MEASUREMENTS])
def test_neither_labels_nor_order_decide(makes):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({name: make(40, generator) for name, make in makes.items()})
    kinds = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(40)
        labelled = frame.assign(group=np.where(order < 15, "old", "new"))
        kinds.append(assemble(upload(labelled.iloc[order[::-1]].to_csv(index=False))).columns)
    assert all(other == kinds[0] for other in kinds[1:])


def test_numbers_that_begin_anew_in_each_file_are_a_count():
    def numbered(name, rows, seed):
        values = np.random.default_rng(seed).normal(size=rows)
        order = np.random.default_rng(seed).permutation(rows)
        return read_table(
            name, "\n".join(["x,v", *(f"{o + 1},{v:.3f}" for o, v in zip(order, values, strict=True))]).encode()
        )

    made = assemble(Upload((numbered("p.csv", 30, 0), numbered("q.csv", 45, 1))))
    assert made.identifiers == ("x",) and made.columns["x"].why == "it only counts, from 1 to 45"


def test_numbers_with_gaps_nearly_count_and_measurements_with_decimals_stay():
    gaps = np.delete(np.arange(70), [1, 5, 6, 20, 31, 32, 44, 50, 60, 67])
    assert numbers_identify("y2", gaps) == "it nearly counts, from 0 to 69"
    assert numbers_identify("k", 0.1 * COUNT) == "it only counts, from 0 to 5.9"
    assert numbers_identify("depth", 0.5 + COUNT) == ""
    draws = (np.random.default_rng(seed).normal(size=60) for seed in range(200))
    assert not any(numbers_identify("k", draw.round(seed % 4)) for seed, draw in enumerate(draws))


@pytest.mark.parametrize(("header", "stays"), [("serum NO", True), ("SAMPLE_NO", False), ("NO", True), ("no", False)])
def test_nitric_oxide_is_no_number_of_a_record(header, stays):
    assert bool(numbers_identify(header, 1_000.0 + np.arange(40) ** 2)) is not stays


def test_a_column_with_a_unit_is_measured():
    text = "dose (mg),mass,v,group\n" + "\n".join(f"{i},{i} kg,{i % 7},{'ab'[i % 2]}" for i in range(1, 31))
    assert assemble(upload(text)).identifiers == ()


def test_repeated_units_are_set_aside_and_asked_about():
    rows = [f"{i // 3 + 101},{i * 7 % 11},{'ab'[i % 2]}" for i in range(60)]
    data = prepare(upload("\n".join(["patient,v,group", *rows])))
    assert data.features == ("v",) and data.identifiers == ("patient",)
    assert any("20 of its 20 values have several rows, 20 of them in both" in note for note in data.decisions)


def test_choices_are_checked_and_repeated_as_code():
    made = upload(null_file("id"))
    assert prepare(made, cleaning=Cleaning(use=("id",))).features == ("id", "a", "b", "c")
    with pytest.raises(TableError, match="there is no column 'idd' that could be used"):
        prepare(made, cleaning=Cleaning(use=("idd",)))
    with pytest.raises(TableError, match="'id' is to be used, and also left out, the block or the id column"):
        Cleaning(use=("id",), left_out=("id",))
    words = upload("name,v,group\n" + "\n".join(f"P{i:03},{i % 7},{'ab'[i % 2]}" for i in range(30)))
    with pytest.raises(TableError, match="'name' cannot be used: it names rows, persons or records"):
        prepare(words, cleaning=Cleaning(use=("name",)))
    with pytest.raises(TableError, match=r"no column can be compared. Set aside: 'id' .* say use=\('id',\)"):
        prepare(upload("id,group\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(30))))
    source = DataSource(("d.csv",), group="group")
    assert "--use id --report" in as_command(source, Cleaning(use=("id",)), Plan("MMD-M"))
    assert "m2st.Cleaning(use=('id',))" in as_python(source, Cleaning(use=("id",)), Plan("MMD-M"))


def test_a_learner_that_saw_an_identifier_keeps_its_columns():
    made = upload(null_file("id"))
    encoding = Encoding.from_json(prepare(made, cleaning=Cleaning(use=("id",))).encoding.to_json())
    data = prepare(made, encoding=encoding)
    assert data.features == ("id", "a", "b", "c")
    assert "'id' is compared by choice, although it numbers rows, persons or records." in data.decisions
    earlier = json.loads(encoding.to_json())
    del earlier["cleaning"]["use"]
    assert prepare(made, encoding=Encoding.from_json(json.dumps(earlier))).features == ("id", "a", "b", "c")


def test_related_tasks_that_are_numbered_teach_without_their_numbers():
    generator = np.random.default_rng(0)
    rows = [f"{task},{'ab'[i % 2]},{40 * task + i},{generator.normal():.3f}" for task in range(4) for i in range(40)]
    generator.shuffle(rows)
    table = read_table("r.csv", "\n".join(["task,group,n,v", *rows]).encode())
    assert prepare(Upload((), (table,))).features == ("v",)


def test_an_identifier_never_leads():
    outcome = carry_out(prepare(upload(null_file("id")), cleaning=Cleaning(use=("id",))), Plan("MMD-FUSE"))
    assert outcome.analysis.rejected and outcome.data.features[0] == "id"
    answer = answer_of(outcome)
    assert answer.differs.startswith("Only “id” differs clearly, which looks like an identifier.")
    assert outcome.explanation.importance.columns[-1] == 0 and 0 not in outcome.explanation.pair


def test_arrays_are_tested_as_they_are_with_a_note():
    frame = pd.read_csv(pd.io.common.StringIO(null_file("id")))
    x, y = (part.drop(columns="group") for _, part in frame.groupby("group"))
    result = m2st.two_sample_test(x, y, "MMD-M", n_permutations=99)
    (note,) = [note for note in result.notes if "identifier" in note]
    assert note.startswith("This column looks like an identifier and was tested: id (it numbers rows")
    plain = m2st.two_sample_test(x.to_numpy(), y.to_numpy(), "MMD-M", n_permutations=99)
    assert any("tested: column 1 (it only counts, from 1001 to 1060)" in note for note in plain.notes)
    kept = m2st.two_sample_test(x.drop(columns="id"), y.drop(columns="id"), "MMD-M", n_permutations=99)
    assert not any("identifier" in note for note in kept.notes)


def test_repeated_rows_are_remarked_upon_and_discrete_rows_are_not():
    """Ten kinds of discrete data, 100 draws each: at most one in a hundred may be remarked upon."""
    for rows in (20, 150):
        assert max(shares_remarked(DISCRETE, rows, 100).values()) <= 0.01
        assert min(shares_remarked(COPIES, rows, 20).values()) == 1.0


@pytest.mark.parametrize(
    "copied",
    [
        lambda g: np.repeat(g.standard_normal(10), 3)[:, None],
        lambda g: np.repeat(g.integers(0, 10, (20, 3)), 2, axis=0),
        lambda g: np.repeat(g.integers(20, 80, (20, 1)), 2, axis=0),
        lambda g: np.repeat(np.column_stack([g.integers(0, 2, (20, 4)), g.integers(20, 80, 20)]), 2, axis=0),
    ],
)
def test_rows_that_are_all_there_equally_often_are_remarked_upon(copied):
    noted = [bool(repeated_rows_note(copied(np.random.default_rng(seed)).astype(float))) for seed in range(60)]
    assert np.mean(noted) > 0.98


def _partly_copied(copies, columns=3):
    def rows(g):
        samples = [g.standard_normal((30 - copies, columns)) for _ in "xy"]
        return np.concatenate([part for sample in samples for part in (sample, sample[:copies])])

    return rows


@pytest.mark.parametrize(
    "copied",
    [
        _partly_copied(1),
        _partly_copied(3),
        _partly_copied(10, columns=2),
        lambda g: np.concatenate([np.repeat(g.standard_normal((10, 3)), 3, axis=0), g.standard_normal((30, 3))]),
        lambda g: np.concatenate([np.repeat(g.standard_normal((1, 3)), 15, axis=0), g.standard_normal((45, 3))]),
        lambda g: np.tile(g.standard_normal((12, 3)), (5, 1)) + 1e-9 * g.standard_normal((60, 3)),
    ],
)
def test_a_few_copies_among_rows_of_continuous_columns_are_remarked_upon(copied):
    assert all(repeated_rows_note(copied(np.random.default_rng(seed))) for seed in range(20))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("columns", [1, 2, 3, 6])
def test_rounded_rows_that_meet_by_chance_are_not_called_copies(columns, correlation):
    """300 rows of one decimal, 20 draws: the limit of 1 in 10,000 allows none."""
    for seed in range(20):
        g = np.random.default_rng(seed)
        common, own = g.standard_normal((300, 1)), g.standard_normal((300, columns))
        rows = (correlation**0.5 * common + (1 - correlation) ** 0.5 * own).round(1)
        assert len(np.unique(rows, axis=0)) < 300 or columns > 2
        assert repeated_rows_note(rows) == ()


def test_a_design_is_not_called_repeated_rows():
    hours = np.column_stack([np.tile(np.arange(24.0), 28), np.repeat(np.arange(28) % 7, 24)])
    assert repeated_rows_note(hours) == repeated_rows_note(np.eye(12)[np.arange(120) % 12]) == ()


def test_repeated_rows_are_said_by_tests_and_files(tmp_path, capsys):
    rows = np.tile(np.random.default_rng(0).normal(size=(6, 2)).round(6), (5, 1))
    result = m2st.two_sample_test(rows, np.random.default_rng(1).permutation(rows) + [0, 0], "MMD-M", seed=1)
    assert any(note.startswith("60 rows, only 6 different. The p-value supposes") for note in result.notes)
    lines = ["a,b,group", *(f"{a},{b},{'pq'[i % 2]}" for i, (a, b) in enumerate([*rows, *(rows + 7)]))]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    assert main(["test", str(tmp_path / "d.csv"), "--group-column", "group", "--method", "MMD-M"]) == 0
    assert capsys.readouterr().out.count("60 rows, only 12 different.") == 1


@pytest.mark.parametrize("numbers", [["2"] * 10, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "9"]])
def test_a_cell_that_is_no_number_is_named_even_beside_a_constant(numbers, tmp_path, capsys):
    cells = [*numbers, "x"]
    for name, column in (("p.csv", cells), ("q.csv", numbers)):
        (tmp_path / name).write_text(
            "\n".join(["n,w", *(f"{c},{i * 37 % 11}.{len(column)}" for i, c in enumerate(column))])
        )
    files = [str(tmp_path / name) for name in ("p.csv", "q.csv")]
    assert main(["test", *files, "--method", "MMD-M"]) == 2
    assert "p.csv: row 12, column 'n': 'x' is not a number." in capsys.readouterr().err
    assert main(["test", *files, "--method", "MMD-M", "--missing", "drop rows"]) == 0
    assert "'x' is not a number): they count as missing" in capsys.readouterr().out


def test_names_that_look_the_same_are_the_same():
    def spelled(form, name, shift):
        header = unicodedata.normalize(form, "größe,v")
        return read_table(name, "\n".join([header, *(f"{i * 7 % 11}.5,{i % 5 + shift}" for i in range(8))]).encode())

    for form in ("NFC", "NFD"):
        made = Upload((spelled("NFC", "p.csv", 0), spelled("NFD", "q.csv", 1)))
        assert list(assemble(made).columns) == ["größe", "v"] and not assemble(made).lacking
        left_out = (unicodedata.normalize(form, "größe"),)
        assert prepare(made, cleaning=Cleaning(left_out=left_out)).features == ("v",)
