"""Cleaning: every choice, no label used, everything said."""

import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.cells import plain, safe_cell, to_safe_csv
from m2st_core.data.tables.encoding import Cleaning, Encoding, load_encoding
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits
from m2st_core.data.tables.upload import Upload

HEADER = "age,income,colour,seen,site\n"
P_ROWS = "20,1000,red,2020-01-01,A\n30,,blue,2020-01-02,B\n40,3000,red,2020-01-03,A\n,2000,green,2020-01-04,B\n"
Q_ROWS = "25,1500,red,2020-02-01,A\n35,dog,,2020-02-02,B\n45,2500,blue,2020-02-03,A\n"
Q_ROWS += "50,9000,red,2020-02-04,B\n60,1,red,2020-02-05,A\n70,2,red,2020-02-06,B\n"


def table(name, text):
    return read_table(name, text.encode())


@pytest.fixture
def upload():
    return Upload((table("p.csv", HEADER + P_ROWS), table("q.csv", HEADER + Q_ROWS)))


def history(extra=""):
    generator = np.random.default_rng(0)
    lines = ["task,group,age,colour" + (",flat" if extra else "")]
    for task in range(3):
        for group in "ab":
            for value in generator.normal(10, 2, 10):
                lines.append(f"t{task},{group},{value:.3f},{'red' if value > 10 else 'blue'}" + extra)
    return table("m.csv", "\n".join(lines))


def test_missing_cells_are_refused_unless_a_choice_is_made(upload):
    with pytest.raises(TableError, match=r"p.csv: row 5, column 'age': the value is missing. Correct"):
        prepare(upload)
    with pytest.raises(TableError, match=r"q.csv: row 3, column 'income': 'dog' is not a number"):
        prepare(Upload((table("p.csv", "income\n1\n2\n3\n"), table("q.csv", "income\n4\ndog\n5\n"))))


def test_rows_with_missing_cells_can_be_dropped(upload):
    data = prepare(upload, cleaning=Cleaning("drop rows", "none"))
    assert data.features == ("age", "income", "colour = red", "colour = blue", "site = A", "site = B")
    assert data.x.tolist() == [[20, 1000, 1, 0, 1, 0], [40, 3000, 1, 0, 1, 0]]
    assert [rows.tolist() for rows in data.rows] == [[2, 4], [2, 4, 5, 6, 7]]
    assert data.x.dtype == np.float64 and (data.x_name, data.y_name) == ("p", "q")
    told = " ".join(data.decisions)
    assert "Set aside: 'seen' (date" in told and "2 of p, 1 of q" in told and "'dog'" in told


def test_missing_cells_can_be_filled_and_marked(upload):
    data = prepare(upload, cleaning=Cleaning("median and indicator", "none"))
    frame = pd.DataFrame(np.concatenate([data.x, data.y]), columns=data.features)
    assert frame.shape == (10, 10) and frame["age"].tolist()[3] == 40 and frame["age is missing"].sum() == 1
    assert frame["income is missing"].tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 0, 0]
    assert frame["income"][1] == np.median([1000, 3000, 2000, 1500, 2500, 9000, 1, 2])
    assert frame["colour is missing"].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert frame.filter(like="colour").sum(axis=1).eq(1).all()


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_scaling_is_of_the_pooled_rows(upload, scaling):
    data = prepare(upload, cleaning=Cleaning("drop rows", scaling, left_out=("colour", "site")))
    pooled = np.concatenate([data.x, data.y])
    if scaling == "standard":
        np.testing.assert_allclose([pooled.mean(axis=0), pooled.std(axis=0)], [[0, 0], [1, 1]], atol=1e-12)
    else:
        low, middle, high = np.quantile(pooled, [0.25, 0.5, 0.75], axis=0)
        np.testing.assert_allclose([middle, high - low], [[0, 0], [1.349, 1.349]], atol=1e-12)


@pytest.mark.parametrize("missing", ["drop rows", "median and indicator"])
@pytest.mark.parametrize("related", [False, True])
def test_no_label_has_a_say(missing, related):
    """The same rows dealt to P and Q in another way become the same numbers, to the bit."""
    generator = np.random.default_rng(1)
    rows = [
        f"{v:.3f},{'x' if v > 0 else 'y' if v > -1 else 'z'}" if v < 1.5 else ",x" for v in generator.normal(size=60)
    ]
    found = []
    for groups in (np.arange(60) % 2, generator.permutation(np.arange(60) % 2)):
        text = "age,colour,group\n" + "\n".join(f"{row},{'pq'[group]}" for row, group in zip(rows, groups, strict=True))
        data = prepare(
            Upload((table("d.csv", text),), (history(),) if related else (), "group"), cleaning=Cleaning(missing)
        )
        by_row = np.concatenate([data.x, data.y])[np.argsort(np.concatenate(data.rows))]
        found.append((by_row.tobytes(), data.encoding.to_json()))
    assert found[0] == found[1]


def test_related_tasks_teach_the_encoding_and_unseen_levels_go_to_other():
    text = "age,colour,group\n1,red,p\n2,mauve,p\n3,blue,q\n100,red,q\n5,,q\n"
    data = prepare(Upload((table("d.csv", text),), (history(),), "group"), cleaning=Cleaning("drop rows"))
    assert data.features == ("age", "colour = red", "colour = blue", "colour is other")
    assert data.x[1, 1:].tolist() == [0, 0, 1] and data.y[0, 1:].tolist() == [0, 1, 0]
    pooled = data.related.take_inside().numpy()
    assert abs(pooled[:, 0].mean()) < 1e-12 and pooled.shape == (60, 4) and not pooled[:, 3].any()
    assert "1 target cells of 'colour' have rare or unseen levels" in " ".join(data.decisions)
    assert "60 pooled rows of 3 related tasks" in data.encoding.learned_from


def test_a_column_without_variation_in_the_history_is_set_aside():
    text = "age,colour,flat,group\n1,red,1,p\n2,red,2,p\n3,blue,3,q\n4,red,4,q\n"
    data = prepare(Upload((table("d.csv", text),), (history(",7"),), "group"))
    assert "flat" not in data.features and "do not vary in the pooled rows of 3 related tasks: 'flat'" in " ".join(
        data.decisions
    )


def test_rare_levels_share_an_indicator():
    words = ["a"] * 6 + ["b"] * 4 + ["c"] * 2 + ["d"] * 2
    text = "w,group\n" + "\n".join(f"{word},{'pq'[i % 2]}" for i, word in enumerate(words))
    data = prepare(Upload((table("d.csv", text),), group="group"), cleaning=Cleaning(levels=2))
    assert data.features == ("w = a", "w = b", "w is other")
    assert np.concatenate([data.x, data.y]).sum(axis=0).tolist() == [6, 4, 4]


def test_categories_can_not_fill_the_memory(upload):
    with pytest.raises(TableError, match="With categories as columns the upload has 100 cells, and 60 is the most"):
        prepare(assemble(upload, Limits(cells=60)), cleaning=Cleaning("median and indicator"))


def test_tasks_too_small_are_left_out_and_said():
    lines = "task,group,age\nt,a,1\nt,a,2\nt,b,3\nt,b,4\nsmall,a,1\nsmall,b,2\nsame,a,5\nsame,a,5\nsame,b,5\nsame,b,5\n"
    target = Upload((table("p.csv", "age\n1\n2\n"), table("q.csv", "age\n3\n4\n")), (table("m.csv", lines),))
    data = prepare(target)
    assert data.task_names == ("t",)
    told = " ".join(data.decisions)
    assert (
        "'small' was left out: one of its samples has 1 usable rows" in told
        and "'same' was left out: all its rows" in told
    )
    only = "task,group,age\nsmall,a,1\nsmall,b,2\n"
    with pytest.raises(TableError, match="m.csv: no related task has 2 usable rows"):
        prepare(dataclasses.replace(target, related=(table("m.csv", only),)))


def test_an_encoding_survives_saving_and_serves_a_new_upload(tmp_path):
    first = prepare(Upload((), (history(),)))
    assert first.x.shape == first.y.shape == (0, 4) and len(first.task_names) == 3
    (tmp_path / "encoding.json").write_text(first.encoding.to_json())
    loaded = load_encoding(tmp_path)
    assert loaded == first.encoding and load_encoding(tmp_path / "elsewhere") is None
    p, q = "colour,age,more\nred,11,1\nblue,9,2\n", "age,colour,more\n12,red,5\n13,grey,5\n"
    new = prepare(Upload((table("p.csv", p), table("q.csv", q))), encoding=loaded)
    together = prepare(Upload((table("p.csv", p), table("q.csv", q)), (history(),)))
    assert new.x.tolist() == together.x.tolist() and new.y.tolist() == together.y.tolist()
    assert "Not among the learner's columns, so not used: 'more'" in " ".join(new.decisions)
    with pytest.raises(TableError, match="p.csv: the learner was trained with columns that are not here: 'colour'"):
        prepare(Upload((table("p.csv", "age\n1\n2\n"), table("q.csv", "age\n1\n2\n"))), encoding=loaded)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("columns"),
        lambda about: about.update(format=99),
        lambda about: about.update(columns=[]),
        lambda about: about["columns"][0].update(scale=0.0),
        lambda about: about["columns"][0].update(median="x"),
        lambda about: about["columns"][0].update(kind="pickle"),
        lambda about: about["columns"][0].update(extra=1),
        lambda about: about["columns"].append(about["columns"][0]),
        lambda about: about["columns"][1].update(levels=[1, 2]),
        lambda about: about["columns"][1].update(levels=None),
        lambda about: about["cleaning"].update(missing="guess"),
        lambda about: about["cleaning"].update(unknown=1),
    ],
)
def test_damaged_encodings_are_refused(change):
    about = json.loads(prepare(Upload((), (history(),))).encoding.to_json())
    change(about)
    with pytest.raises(TableError):
        Encoding.from_json(json.dumps(about))
    for text in ("", "[]", "null", "{"):
        with pytest.raises(TableError, match="damaged"):
            Encoding.from_json(text)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"missing": "guess"}, "missing must be one of"),
        ({"scaling": "log"}, "scaling must be one of"),
        ({"levels": 0}, "levels must be"),
        ({"left_out": "age"}, "left_out must list"),
        ({"block": 3}, "block must be"),
    ],
)
def test_bad_choices_are_refused(choice, message):
    with pytest.raises(TableError, match=message):
        Cleaning(**choice)


def test_cleaning_survives_json():
    cleaning = Cleaning("drop rows", "robust", 7, ("a", "b"), "site")
    assert Cleaning.from_dict(json.loads(json.dumps(cleaning.to_dict()))) == cleaning


def test_blocks_follow_their_rows(upload):
    data = prepare(upload, cleaning=Cleaning("drop rows", block="site", left_out=("income", "colour")))
    assert data.blocks.tolist() == ["A", "B", "A", "A", "B", "A", "B", "A", "B"] and data.features == ("age",)
    with pytest.raises(TableError, match="there is no column called 'ward'"):
        prepare(upload, cleaning=Cleaning("drop rows", block="ward"))
    apart = Upload((table("p.csv", "a,s\n1,A\n2,A\n"), table("q.csv", "a,s\n1,B\n3,B\n")))
    with pytest.raises(TableError, match="no block of 's' has rows of both groups"):
        prepare(apart, cleaning=Cleaning(block="s"))
    empty = Upload((table("p.csv", "a,s\n1,A\n2,\n4,A\n"), table("q.csv", "a,s\n1,A\n3,A\n")))
    with pytest.raises(TableError, match="p.csv: row 3, column 's': the row has no block"):
        prepare(empty, cleaning=Cleaning(block="s"))
    assert prepare(empty, cleaning=Cleaning("drop rows", block="s")).rows[0].tolist() == [2, 4]


def test_a_block_column_need_not_be_in_the_history():
    text = "age,colour,site,group\n1,red,A,p\n2,red,B,p\n3,blue,A,q\n4,red,B,q\n"
    data = prepare(Upload((table("d.csv", text),), (history(),), "group"), cleaning=Cleaning(block="site"))
    assert data.target.blocks[0].tolist() == [0, 1] and "site" not in " ".join(data.features)


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        ("a\n1\n1\n", "a\n1\n1\n", r"p.csv: no column can be compared. Set aside: 'a' \(constant: it is always 1\)"),
        ("a\nx\ny\n", "a\n\n2\n", None),
        (
            "a,b\n1,\n2,\n",
            "a,b\n3,4\n5,6\n",
            r"p.csv: p has 0 usable rows. Leave out the columns that miss most \('b' 2\)",
        ),
        ("a\n1e200\n2\n", "a\n-1e300\n4\n", "Rescale"),
    ],
)
def test_what_is_left_must_be_testable(p, q, message):
    upload = Upload((table("p.csv", p), table("q.csv", q)))
    if message is None:
        with pytest.raises(TableError):
            prepare(upload, cleaning=Cleaning("drop rows"))
    else:
        with pytest.raises(ValueError, match=message):
            prepare(upload, cleaning=Cleaning("drop rows", "none"))


def test_exports_are_safe_and_complete(upload):
    data = prepare(upload, cleaning=Cleaning("drop rows", "none", block="site"))
    frame = pd.read_csv(io.StringIO(data.to_csv()))
    assert list(frame)[:4] == ["task", "group", "block", "row"] and len(frame) == 7
    assert frame["age"].tolist() == [20, 40, 25, 45, 50, 60, 70]
    record = json.loads(json.dumps(data.record))
    assert record["files"][0]["name"] == "p.csv" and len(record["files"][0]["sha256"]) == 64
    assert record["cleaning"]["missing"] == "drop rows" and record["rows"]["target"] == [2, 5]
    assert record["decisions"] == list(data.decisions)


FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", " =1", "＝1", "\r=1"]


@pytest.mark.parametrize("cell", FORMULAS)
def test_formulas_are_escaped_on_every_export(cell):
    assert safe_cell(cell) == f"'{cell}"
    text = to_safe_csv(pd.DataFrame({cell: [1.5, -2.0], "w": [cell, "red"]}))
    back = pd.read_csv(io.StringIO(text))
    assert back.columns[0] == f"'{cell}" and back["w"].tolist() == [f"'{cell}", "red"] and back.iloc[1, 0] == -2
    rows = "\n".join(f'"{cell}",{i},{"pq"[i % 2]}' for i in range(6)) + "\nred,6,p\nred,9,q\n"
    data = prepare(Upload((table("d.csv", "w,=a,g\n" + rows),), group="g"))
    assert not any(name.startswith(("=", "+", "-", "@")) for name in data.to_csv().splitlines()[0].split(","))


@pytest.mark.parametrize(
    "text",
    ["**b**", "<img src=x onerror=alert(1)>", "[a](http://b)", "$x$", ":red[a]", "`a`", "# a", "1. a", ":smile:"],
)
def test_markup_becomes_plain(text):
    escaped = plain(text)
    assert escaped.replace("\\", "").replace("\u2060", "") == text
    assert all(escaped[i - 1] == "\\" for i, mark in enumerate(escaped) if mark in "*<>[]()$`#.:!")


def test_long_words_are_cut_and_lines_joined():
    assert len(plain("x" * 1000)) == 200 and plain("a\nb") == "a b"


def test_the_public_way_from_bytes_to_an_answer(upload):
    data = m2st.prepare(upload, cleaning=m2st.Cleaning("median and indicator"))
    result = m2st.two_sample_test(data.x, data.y, "MMD-M", n_permutations=99)
    assert result.p_value >= 1 / 210 and result.enumerated and data.target.sizes == (4, 6)  # C(10, 4) labellings
