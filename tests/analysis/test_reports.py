"""The report, the words and the code: complete, escaped, self-contained, and repeatable."""

import json
import re
import shlex
from datetime import date
from html import escape

import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.__main__ import main
from m2st_core.analysis.answer import answer_of, cited, methods_sentence, references, unbroken
from m2st_core.analysis.pictures import images_of, pictures
from m2st_core.analysis.related import left_out_gamma
from m2st_core.analysis.report import DataSource, as_command, as_python, html_report, report_decisions, report_versions
from m2st_core.data.arrays import as_related_tasks
from m2st_core.data.tables.cells import to_safe_csv
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.table import Table
from m2st_core.data.tables.upload import Upload
from tests.quick import use_few_steps

NASTY = "<script>alert(1)</script>"
FORMULA = "=cmd|' /C calc'!A0"


def upload(related=0, seed=0) -> Upload:
    """Headers, levels, groups and tasks that want to be run."""
    generator = np.random.default_rng(seed)

    def rows(count, task=None) -> list[str]:
        made = []
        for i in range(count):
            a, b = generator.standard_normal(2) + (i % 2)
            cells = [f"{a:.4f}", f"{b:.4f}", f'"{FORMULA}{i % 3}"', ("<b>old</b>", "@new")[i % 2]]
            made.append(",".join(cells + ([f"{NASTY} {task}"] if task is not None else [])))
        return made

    def table(name, lines, more="") -> Table:
        return read_table(name, "\n".join([f'"{NASTY}","+b",kind,group{more}', *lines]).encode())

    tasks = [line for task in range(related) for line in rows(20, task)]
    history = (table("history.csv", tasks, ",task"),) if related else ()
    return Upload((table("<i>x</i>.csv", rows(40)),), history, "group")


@pytest.fixture(scope="module")
def outcome():
    return m2st.carry_out(prepare(upload(related=3)), m2st.Plan("Feature-MKL", ("MMD-M", "Meta-FUSE"), seed=7))


@pytest.fixture(scope="module")
def report(outcome):
    origin = DataSource(("<i>x</i>.csv",), ("history.csv",), group="group")
    code = {
        "python": as_python(origin, Cleaning(), outcome.plan),
        "command": as_command(origin, Cleaning(), outcome.plan),
    }
    tested = [{"Test": "MMD-M", "p": 0.5}, {"Test": NASTY, "p": 0.1}]
    return html_report(outcome, tested=tested, made=date(2026, 3, 9), **code)


def own_part(report):
    """The report without plotly.js."""
    return max(re.split(r"<script[^>]*>", report), key=len), re.sub(
        r"<script[^>]*>.*?</script>", "", report, flags=re.S
    )


def test_the_report_has_what_a_reader_needs(outcome, report):
    primary = outcome.analysis.primary
    for words in (
        f"<td>{primary.p_value:.4g}, ±", "permutations; the random split is not included", "9 March 2026",
        "What this does not mean", "How far apart the groups are", "95 % interval", "With the related tasks:",
        "Without:", "can reach 0.1", "seed 7", "Secondary tests", "p after Holm", "exploratory",
        "Assumptions", "For the methods section", "References", "m2st: discriminant directions of related",
        "Holm (1979)",
        "tested 2 times", "SHA-256", "m2st_core test", "<td>exact</td><td>yes",
        "No tested row may be among their labelled rows", "Feature-MKL (ours)",
        "<td>Meta-FUSE (ours)</td><td>secondary</td>",
        "<td>primary</td><td>Feature-MKL (ours)</td>",
    ):  # fmt: skip
        assert words in report, words
    assert "Liu, Xu, Lu, Sutherland" not in report  # none of these tests is theirs
    for name, version in report_versions().items():
        assert f"<td>{name}</td><td>{version}</td>" in report
    assert '<td data-name="Column">' in report and '<td data-name="95 % interval">' in report
    for name in pictures(outcome):
        assert f'id="figure-{name}"' in report
    assert {"null", "weights", "witness", "importance", "samples"} == set(pictures(outcome))


def test_the_report_has_the_order_of_the_page_and_prints_on_one_width(outcome, report):
    answer = answer_of(outcome)
    order = (
        f"<h1>{escape(unbroken(answer.verdict))}</h1>", escape(answer.basis), "What this does not mean",
        "How far apart", "How many rows a new study needs", ">Assumptions<", ">Details<", 'id="figure-null"',
        'id="figure-weights"', 'id="figure-witness"', ">Files<", ">Settings<",
    )  # fmt: skip
    places = [report.index(words) for words in order]
    assert places == sorted(places)
    assert "size: A4" in report and "max-width: 43rem" in report and "width=device-width" in report


def test_images_have_tiles_and_a_heat_map_instead_of_columns():
    outcome = m2st.carry_out(prepare(m2st.EXAMPLES["digits"].load()), m2st.Plan("MMD-M"))
    assert set(pictures(outcome)) == {"null", "pixels", "tiles", "typical"}
    assert answer_of(outcome).table == () and answer_of(outcome).both is None
    values = pictures(outcome)["pixels"].figure.data[0].z
    images = images_of(outcome.data)
    assert np.allclose(values, images[0].mean(axis=0) - images[1].mean(axis=0), equal_nan=True)
    line, column = np.unravel_index(np.nanargmax(np.abs(values)), values.shape)
    assert f"“pixel {line},{column}”" in answer_of(outcome).differs
    assert values.shape == (8, 8) and "How far apart" not in html_report(outcome)


def test_a_p_value_and_a_share_stay_on_one_line():
    assert unbroken("(p = 0.21), 80 % of p and q") == "(p\u00a0=\u00a00.21), 80\u00a0% of p and q"
    assert unbroken(r"\(p \= 0\.21\)") == "\\(p\u00a0\\=\u00a00\\.21\\)"  # as Markdown


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_verdict_names_the_groups_and_never_says_that_they_are_the_same(shift):
    generator = np.random.default_rng(0)
    rows = [f"{generator.normal() + shift * (i % 2):.4f},{('lot A', 'lot B')[i % 2]}" for i in range(58)]
    table = read_table("lots.csv", "\n".join(["mass (mg),lot", *rows]).encode())
    outcome = m2st.carry_out(prepare(Upload((table,), group="lot")), m2st.Plan("MMD-M"))
    answer = answer_of(outcome)
    if shift:
        assert answer.verdict == "Evidence that “lot B” differs from “lot A” (p ≤ 0.001)"
        assert "No smaller p-value is possible with 999 permutations" in answer.basis
        assert answer.differs.startswith("What differs most: “mass”, with a median of ")
        assert " mg in “lot A” and " in answer.differs
        numbers = re.findall(r"\d+\.\d+", answer.differs)
        assert len(numbers) == 5 and len({len(number.split(".")[1]) for number in numbers}) == 1
    else:
        p = outcome.analysis.primary.p_value
        assert answer.verdict == f"No evidence of a difference at α=0.05 with 29 and 29 rows (p = {p:.3g})"
        assert answer.differs == "" and "does not show that the groups are the same" in answer.not_meant


def test_a_small_sample_says_how_small_its_p_value_can_be():
    table = read_table("d.csv", "\n".join(["v,g", *(f"{i * 3 % 8},{'ab'[i % 2]}" for i in range(8))]).encode())
    outcome = m2st.carry_out(prepare(Upload((table,), group="g")), m2st.Plan("MMD-M"), explained=False)
    assert "All 70 labellings of the rows were counted." in answer_of(outcome).basis
    assert "The smallest p-value that these rows can give is 0.0286." in answer_of(outcome).basis


def test_the_report_is_one_file_that_asks_nobody(report):
    library, rest = own_part(report)
    assert len(library) > 1_000_000 and report.count("plotly.js v") == 1
    assert "http" not in rest.replace("http-equiv", "") and "src=" not in rest and "href" not in rest
    assert "default-src 'none'" in report
    assert not re.search(r"https?://", report.replace(library, ""))


def test_nothing_from_files_is_markup_in_the_report(report):
    _, rest = own_part(report)
    assert "<script>alert" not in report and "&lt;script&gt;alert(1)" in rest
    assert "<i>x</i>" not in report and "<b>old</b>" not in report


def test_pictures_show_words_from_files_as_text(outcome):
    for picture in pictures(outcome).values():
        text = picture.figure.to_json()
        assert "<script" not in text and "<b>" not in text, picture.name


def test_decisions_are_json_and_complete(outcome):
    found = json.loads(json.dumps(report_decisions(outcome), default=str))
    assert found["primary"]["p_value"] == outcome.analysis.primary.p_value and found["plan"]["seed"] == 7
    assert found["data"]["files"][0]["sha256"] and found["versions"]["m2st"] == m2st.__version__
    tests = [found["primary"], *found["secondary"]]
    assert [v["method"] for v in tests] == ["Feature-MKL", "MMD-M", "Meta-FUSE"]
    assert [v["origin"] for v in tests] == ["ours", "general", "ours"]


def test_the_methods_sentence_says_whose_the_test_is_and_how_it_was_set(outcome, monkeypatch):
    said = methods_sentence(outcome)
    assert "the two-sample test Feature-MKL (m2st) whose features were learned from 3 rel" in said
    assert "Secondary tests (MMD-M, Meta-FUSE of m2st) were corrected" in said and "deep" not in said
    use_few_steps(monkeypatch)
    papers = m2st.carry_out(prepare(upload(related=3)), m2st.Plan("meta-mkl code"), explained=False)
    said = methods_sentence(papers)
    assert "Meta-MKL · code (Liu, Xu, Lu, Sutherland 2021) whose deep kernels were learned from 3 rel" in said
    assert "classifier" not in said
    assert [r for r in references(papers) if "(2021)" in r] == [m2st.METHODS["Meta-MKL"].reference]
    ours = m2st.carry_out(prepare(upload(related=3)), m2st.Plan("Meta-KL · tuned"), explained=False)
    assert "3 related comparisons, starting from a classifier of them (a setting of m2st)" in methods_sentence(ours)
    alone = m2st.carry_out(prepare(upload()), m2st.Plan("MMD-M"), explained=False)
    said = methods_sentence(alone)
    assert "MMD-M (Gretton, Borgwardt, Rasch, Schölkopf, Smola 2012); it was" in said
    assert "p ≤ 0.001, from 999 random permutations (the smallest p that they can give);" in said


@pytest.mark.parametrize("method", m2st.METHODS.values(), ids=lambda method: method.name)
def test_a_citation_keeps_every_author_and_year_and_no_title(method):
    found = cited(method.reference)
    assert re.findall(r"\d{4}", found) == re.findall(r"\((\d{4})\)", method.reference)
    assert found.startswith("m2st") == (method.origin == "ours") and "(" not in found
    assert not re.search(r"\b(two-sample|kernel test|directions)\b", found)


def test_no_export_holds_a_cell_that_a_spreadsheet_runs(outcome):
    for text in (outcome.data.to_csv(), to_safe_csv(upload().target[0].frame)):
        for cell in re.split(r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)|\n", text):
            bare = cell.strip('"')
            assert not bare.startswith(("=", "@", "+b")), cell


def test_a_learner_in_a_zip_gives_the_same_p_value(outcome, tmp_path):
    from m2st_core.testing.learner_files import learner_from_zip

    packed = outcome.learners["Feature-MKL"].packed(outcome.data.encoding)
    learner, encoding = learner_from_zip("learner.zip", packed)
    target = Upload(upload(related=3).target, group="group")
    again = m2st.carry_out(prepare(target, encoding=encoding), m2st.Plan("Feature-MKL", seed=7), learner=learner)
    assert again.analysis.primary.p_value == outcome.analysis.primary.p_value
    (tmp_path / "learner.zip").write_bytes(packed)
    assert m2st.open_learner(tmp_path / "learner.zip")[1] == encoding


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-40], "not a ZIP of a learner"),
        (lambda data: b"a,b\n1,2\n", "not a ZIP of a learner"),
        (lambda data: rezip(data, {"learner.json": b"[1, 2]"}), "damaged"),
        (lambda data: rezip(data, {"learner.json": b"\xff\xfe"}), "not text"),
        (lambda data: rezip(data, {"learner.json": b'{"format": 4}'}), "learner format 4, and"),
        (lambda data: rezip(data, {"learner.safetensors": b"x" * 100}), "damaged"),
        (lambda data: rezip(data, {"learner.safetensors": None}), "learner.safetensors is missing"),
        (lambda data: rezip(data, {"encoding.json": b"{}"}), "damaged"),
        (lambda data: rezip(data, {"learner.safetensors": b"\0" * (70 << 20)}), "unpacks to more than"),
    ],
)
def test_a_damaged_learner_is_one_sentence(outcome, change, message):
    from m2st_core.testing.learner_files import learner_from_zip

    data = change(outcome.learners["Feature-MKL"].packed(outcome.data.encoding))
    with pytest.raises(ValueError, match=message):
        learner_from_zip("learner.zip", data)


def rezip(data, changes):
    import io
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = changes.get(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return packed.getvalue()


def test_the_command_and_the_script_give_the_same_p_value(tmp_path, monkeypatch, capsys):
    generator = np.random.default_rng(3)
    lines = ["size,site,which one"]
    lines += [f"{generator.normal() + (i % 2):.4f},site {i % 3},{'xy'[i % 2]}" for i in range(60)]
    (tmp_path / "my data.csv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    origin = DataSource(("my data.csv",), group="which one")
    cleaning = Cleaning(scaling="robust", block="site")
    plan = m2st.Plan("MMD-M", ("MMD-FUSE",), alpha=0.1, n_permutations=199, seed=4)
    data = prepare(origin.upload(), cleaning=cleaning)
    expected = m2st.carry_out(data, plan, explained=False).analysis
    words = shlex.split(as_command(origin, cleaning, plan))
    assert words[:3] == ["python", "-m", "m2st_core"] and main([*words[3:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["p_value"] == expected.primary.p_value
    assert found["secondary"][0]["holm"] == expected.secondary[0].adjusted_p_value
    exec(compile(as_python(origin, cleaning, plan), "script", "exec"), {})
    assert float(capsys.readouterr().out.split()[0]) == expected.primary.p_value


def test_gamma_of_left_out_tasks_is_put_into_words():
    tasks = prepare(upload(related=4)).related
    names = list(tasks.names[:2])
    found = left_out_gamma(tasks, names)
    assert found.startswith("2 left-out tasks were each compared") and "by chance" in found
    wide = as_related_tasks({name: (np.eye(4, 300), np.eye(4, 300)) for name in names})
    assert "not computed" in left_out_gamma(wide, names)


@pytest.mark.parametrize(
    ("methods", "learned"), [(("MMD-M",), 0), (("Meta-FUSE", "Meta-WiTS"), 1), (("Feature-MKL", "Meta-WiTS"), 2)]
)
def test_methods_that_learn_alike_share_the_training(methods, learned, monkeypatch):
    from m2st_core.analysis import plan

    calls = []
    monkeypatch.setattr(plan, "meta_train", lambda *a, **k: calls.append(a) or m2st.meta_train(*a, **k))
    outcome = m2st.carry_out(prepare(upload(related=2)), m2st.Plan(methods[0], methods[1:]), explained=False)
    assert len(calls) == learned and set(outcome.learners) == {m for m in methods if m2st.METHODS[m].uses_related_tasks}


def test_a_history_that_is_not_there_is_a_sentence():
    with pytest.raises(ValueError, match="learns from related tasks"):
        m2st.carry_out(prepare(upload()), m2st.Plan("Meta-FUSE"))
    with pytest.raises(ValueError, match="nothing to test"):
        m2st.carry_out(prepare(Upload((), upload(related=2).related)), m2st.Plan("MMD-M"))
