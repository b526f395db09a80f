"""Who is compared with whom."""

import numpy as np
import pytest

from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.check import check
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.groups import suggest_groups
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits
from m2st_core.data.tables.upload import Upload


def table(name, text):
    return read_table(name, text.encode())


def sizes(made):
    return {
        pair.name: (pair.p.label, len(pair.p.positions), pair.q.label, len(pair.q.positions)) for pair in made.pairs
    }


P, Q = table("p.csv", "a,b\n1,2\n3,4\n5,6\n"), table("q.csv", "b,a\n20,10\n40,30\n")


def test_two_tables_are_matched_by_name():
    made = assemble(Upload((P, Q)))
    assert sizes(made) == {"target": ("p", 3, "q", 2)}
    assert made.numbers("a").tolist() == [1, 3, 5, 10, 30] and made.rows.tolist() == [2, 3, 4, 2, 3]
    assert made.where(4) == "q.csv: row 3"


def test_one_table_is_split_by_its_group_column():
    data = table("d.csv", "g,a\nnew,1\nold,2\nnew,3\n,9\nold,4\n")
    made = assemble(Upload((data,), group="g"))
    assert sizes(made) == {"target": ("new", 2, "old", 2)} and list(made.columns) == ["a"]
    assert made.numbers("a").tolist() == [1, 3, 2, 4]
    assert "1 rows without a value in 'g' were left out" in " ".join(made.notes)
    assert assemble(Upload((data,), group="G")).target == made.target


def test_likely_group_columns_come_first():
    data = table("d.csv", "flag,a,arm,word\n0,1,1,x\n1,2,2,y\n0,3,1,x\n1,4,2,y\n")
    assert [*suggest_groups(data)] == ["arm", "word", "flag"]


HISTORY = "task,group,a\n" + "".join(
    f"{task},{group},{value}\n"
    for task, groups in (("north", "xy"), ("south", "yx"))
    for group in groups
    for value in (1, 2, 3)
)


@pytest.mark.parametrize(
    "related",
    [
        [("meta.csv", HISTORY)],
        [("meta.csv", HISTORY.replace("task,", "Task,").replace("group", "GROUP"))],
        [
            ("north.csv", "a,group\n1,x\n2,x\n3,x\n1,y\n2,y\n3,y\n"),
            ("south.csv", "a,group\n1,y\n2,y\n3,y\n1,x\n2,x\n3,x\n"),
        ],
        [(f"z.zip/{n}_{s}.csv", "a\n1\n2\n3\n") for n in ("north", "south") for s in "QP"],
    ],
    ids=["one file", "other letters", "many files", "pairs of files"],
)
def test_related_tasks_come_in_three_shapes(related):
    made = assemble(Upload((P, Q), tuple(table(*item) for item in related)))
    found = sizes(made)
    assert list(found) == ["target", "north", "south"]
    first, second = ("P", "Q") if "zip" in related[0][0] else ("x", "y")
    assert found["south"] == (first, 3, second, 3), "a group keeps its side in every task"
    assert list(made.columns) == ["a"]
    assert "Column 'b' is not in" in " ".join(made.notes) and related[0][0] in " ".join(made.notes)


def test_the_targets_groups_decide_the_order():
    target = table("d.csv", "group,a\ny,1\ny,2\nx,3\nx,5\n")
    made = assemble(Upload((target,), (table("meta.csv", HISTORY),), "group"))
    assert [(pair.p.label, pair.q.label) for pair in made.pairs] == [("y", "x")] * 3


BAD = {
    "nothing": (Upload(()), "no table"),
    "three": (Upload((P, Q, P)), "one table or two"),
    "no group chosen": (Upload((P,)), "p.csv: which column is the group"),
    "no such group": (Upload((P,), group="g"), "p.csv: there is no column called 'g'"),
    "three groups": (Upload((P,), group="a"), "p.csv: the column 'a' has 3 groups (1, 3, 5). It needs two."),
    "one group": (
        Upload((P, Q), (table("m.csv", "task,group,a\nn,x,1\nn,x,2\n"),)),
        "m.csv: task 'n' has 1 groups (x). It needs two.",
    ),
    "no group column": (Upload((P, Q), (table("m.csv", "task,a\nn,1\n"),)), "m.csv: a column called 'group' is needed"),
    "half a pair": (Upload((P, Q), (table("n_P.csv", "a\n1\n2\n"),)), "n_P.csv: its partner is missing"),
    "no shared column": (Upload((P, table("q.csv", "c\n1\n"))), "share no column"),
    "no header here": (Upload((P, table("q.csv", "1,2\n3,4\n"))), "q.csv: it has no header"),
    "no header, other width": (Upload((table("p.csv", "1,2\n"), table("q.csv", "1,2,3\n"))), "2 columns) and q.csv (3"),
    "one row": (Upload((P, table("q.csv", "a,b\n1,2\n"))), "q.csv: q has 1 usable row. Bring at least 2"),
    "only a group": (Upload((table("d.csv", "g\nx\ny\n"),), group="g"), "share no column"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_uploads_get_one_sentence(name):
    upload, message = BAD[name]
    with pytest.raises(TableError) as caught:
        prepare(upload)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_limits_hold_for_the_whole_upload():
    upload = Upload((P, Q), (table("meta.csv", HISTORY),))
    for limits, message in (
        (Limits(tasks=1), "2 related tasks, and 1"),
        (Limits(rows=10), "17 rows"),
        (Limits(cells=16), "cells"),
    ):
        with pytest.raises(TableError, match=message):
            assemble(upload, limits)


def test_the_digest_follows_files_and_roles():
    again = Upload((table("other name.csv", "a,b\n1,2\n3,4\n5,6\n"), Q))
    assert Upload((P, Q)).digest == again.digest != Upload((Q, P)).digest
    assert Upload((P,), group="a").digest != Upload((P,), group="b").digest


def test_duplicates_are_counted_and_nothing_is_removed():
    p = table("p.csv", "a,w\n1,x\n1,x\n2,\n7,x\n-0,x\n")
    q = table("q.csv", "a,w\n2,\n2,\n1,y\n0,x\n9,x\n")
    history = table("m.csv", "group,a,w\nu,1,x\nu,5,x\nv,6,x\nv,7,y\n")
    notes = " ".join(check(assemble(Upload((p, q), (history,)))).notes)
    assert (
        "repeat an earlier one: 1 in P, 1 in Q" in notes and "5 rows of P and Q equal one of the other sample" in notes
    )


def test_the_report_says_what_each_column_is():
    rows = 40
    number = np.arange(rows)
    cells = {
        "": number,
        "plain": [*number[:-1] * 0.5, 1000],
        "code": [f"{2**60 + i}" for i in number],
        "colour": np.where(number % 3, "red", "blue"),
        "day": [f"2020-01-{i % 28 + 1:02}" for i in number],
        "local day": [f"{i % 28 + 1}.1.2020 12:30" for i in number],
        "name": [f"person {i}" for i in number],
        "same": ["x"] * rows,
        "one": ["1", *["1.0"] * (rows - 1)],
        "void": [""] * rows,
        "mixed": [*["dog", "n/a"], *number[2:] % 9],
        "flag": np.where(number % 2, "yes", "no"),
    }
    header = ",".join(cells)
    half = rows // 2
    lines = [",".join(str(column[i]) for column in cells.values()) for i in range(rows)]
    p, q = (
        table(name, "\n".join([header, *part])) for name, part in (("p.csv", lines[:half]), ("q.csv", lines[half:]))
    )
    report = check(assemble(Upload((p, q))))
    kinds = {column.name: column.kind for column in report.columns}
    assert kinds == {
        "column 1": "identifier",
        "plain": "numeric",
        "code": "identifier",
        "colour": "categorical",
        "day": "date",
        "local day": "date",
        "name": "identifier",
        "same": "constant",
        "one": "constant",
        "void": "all missing",
        "mixed": "numeric",
        "flag": "categorical",
    }
    by_name = {column.name: column for column in report.columns}
    assert report.rows == (half, half, 0)
    assert by_name["plain"].outliers == 1 and by_name["plain"].maximum == 1000 and by_name["plain"].used
    assert by_name["mixed"].odd == 1
    assert by_name["mixed"].missing == (1, 0, 0) and by_name["void"].missing == (half, half, 0)
    assert by_name["colour"].levels == 2 and by_name["colour"].top_levels[0] == ("red", 26)
    assert all(column.why for column in report.columns if not column.used)


def test_a_column_that_names_the_sample_is_pointed_out():
    p, q = table("p.csv", "a,where,n\n1,north,5\n2,north,5\n"), table("q.csv", "a,where,n\n3,south,6\n1,south,6\n")
    notes = check(assemble(Upload((p, q)))).notes
    assert [note.split()[0] for note in notes] == ["'where'", "'n'"]


def test_a_group_column_that_is_named_must_be_there():
    upload = Upload((P, Q), (table("m.csv", HISTORY),), related_group="arm")
    with pytest.raises(TableError, match="m.csv: a column called 'arm' is needed"):
        assemble(upload)
