"""Columns belong to names: in every kind of frame, for samples, related tasks and learners."""

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import m2st_core as m2st
from m2st_core.analysis.plan import Plan, carry_out
from m2st_core.data.arrays import as_related_tasks, as_two_sample

NAMES = ["a", "b", "c"]
SHUFFLED = ["c", "a", "b"]
MEANS = np.array([0.0, 50.0, -50.0])  # so that a column in another column's place is noticed
NOTE = "The columns of {} have no names, so they were taken in the order of {}: a, b, c."
QUICK = {"n_permutations": 99, "device": "cpu"}

FRAMES = {
    "pandas": lambda frame: frame,
    "whole numbers": lambda frame: frame.rename(columns=dict(zip(NAMES, (0, 1, 2), strict=True))),
    "other whole numbers": lambda frame: frame.rename(columns=dict(zip(NAMES, (7, 30, 4), strict=True))),
    "MultiIndex": lambda frame: frame.set_axis(pd.MultiIndex.from_tuples([("m", c) for c in frame]), axis=1),
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "fractions": lambda frame: frame.rename(columns=dict(zip(NAMES, (0.0, 1.0, 2.0), strict=True))),
    "1 and '1'": lambda frame: frame.rename(columns=dict(zip(NAMES, (1, "1", "c"), strict=True))),
    "DuckDB": duckdb.from_df,
    "LazyFrame": lambda frame: pl.from_pandas(frame).lazy(),
    "narwhals": nw.from_native,
}
LIBRARIES = ("pandas", "polars", "pyarrow", "DuckDB", "LazyFrame", "narwhals")


def rows(seed, count=40):
    return pd.DataFrame(np.random.default_rng(seed).standard_normal((count, 3)) + MEANS, columns=NAMES)


def pairs(count=5):
    """Related tasks that differ in column a."""
    return [(rows(100 + task), rows(200 + task) + [1.5, 0, 0]) for task in range(count)]


@pytest.fixture(scope="module")
def learner():
    return m2st.meta_train("Meta-WiTS", {str(index): pair for index, pair in enumerate(pairs())}, device="cpu")


@pytest.mark.parametrize("kind", FRAMES)
def test_the_order_of_columns_changes_no_p_value(kind):
    """Under P = Q; with columns taken by position, all of these tests rejected."""
    x, y, convert = rows(1), rows(2), FRAMES[kind]
    expected = m2st.two_sample_test(x, y, "MMD-M", **QUICK)
    result = m2st.two_sample_test(convert(x), convert(y[SHUFFLED]), "MMD-M", **QUICK)
    assert expected.p_value > 0.05 and result == expected and not result.notes


@pytest.mark.parametrize("other", LIBRARIES)
@pytest.mark.parametrize("kind", LIBRARIES)
def test_frames_of_different_libraries_fit_together(kind, other):
    x, y = rows(1), rows(2)
    sample = as_two_sample(FRAMES[kind](x), FRAMES[other](y[SHUFFLED]))
    assert sample.y.tolist() == y.to_numpy().tolist() and not sample.notes


@pytest.mark.parametrize("kind", LIBRARIES)
def test_other_names_are_refused_with_both_lists(kind):
    x, y = FRAMES[kind](rows(1)), FRAMES[kind](rows(2).rename(columns={"b": "z"}))
    said = r"columns of x are a, b, c and those of y are a, z, c \(only in x: b; only in y: z\)"
    with pytest.raises(ValueError, match=said):
        as_two_sample(x, y)


def test_columns_without_names_go_by_position_with_a_note():
    x, y = rows(1), rows(2)
    for nameless in (y.to_numpy(), y.set_axis(range(3), axis=1), torch.tensor(y.to_numpy()), y.to_numpy().tolist()):
        assert m2st.two_sample_test(x, nameless, "MMD-M", **QUICK).notes == (NOTE.format("y", "x"),)
    assert as_two_sample(y.to_numpy(), x).notes == (NOTE.format("x", "y"),)
    assert not as_two_sample(x.to_numpy(), y.to_numpy()).notes
    assert not as_two_sample(x["a"], y[["b"]]).notes and as_two_sample(x["a"], pl.Series("b", y["b"])).x.shape == (
        40,
        1,
    )


def test_default_labels_in_another_order_are_positions():
    x, y = rows(1).set_axis(range(3), axis=1), rows(2).set_axis(range(3), axis=1)
    for first, second in ((x, y[[2, 0, 1]]), (x.to_numpy(), y[[2, 0, 1]]), (x[[1, 2, 0]], y.to_numpy())):
        sample = as_two_sample(first, second)
        assert (abs(sample.x.mean(0) - sample.y.mean(0)) < 5).all() and not sample.notes


def test_a_repeated_name_is_an_error_only_where_columns_must_be_matched():
    x, y = rows(1).set_axis(["a", "a", "b"], axis=1), rows(2).set_axis(["a", "a", "b"], axis=1)
    assert as_two_sample(x, y).y.tolist() == y.to_numpy().tolist()
    with pytest.raises(ValueError, match="Two columns of x are called 'a'. Rename one."):
        as_two_sample(x, y.iloc[:, [2, 0, 1]])
    table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2, names=["a", "a"])
    with pytest.raises(ValueError, match="y cannot be read as a frame of numbers: .*unique column names"):
        as_two_sample(x, table)


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table, lambda d: pl.LazyFrame(d), lambda d: pl.Series("a", d["a"])])
def test_cells_that_are_not_exact_numbers_are_refused_in_every_frame(make):
    good = pd.DataFrame({"a": [1.0, 2.0, 4.0]})
    for cells, said in (
        ([1, 2**53 + 1, 3], r"column 'a'\) has the whole number 9007199254740993 at row 2"),
        (["u", "v", "w"], "Column 'a' of y is str, not numbers"),
        ([1, None, 3], "y has nan at row 2, column 1"),
    ):
        with pytest.raises(ValueError, match=said):
            as_two_sample(good, make({"a": cells}))


def test_objects_that_export_dlpack_are_read():
    class Exported:
        def __init__(self, tensor):
            self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__

    values = torch.tensor(rows(1).to_numpy())
    assert torch.equal(as_two_sample(Exported(values), rows(2).to_numpy()).x, values)


def test_a_lazy_frame_is_collected_once():
    """Else the related tasks would be kept apart from other rows than those tested."""
    collected = []

    def counted(frame):
        collected.append(len(frame))
        return frame

    lazy = [pl.from_pandas(rows(seed)).lazy().map_batches(counted) for seed in (1, 2)]
    m2st.two_sample_test(*lazy, "Meta-WiTS", related_tasks=pairs(), **QUICK)
    assert len(collected) == 2
    m2st.analyse(*lazy, "MMD-M", ["ME"], **QUICK)
    assert len(collected) == 4


def test_related_tasks_are_put_in_one_order():
    tasks = pairs()
    mixed = [tasks[0], (tasks[1][0][SHUFFLED], tasks[1][1]), *((x[SHUFFLED], pl.from_pandas(y)) for x, y in tasks[2:])]
    plain, ordered = as_related_tasks(tasks), as_related_tasks(mixed)
    assert torch.equal(plain.rows, ordered.rows) and ordered.columns == tuple(NAMES) and not ordered.notes
    results = [
        m2st.two_sample_test(rows(1), target, "Meta-WiTS", related_tasks=given, **QUICK)
        for given in (tasks, mixed)
        for target in (rows(2), rows(2)[SHUFFLED])
    ]
    assert all(result == results[0] and not result.notes for result in results)
    with pytest.raises(ValueError, match="task 'task 1' are a, b, c and those of related task 'task 2' are z, b, c"):
        as_related_tasks([tasks[0], [part.rename(columns={"a": "z"}) for part in tasks[1]]])
    with pytest.raises(ValueError, match="columns of the related tasks are a, b, c and those of x and y are z, b, c"):
        m2st.two_sample_test(*(rows(s).rename(columns={"a": "z"}) for s in (1, 2)), "Meta-WiTS", related_tasks=tasks)


def test_related_tasks_without_names_are_noted_once():
    tasks = pairs()
    some = [(tasks[0][0].to_numpy(), tasks[0][1].to_numpy()), tasks[1], (tasks[2][0], tasks[2][1].to_numpy())]
    note = "Columns without names in the related tasks 'task 1', 'task 3' were taken in this order: a, b, c."
    learner = m2st.meta_train("Meta-WiTS", some, device="cpu")
    assert learner.test(rows(1), rows(2)[SHUFFLED], **QUICK).notes == (note,)


def test_a_learner_gives_the_same_p_for_columns_in_any_order(learner):
    x, y = rows(1), rows(2) + [0.7, 0, 0]
    expected = learner.test(x, y, **QUICK)
    for convert in (FRAMES[kind] for kind in LIBRARIES):
        for first, second in ((SHUFFLED, SHUFFLED), (NAMES, SHUFFLED), (["b", "c", "a"], NAMES)):
            result = learner.test(convert(x[first]), convert(y[second]), **QUICK)
            assert result == expected and result.null.tolist() == expected.null.tolist() and not result.notes


def test_a_learner_keeps_its_names_and_refuses_others(learner, tmp_path):
    learner.save(tmp_path / "learner")
    for known in (learner, m2st.load_learner(tmp_path / "learner")):
        assert known.column_names == ("a", "b", "c")
        with pytest.raises(ValueError, match=r"are a, b, c and those of x and y are a, b, z \(only in the related"):
            known.test(*(rows(seed).rename(columns={"c": "z"}) for seed in (1, 2)))
        with pytest.raises(ValueError, match=r"are a, b, c and those of x and y are a, b, c, id \(only in x and y: id"):
            known.test(*(rows(seed).assign(id=1.0) for seed in (1, 2)))
        notes = known.test(rows(1).to_numpy(), rows(2).to_numpy(), **QUICK).notes
        assert notes == (
            "The columns of x and y have no names, so they were taken in the order of the related tasks: a, b, c.",
        )


def test_a_learner_of_arrays_takes_a_frame_by_position_with_a_note():
    learner = m2st.meta_train("Meta-WiTS", [(x.to_numpy(), y.to_numpy()) for x, y in pairs()], device="cpu")
    result = learner.test(rows(1), rows(2), **QUICK)
    assert result.notes == (
        "The columns of the related tasks have no names, so they were taken in the order of x and y: a, b, c.",
    )
    numbered = [rows(seed).set_axis(range(3), axis=1) for seed in (1, 2)]
    reordered = learner.test(*(part[[2, 0, 1]] for part in numbered), **QUICK)
    assert reordered.p_value == result.p_value and not reordered.notes


def test_shared_rows_are_found_in_columns_of_another_order(learner):
    x, y = (part[SHUFFLED] for part in pairs()[0])
    with pytest.raises(ValueError, match="80 rows of x and y, or nearly equal ones, are among"):
        learner.test(x, y)
    assert m2st.separate((x, y), pairs()).shared == 80


def test_an_explanation_names_its_columns(learner):
    x, y = rows(1)[SHUFFLED], (rows(2) + [2.0, 0, 0])[SHUFFLED]
    analysis = m2st.analyse(x, y, "Meta-WiTS", learners={"Meta-WiTS": learner}, **QUICK)
    importance = m2st.explain(analysis.evidence).importance
    assert importance.names[0] == "a" == NAMES[importance.columns[0]]


def test_related_checks_match_by_name():
    tasks, pooled = pairs(4), pd.concat([rows(1), rows(2)])
    settings = {"most_left_out": 1, "repeats": 2, "device": "cpu"}
    plain, ordered = (
        m2st.check_related_tasks(tasks, (20, 20), pooled=given, **settings) for given in (pooled, pooled[SHUFFLED])
    )
    assert plain.unlike == ordered.unlike
    target = rows(1), rows(2)
    gamma, reordered = (
        m2st.relatedness([part[order] for part in target], tasks, restarts=1, max_tasks=2, steps=2).on_test_rows
        for order in (NAMES, SHUFFLED)
    )
    assert gamma.tolist() == reordered.tolist()


def table(name, frame):
    return m2st.read_table(name, frame.to_csv(index=False).encode())


def test_a_learner_trained_from_frames_tests_files_in_another_order(learner):
    x, y = rows(1), rows(2) + [2.0, 0, 0]
    expected = learner.test(x, y, **QUICK)
    upload = m2st.Upload((table("p.csv", x[SHUFFLED]), table("q.csv", y[SHUFFLED])))
    data = m2st.prepare(upload, cleaning=m2st.Cleaning(scaling="none"))
    outcome = carry_out(data, Plan("Meta-WiTS", n_permutations=99), learner=learner, device="cpu")
    assert outcome.analysis.primary == expected
    assert outcome.data.features == tuple(NAMES) and outcome.explanation.pair[0] == 0
    other = m2st.Upload((table("p.csv", x.rename(columns={"a": "z"})), table("q.csv", y.rename(columns={"a": "z"}))))
    with pytest.raises(ValueError, match="of the learner are a, b, c and those of the data are z, b, c"):
        carry_out(m2st.prepare(other), Plan("Meta-WiTS"), learner=learner)
    nameless = m2st.meta_train("Meta-WiTS", [(x[["a"]].to_numpy(), y[["a"]].to_numpy())], device="cpu")
    with pytest.raises(ValueError, match="The related tasks have 1 columns and x and y have 3."):
        carry_out(data, Plan("Meta-WiTS"), learner=nameless)


def test_a_user_of_files_reads_no_note_about_names(tmp_path):
    x, y = rows(1), rows(2)
    labelled = [
        part.assign(task=str(task), group=side)
        for task, pair in enumerate(pairs())
        for side, part in zip("PQ", pair, strict=True)
    ]
    target = table("p.csv", x), table("q.csv", y)
    upload = m2st.Upload(target, (table("related.csv", pd.concat(labelled)),), related_group="group")
    outcome = carry_out(m2st.prepare(upload), Plan("Meta-WiTS", ("MMD-M",), n_permutations=99), device="cpu")
    assert outcome.analysis.primary.notes == () and outcome.baseline.notes == ()
    outcome.learners["Meta-WiTS"].save(tmp_path / "L.zip", outcome.data.encoding)
    learner, encoding = m2st.open_learner(tmp_path / "L.zip")
    assert learner.column_names == encoding.features == tuple(NAMES)
    data = m2st.prepare(
        m2st.Upload(tuple(table(t.name, t.frame[SHUFFLED].astype(float)) for t in target)), encoding=encoding
    )
    again = carry_out(data, Plan("Meta-WiTS", n_permutations=99), learner=learner, device="cpu")
    assert again.analysis.primary == outcome.analysis.primary


def test_nothing_public_prints_rows(learner):
    marked = [part.assign(a=1234.5678 + part["a"] / 1e6) for part in (rows(1), rows(2), rows(3), rows(4))]
    own = m2st.meta_train("Meta-WiTS", [tuple(marked[:2])], device="cpu")
    examined = own.examine(*marked[2:], m2st.TestSettings(**QUICK))
    apart = m2st.separate(marked[2:], [tuple(marked[:2])])
    analysis = m2st.analyse(*marked[2:], "MMD-M", **QUICK)
    printed = (own, own.seen, examined, as_two_sample(*marked[:2]), apart, apart.tasks, analysis)
    assert not any("1234.5" in repr(one) for one in printed)
    assert repr(learner) == "MetaLearner('Meta-WiTS', 5 related tasks, 3 columns: a, b, c)"
    assert repr(apart.tasks) == "RelatedTasks(1 tasks, 3 columns: a, b, c)"
    assert repr(as_two_sample(*marked[:2])) == "TwoSample(40 and 40 rows, 3 columns: a, b, c)"


def test_a_learner_is_saved_as_a_zip_where_the_name_says_so(learner, tmp_path):
    for name in ("L.zip", "again.ZIP"):
        learner.save(tmp_path / name)
    packed = (tmp_path / "L.zip").read_bytes()
    assert packed == (tmp_path / "again.ZIP").read_bytes() == learner.packed()
    expected = learner.test(rows(1), rows(2), **QUICK)
    for known in (m2st.load_learner(tmp_path / "L.zip"), m2st.open_learner(tmp_path / "L.zip")[0]):
        assert known.test(rows(1), rows(2), **QUICK) == expected
    learner.save(tmp_path / "folder")
    assert (tmp_path / "folder" / "learner.json").is_file() and m2st.load_learner(tmp_path / "folder").columns == 3
