"""The check before a test: identifiers, incomplete rows, the same rows twice, more than two groups."""

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.analysis.answer import methods_sentence
from m2st_core.analysis.report import DataSource, as_command
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.check import check_identifiers, incomplete_rows
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.groups import OTHERS, suggest_groups
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.upload import Upload


def table(name, *lines):
    return read_table(name, "\n".join(lines).encode())


def one(*lines):
    return Upload((table("d.csv", *lines),), group="group")


def test_a_repeated_patient_is_found_with_the_groups_it_is_in():
    rows = [f"P{i % 10:02},{i * 7 % 11},{'ab'[i // 10 % 2]}" for i in range(40)]
    (found,) = check_identifiers(assemble(one("Patient ID,v,group", *rows)))
    assert (found.column, found.units, found.repeated, found.in_both) == ("Patient ID", 10, 10, 10)
    assert "10 of its 10 values have several rows, 10 of them in both groups" in found.sentence
    apart = [f"P{i % 10:02}{'ab'[i // 20]},{i * 7 % 11},{'ab'[i // 20]}" for i in range(40)]
    (found,) = check_identifiers(assemble(one("subject,v,group", *apart)))
    assert found.in_both == 0 and "never in both groups" in found.sentence


def test_repeated_patients_are_noted_unless_they_are_the_block():
    rows = [f"P{i % 10:02},{i * 7 % 11},{'ab'[i // 10 % 2]}" for i in range(40)]
    upload = one("Patient ID,v,group", *rows)

    def noted(cleaning):
        return any(
            "Rows of one unit are not independent." in note for note in prepare(upload, cleaning=cleaning).decisions
        )

    assert noted(Cleaning()) and noted(Cleaning(left_out=("Patient ID",)))
    assert not noted(Cleaning(block="Patient ID"))


def test_other_columns_are_no_identifiers():
    rows = [f"{i * 7 % 11},{i / 3:.2f},{'xyz'[i % 3]},{'ab'[i % 2]}" for i in range(30)]
    assert check_identifiers(assemble(one("idle,patience,site,group", *rows))) == []


def test_whole_numbers_that_never_repeat_look_like_an_identifier():
    rows = [f"{1000 + 37 * i % 997},{i * 7 % 11},{'ab'[i % 2]}" for i in range(30)]
    (found,) = check_identifiers(assemble(one("PatientID,v,group", *rows)))
    assert found.repeated == 0
    assert found.sentence == "'PatientID' is not compared: it numbers rows, persons or records."


def test_incomplete_rows_are_those_that_dropping_would_lose():
    made = assemble(one("a,b,group", "1,2,x", ",3,x", "2,,x", ",,x", "3,1,x", "4,4,y", "5,5,y", "6,oops,y", "7,8,y"))
    assert incomplete_rows(made, Cleaning()) == 4
    assert len(made.rows) - sum(prepare(made, cleaning=Cleaning("drop rows")).target.sizes) == 4
    assert incomplete_rows(made, Cleaning(left_out=("b",))) == 2


def test_the_same_file_twice_is_refused_and_chance_is_not():
    lines = ["a,b", *(f"{i}.5,{i * 7 % 5}" for i in range(12))]
    with pytest.raises(TableError, match=r"p.csv and q.csv are the same table. There is nothing to compare"):
        prepare(Upload((table("p.csv", *lines), table("q.csv", *lines))))
    turned = [lines[0], *reversed(lines[1:])]
    with pytest.raises(TableError, match="“p” and “q” hold exactly the same 12 rows"):
        prepare(Upload((table("p.csv", *lines), table("q.csv", *turned))))
    few = ["ill", *("yes", "no") * 6]
    assert len(prepare(Upload((table("p.csv", *few), table("q.csv", "ill", *("no", "yes") * 6)))).x) == 12


THREE = ["v,arm,group", *(f"{i * 7 % 11},{'low mid high'.split()[i % 3]},{'ab'[i % 2]}" for i in range(30))]


def test_of_three_groups_two_are_picked_or_one_against_the_rest():
    data = table("d.csv", *THREE)
    found = suggest_groups(data)
    assert {name: column.values for name, column in found.items()} == {
        "group": ("a", "b"),
        "arm": ("low", "mid", "high"),
    }
    assert found["arm"].words == "low 10, mid 10, high 10"
    with pytest.raises(TableError, match="has 3 groups.*Choose two of them, one against all others"):
        prepare(Upload((data,), group="arm"))
    two = prepare(Upload((data,), group="arm", groups=("high", "low")))
    assert (two.x_name, two.y_name, len(two.x), len(two.y)) == ("high", "low", 10, 10)
    assert "10 rows of other groups in 'arm' are not compared" in " ".join(two.decisions)
    rest = prepare(Upload((data,), group="arm", groups=("mid",)))
    assert (rest.x_name, rest.y_name, len(rest.x), len(rest.y)) == ("mid", OTHERS, 10, 20)
    with pytest.raises(TableError, match="has no value 'huge'"):
        prepare(Upload((data,), group="arm", groups=("huge",)))
    assert len({Upload((data,), group="arm", groups=g).digest for g in ((), ("mid",), ("high", "low"))}) == 3


def test_files_with_the_same_note_share_a_line():
    p, q = table("p.csv", "a;b", "1,5;2", "2,5;3"), table("q.csv", "a;b", "7,5;2", "8,5;1")
    notes = assemble(Upload((p, q))).notes
    assert [note for note in notes if "separated" in note] == ["p.csv, q.csv: Cells are separated by semicolon."]


def questionnaire(name, first, column="person", answers=3, seed=0):
    """A file of 60 persons with two answers each, in two groups; persons are numbered from ``first``."""
    generator = np.random.default_rng([seed, first])
    frame = pd.DataFrame(generator.integers(1, answers + 1, (60, 2)), columns=["a", "b"])
    frame[column] = [f"P{number:04d}" for number in generator.permutation(60) + first]
    return m2st.read_table(name, frame.assign(group=["old", "new"] * 30).to_csv(index=False).encode())


def test_a_column_that_identifies_rows_settles_what_is_shared():
    target, *related = (questionnaire(f"{first}.csv", first) for first in (0, 30, 300, 600))
    upload = m2st.Upload((target,), tuple(related), group="group")
    plan = m2st.Plan("Meta-Witness", n_permutations=99)
    unsettled = m2st.prepare(upload)
    assert unsettled.identifiers == ("person",)
    assert unsettled.exact_if == "no row of the target is in the related tasks"
    outcome = m2st.carry_out(unsettled, plan, explained=False)
    assert not outcome.analysis.primary.exact
    assert f"The p-value is exact if {unsettled.exact_if}." in methods_sentence(outcome)

    settled = m2st.prepare(upload, cleaning=m2st.Cleaning(ids="person"))
    assert settled.exact_if == "" and settled.features == ("a", "b")
    assert "30 rows of the target are also in the related tasks, by their ids." in " ".join(settled.decisions)
    outcome = m2st.carry_out(settled, plan, explained=False)
    assert outcome.analysis.primary.exact and outcome.data.separation.shared == 30
    command = as_command(DataSource(("0.csv",), group="group"), m2st.Cleaning(ids="person"), plan)
    assert "--id-column person" in command

    learner = m2st.meta_train("Meta-Witness", settled.related)
    with pytest.raises(ValueError, match="30 rows of x and y"):
        m2st.carry_out(
            m2st.prepare(upload, cleaning=m2st.Cleaning(ids="person"), encoding=settled.encoding), plan, learner=learner
        )


def test_an_id_column_that_is_not_everywhere_or_has_gaps_is_named():
    target, related = questionnaire("t.csv", 0), questionnaire("r.csv", 90, "name")
    upload = m2st.Upload((target,), (related,), group="group")
    with pytest.raises(TableError, match="no column 'person' that all files have. The columns: a, b"):
        m2st.prepare(upload, cleaning=m2st.Cleaning(ids="person"))
    gap = m2st.read_table("g.csv", b"a,b,person,group\n1,2,P1,old\n2,1,,new\n3,4,P3,old\n5,1,P4,new\n")
    with pytest.raises(TableError, match="g.csv: row 3, column 'person': the row has no id"):
        m2st.prepare(m2st.Upload((gap,), group="group"), cleaning=m2st.Cleaning(ids="person"))
