"""Which column is the group, who is P, and what a swap changes."""

import pytest

from m2st_core.analysis.answer import answer_of
from m2st_core.analysis.plan import Plan, carry_out
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.files import read_table, read_tables
from m2st_core.data.tables.groups import OTHERS, suggest_groups
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.upload import Upload
from tests.practitioner import files

FILES = {name: read_tables(name, data) for name, data in files(4).items()}
TARGET, TOGETHER, MONTHS = (FILES[name] for name in ("tablets.csv", "six_earlier.csv", "six_months.zip"))


def table(name, *lines):
    return read_table(name, "\n".join(lines).encode())


def two(name, *labels):
    """A file whose column g has these labels, three rows of each."""
    return table(name, "a,g", *(f"{i * 7 % 5},{label}" for label in labels for i in range(3)))


def labels(*arguments, **roles):
    return [pair.labels for pair in assemble(Upload(*arguments, **roles)).pairs]


def test_candidates_have_values_and_rows_and_the_related_tasks_rank_them():
    assert [*suggest_groups(*TARGET)] == ["machine", "line"]
    related = suggest_groups(*TOGETHER, task="task")
    found = suggest_groups(*TARGET, related=related)
    assert [(name, column.words) for name, column in found.items()] == [
        ("line", "new 30, old 30"),
        ("machine", "A 35, B 25"),
    ]
    assert found["line"].found_in(related) == "group" and found["machine"].found_in(related) == "machine"
    months = suggest_groups(*MONTHS)["line"]
    assert (months.files, months.words) == (6, "new 360, old 360")


@pytest.mark.parametrize("history", [TOGETHER, MONTHS], ids=["one file", "months"])
def test_swapping_p_and_q_turns_all_tasks_and_changes_no_p_value(history):
    """Exactly: the sums, the random numbers and the learner do not depend on who is P."""
    answers = []
    for groups in (("new", "old"), ("old", "new")):
        data = prepare(Upload(TARGET, history, "line", groups=groups))
        assert (data.x_name, data.y_name) == groups
        assert set(map(tuple, data.record["samples"].values())) == {groups}
        outcome = carry_out(data, Plan("Meta-WiTS", ("MMD-FUSE", "MMD-D · tuned")), explained=False)
        tests = outcome.analysis.primary, *(verdict.result for verdict in outcome.analysis.secondary)
        answers.append([result.p_value for result in tests])
        assert answer_of(outcome).verdict.startswith(f"Evidence that “{groups[1]}” differs from “{groups[0]}”")
        frame = data.to_frame().query("task != 'target'")
        by_side = frame.groupby("group")[["hardness", "dissolution"]].corr().iloc[::2, 1]
        assert {"P": by_side.iloc[0], "Q": by_side.iloc[1]}["PQ"[groups.index("new")]] > 0.7
    assert answers[0] == answers[1]


def test_values_of_the_target_keep_their_side_in_every_task():
    target = (two("d.csv", "old", "new"),)
    for related, expected in (
        (two("m.csv", "new", "old"), ("old", "new")),
        (two("m.csv", "newer", "old"), ("old", "newer")),
        (two("m.csv", "new", "newer"), ("newer", "new")),
        (two("m.csv", "New", "OLD"), ("OLD", "New")),
    ):
        assert labels(target, (related,), "g") == [("old", "new"), expected]
    assert labels((two("d.csv", 0, 1),), (two("m.csv", "1.0", "0.0"),), "g")[1] == ("0.0", "1.0")
    pair = table("old.csv", "a", "1", "2", "4"), table("new.csv", "a", "3", "4", "1")
    assert labels(pair, (two("m.csv", "new", "old"),), related_group="g")[1] == ("old", "new")


def test_other_values_are_matched_by_order_said_and_swapped():
    target, related = (two("d.csv", "old", "new"),), (two("m.csv", "X", "Y"),)
    made = assemble(Upload(target, related, "g"))
    said = "“X” stands for “old” and “Y” for “new”. These values are not the target's"
    assert said in " ".join(made.notes) and made.related[0].labels == ("X", "Y")
    turned = assemble(Upload(target, related, "g", related_groups=("Y", "X")))
    assert turned.related[0].labels == ("Y", "X") and turned.turned and not made.turned
    assert assemble(Upload(target, related, "g", groups=("new", "old"))).related[0].labels == ("X", "Y")
    assert "stands for" not in " ".join(assemble(Upload(target, (two("m.csv", "new", "old"),), "g")).notes)
    halves = tuple(table(f"n_{side}.csv", "a", "1", "2", "4") for side in "PQ")
    assert "“P” stands for “old”" in " ".join(assemble(Upload(target, halves, "g")).notes)
    pair = table("u.csv", "a", "1", "2", "4"), table("v.csv", "a", "3", "4", "1")
    made = assemble(Upload(pair, halves))
    assert made.related[0].labels == ("P", "Q") and "stands for" not in " ".join(made.notes)


def test_a_baseline_stands_for_a_baseline():
    target = (two("d.csv", "old", "new"),)
    made = assemble(Upload(target, (two("m.csv", "trial", "reference"),), "g"))
    assert made.related[0].labels == ("reference", "trial") and made.turned
    assert "“reference” stands for “old” and “trial” for “new”" in " ".join(made.notes)
    turned = assemble(Upload(target, (two("m.csv", "trial", "reference"),), "g", related_groups=("trial", "reference")))
    assert turned.related[0].labels == ("trial", "reference")


def test_values_that_stand_on_both_sides_are_said():
    """Versions 3 and 4 are compared; each earlier comparison has other versions, and 3 was the later one, too."""
    pairs = [("v1", "v2"), ("v2", "v3"), ("v1", "v3")]
    related = tuple(two(f"{p}{q}.csv", p, q) for p, q in pairs)
    made = assemble(Upload((two("d.csv", "v3", "v4"),), related, "g"))
    notes = " ".join(made.notes)
    assert "In 1 related task “v1” stands for “v3” and “v2” for “v4”." in notes
    assert "“v1” is “v3” in some related tasks and “v4” in others, so these tasks do not all point one way." in notes
    assert "point one way" not in " ".join(assemble(Upload((two("d.csv", "v3", "v4"),), related[:1], "g")).notes)


def test_one_group_against_the_rest_can_be_p_or_q():
    three = (two("d.csv", "low", "mid", "high"),)
    assert labels(three, group="g", groups=("mid",)) == [("mid", OTHERS)]
    assert labels(three, group="g", groups=(OTHERS, "mid")) == [(OTHERS, "mid")]
    assert labels(three, group="g", groups=("high", "low")) == [("high", "low")]
    assert labels((two("d.csv", "low", "mid"),), group="g", groups=("mid",)) == [("mid", "low")]


WIDE = table("wide.csv", "a,b,c,d,e,f,arm", *(f"{i},{i},{i},{i},{i},{i},{'xy'[i % 2]}" for i in range(6)))
BAD = {
    "no value of this name": (
        Upload((two("d.csv", "x", "y"),), (), "g", groups=("z",)),
        "no value 'z'. It has 'x', 'y'",
    ),
    "all columns of the target": (
        Upload((WIDE,), group="line"),
        "Likely: arm (x 3, y 3). Its columns: a, b, c, d, e, f, arm",
    ),
    "all columns of a task": (
        Upload((two("d.csv", "x", "y"),), (WIDE,), "g"),
        "a column called 'g' or 'group' is needed, with two values per task. Likely: arm (x 3, y 3). "
        "Its columns: a, b, c, d, e, f, arm. Name it as related_group (shell: --related-group-column)",
    ),
    "groups of two files": (Upload((WIDE, WIDE), groups=("x", "y")), "The target is two files"),
    "no such task": (
        Upload((two("d.csv", "x", "y"),), (two("m.csv", "A", "B"),), "g", related_groups=("C", "D")),
        "no related task compares 'C' with 'D'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_missing_is_named_with_what_there_is(name):
    upload, message = BAD[name]
    with pytest.raises(TableError) as caught:
        assemble(upload)
    assert message in str(caught.value)


def test_three_groups_at_once_and_half_a_pair_of_values_are_refused():
    with pytest.raises(TableError, match="two different values of the group column, or one. Got 'a', 'b', 'c'"):
        Upload((WIDE,), groups=("a", "b", "c"))
    with pytest.raises(TableError, match="values of P and of Q in related tasks. Got 'a'"):
        Upload((WIDE,), related_groups=("a",))
