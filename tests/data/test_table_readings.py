"""Numbers are read right, or asked about: one grammar of cells, one decision over all files of an upload."""

import random

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.__main__ import main
from m2st_core.analysis.effect import differences
from m2st_core.analysis.report import DataSource, as_command, as_python
from m2st_core.data.tables import cells as grammar
from m2st_core.data.tables import columns
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.check import check_identifiers
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError, in_shell
from m2st_core.data.tables.upload import Upload

PLAIN = Cleaning(scaling="none")


def table(name, *lines):
    return read_table(name, "\n".join(lines).encode())


def column(*cells, separator=";", other="1.5"):
    """An upload with these cells in the column c, beside a column of numbers and the group."""
    lines = [separator.join((cell, f"{i}{other[1:]}", "pq"[i % 2])) for i, cell in enumerate(cells)]
    return Upload((table("d.csv", separator.join(("c", "v", "group")), *lines),), group="group")


def values(upload, **answers):
    """The numbers of the column c in the order of the file."""
    made = assemble(replaced(upload, **answers))
    return made.numbers("c")[np.argsort(made.rows)].tolist()


def replaced(upload, **answers):
    return Upload(upload.target, upload.related, upload.group, **answers)


READ = {
    "percent": (["10%", "20 %", "30%", "40%"], [10, 20, 30, 40], "%"),
    "currency": (["$10", "$4.50", "-$5", "$1,234.50"], [10, 4.5, -5, 1234.5], "$"),
    "currency behind": (["10 €", "4,50 €", "5€", "1.234,50 €"], [10, 4.5, 5, 1234.5], "€"),
    "unit": (["1 kg", "2kg", "0.5 kg", "3 kg"], [1, 2, 0.5, 3], "kg"),
    "two spellings": (["1 lb", "2 lbs", "3 lb", "4 lbs"], [1, 2, 3, 4], "lb"),
    "one unit, two signs": (["1 m²", "2 m2", "3 m2", "4 m²"], [1, 2, 3, 4], "m²"),
    "one day and two days": (["1 day", "2 days", "3 days", "4 days"], [1, 2, 3, 4], "day"),
    "other minus signs": (["–1", "−2", "-3", "4"], [-1, -2, -3, 4], ""),
    "both marks, each clear": (["1,5", "1.25", "2,5", "3"], [1.5, 1.25, 2.5, 3], ""),
    "thousands beside decimals": (["1.234,5", "5.678", "2,5", "12"], [1234.5, 5678, 2.5, 12], ""),
    "Swiss thousands": (["1'234", "5'678.5", "7", "8"], [1234, 5678.5, 7, 8], ""),
    "exponents": (["1e10", "2.5E-3", "1E+2", "7"], [1e10, 2.5e-3, 100, 7], ""),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_clear_is_read_and_said(name):
    cells, expected, unit = READ[name]
    made = assemble(column(*cells, other="1"))
    assert made.columns["c"].kind == "numeric" and made.columns["c"].unit == unit
    assert values(column(*cells, other="1")) == expected and not made.readings.questions
    plain = all(_is_float(cell) for cell in cells)
    assert plain or any("'c'" in note and "--read-as c=words" in in_shell(note) for note in made.notes)
    assert assemble(replaced(column(*cells), read_as={"c": "words"})).columns["c"].kind != "numeric"


def _is_float(cell):
    try:
        return bool(cell.isascii() and np.isfinite(float(cell)))
    except ValueError:
        return False


ASKED = {  # cells, separator, the other column's decimals, what is said, answers with what the column then holds
    "a decimal or thousands": (
        ["8.654", "8.7", "5,5", "9.123"], ";", "1", "'8.654' is 8.654 with a decimal point and 8654",
        {("decimal", "."): [8.654, 8.7, 5.5, 9.123], ("decimal", ","): [8654, 8.7, 5.5, 9123]},
    ),
    "commas alone": (
        ["1,234", "5,678", "1,111", "2,222"], "\t", "1", "'1,234' is 1234 with a decimal point and 1.234",
        {("decimal", "."): [1234, 5678, 1111, 2222], ("decimal", ","): [1.234, 5.678, 1.111, 2.222]},
    ),
    "points alone": (["1.234", "5.678", "1.111", "2.222"], ";", "1", "8.654" and "1234 with a decimal comma", {}),
    "decimals and thousands in one column": (["1,5", "1.500", "2,5", "7"], ";", "1,5", "'1.500' is 1.5", {}),
    "codes of different lengths": (
        ["01234", "345", "00501", "99999"], ";", "1.5", "begins with 0 as codes do",
        {("read_as", "numbers"): [1234, 345, 501, 99999]},
    ),
    "exponents or plates": (["1E10", "1E11", "2E05", "3E07"], ";", "1.5", "'1E10' is a code, or 10,000,000,000", {}),
    "days and months": (["01.02", "05.03", "17.12", "30.11"], ";", "1.5", "or a day and a month", {}),
    "mixed units": (["1 kg", "500 g", "2 kg", "3 kg"], ";", "1.5", "'1 kg' and '500 g' (d.csv: row 3) have", {}),
    "mixed currencies": (["$10", "€40", "$5", "$6"], ";", "1.5", "have different units", {}),
    "a unit that is lacking": (
        ["1 kg", "500", "2 kg", "3 kg"], ";", "1.5", "Is it in kg, too?", {("read_as", "numbers"): [1, 500, 2, 3]},
    ),
    "a total": (["1", "2", "3", "4", "5", "Total"], ";", "1.5", "d.csv: row 7: 'Total' in this row looks like", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_is_in_doubt_is_asked_and_stops_the_test(name):
    cells, separator, other, sentence, answers = ASKED[name]
    upload = column(*cells, separator=separator, other=other)
    with pytest.raises(TableError) as caught:
        prepare(upload, cleaning=PLAIN)
    assert sentence in str(caught.value) and str(caught.value).startswith("d.csv: row ")
    (question,) = assemble(upload).readings.questions
    assert all(option in str(caught.value) for option in (question.option, "--" + question.option.replace("_", "-")))
    assert 0 < len(question.examples) <= 3 and all(
        len(shown) == len(question.answers) for _, shown in question.examples
    )
    for answer in [answer for answer in question.answers if answer != "keep"]:  # then “Total” is no number
        given = {"c": answer} if question.option == "read_as" else answer
        assert (
            prepare(replaced(upload, **{question.option: given}), cleaning=PLAIN).record["answers"][question.option]
            == given
        )
    for (option, answer), expected in answers.items():
        assert values(upload, **{option: {"c": answer} if option == "read_as" else answer}) == expected
    if question.columns:
        assert prepare(upload, cleaning=Cleaning(scaling="none", left_out=("c",))).features == ("v",)


def test_two_files_are_read_alike_or_asked_about():
    """Of equal populations, P with one 5,5 and Q without were a factor of 1,000 apart."""
    p = table("p.csv", "a;b", "5,5;1", *(f"8.{654 + i};{i}" for i in range(9)))
    q = table("q.csv", "a;b", *(f"8.{561 + i};{i}" for i in range(9)))
    with pytest.raises(TableError, match=r"p.csv: row 3, column 'a': '8.654' is 8.654 .* --decimal"):
        prepare(Upload((p, q)), cleaning=PLAIN)
    (question,) = assemble(Upload((p, q))).readings.questions
    assert {example.file for example, _ in question.examples} == {"p.csv", "q.csv"}
    for mark, largest in ((".", 9), (",", 9000)):
        x, y = (data := prepare(Upload((p, q), decimal=mark), cleaning=PLAIN)).x[:, 0], data.y[:, 0]
        assert 0.9 < y.mean() / np.median(x) < 1.1 and max(x.max(), y.max()) < largest


def test_other_cells_of_any_file_settle_it():
    """A decimal comma in another column, file or task speaks for 8.654, and so does a point."""
    opened = ["a;b", "8.654;1", "7.111;2"]
    q = table("q.csv", "a;b", "8.561;1", "9.222;3")
    for cell, expected in (("2,5", 8654), ("2.5", 8.654)):
        p = table("p.csv", *opened[:-1], f"7.111;{cell}")
        assert prepare(Upload((p, q)), cleaning=PLAIN).x[0, 0] == expected
        history = table("m.csv", "task;group;a;b", *(f"t;{g};5.{i}33;{cell}" for g in "uv" for i in range(1, 4)))
        made = prepare(Upload((table("p.csv", *opened), q), (history,)), cleaning=PLAIN)
        assert made.x[0, 0] == expected and made.related.task(0).x[0, 0] == (5133 if expected > 9 else 5.133)
        assert any("'8.654' is read as" in note for note in made.decisions)


def test_a_file_of_another_dialect_settles_nothing():
    """Points in a file with commas between cells, or in a workbook, say nothing about German thousands."""
    openpyxl, io = pytest.importorskip("openpyxl"), __import__("io")
    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in (["a", "b"], [8713.16, 1], [7467.5, 2]):
        book.active.append(row)
    book.save(stream)
    thousands = table("q.csv", "a;b", "7.467;1", "8.112;2")
    points = table("p.csv", "a,b", "8713.16,1", "7467.5,2")
    for p in (points, read_table("p.xlsx", stream.getvalue())):
        (question,) = assemble(Upload((p, thousands))).readings.questions
        assert question.option == "decimal" and question.files == ("q.csv",)
        assert prepare(Upload((p, thousands), decimal={"q.csv": ","}), cleaning=PLAIN).y[0, 0] == 7467
    words = openpyxl.Workbook()
    for row in (["a", "b"], ["7.467", 1], ["8.112", 2]):
        words.active.append(row)
    words.save(stream := io.BytesIO())
    (question,) = assemble(Upload((p, read_table("q.xlsx", stream.getvalue())))).readings.questions
    assert question.option == "decimal" and question.files == ("q.xlsx",)
    alike = table("p.csv", "a;b", "8713.16;1", "7467.5;2")
    assert "'7.467' is read as 7.467" in " ".join(prepare(Upload((alike, thousands)), cleaning=PLAIN).decisions)


def test_commas_between_cells_speak_for_points_unless_another_file_has_decimal_commas():
    p, q = table("p.csv", "a,b", "8.654,1", "7.111,2"), table("q.csv", "a,b", "8.561,1", "9.222,3")
    data = prepare(Upload((p, q)), cleaning=PLAIN)
    assert data.x[:, 0].tolist() == [8.654, 7.111] and "'8.654' is read as 8.654" in " ".join(data.decisions)
    with pytest.raises(TableError, match="--decimal"):
        prepare(Upload((p, table("q.csv", "a;b", "8.561;1,5", "9.222;3,5"))), cleaning=PLAIN)


def test_commas_between_cells_do_not_settle_what_a_quoted_comma_means():
    p, q = table("p.csv", "a,b", '"8,654",1', '"7,111",2'), table("q.csv", "a,b", "8,1", "9,3")
    (question,) = assemble(Upload((p, q))).readings.questions
    assert question.option == "decimal" and set(question.examples[0][1]) == {"8654", "8.654"}
    with pytest.raises(TableError, match="--decimal"):
        prepare(Upload((p, q)), cleaning=PLAIN)
    settled = table("q.csv", "a,b", '"1,008.5",1', "9,3")
    assert prepare(Upload((p, settled)), cleaning=PLAIN).x[0, 0] == 8654


def test_files_with_different_marks_can_be_answered_one_by_one(tmp_path, monkeypatch, capsys):
    """A point in P and a comma in Q mean the same: no single answer for both files reads them right."""
    p = table("p.csv", "a;b", *(f"8.{654 + i};{i}" for i in range(9)))
    q = table("q.csv", "a;b", *(f"8,{651 + i};{i}" for i in range(9)))
    upload = Upload((p, q))
    with pytest.raises(TableError, match=r"by file, such as .* \(shell: --decimal p.csv=. --decimal \"q.csv=,\"\)"):
        prepare(upload, cleaning=PLAIN)
    (left,) = assemble(replaced(upload, decimal={"p.csv": "."})).readings.questions
    assert left.files == ("q.csv",) and {example.file for example, _ in left.examples} == {"q.csv"}
    data = prepare(replaced(upload, decimal={"p.csv": ".", "q.csv": ","}), cleaning=PLAIN)
    assert data.x[0, 0] == 8.654 and data.y[0, 0] == 8.651
    assert replaced(upload, decimal={"p.csv": "."}).digest != replaced(upload, decimal=".").digest
    with pytest.raises(TableError, match="'r.csv', which is no file here"):
        replaced(upload, decimal={"r.csv": "."})
    with pytest.raises(TableError, match="decimal must be one of"):
        replaced(upload, decimal={"p.csv": ";"})
    source = DataSource(("p.csv", "q.csv"), decimal={"p.csv": ".", "q.csv": ","})
    assert "--decimal p.csv=. --decimal q.csv=," in as_command(source, PLAIN, m2st.Plan("MMD-M"))
    assert "decimal={'p.csv': '.', 'q.csv': ','}" in as_python(source, PLAIN, m2st.Plan("MMD-M"))
    monkeypatch.chdir(tmp_path)
    for made in (p, q):
        rows = [f"{cell};{other}" for cell, other in made.frame.to_numpy()]
        (tmp_path / made.name).write_text("\n".join(["a;b", *rows]))
    command = ["test", "p.csv", "q.csv", "--method", "MMD-M", "--json"]
    main([*command, "--decimal", "p.csv=.", "--decimal", "q.csv=,"])
    assert '"p_value"' in capsys.readouterr().out
    main([*command, "--decimal", ".", "--decimal", "q.csv=,"])
    assert "FILE=MARK" in capsys.readouterr().err


def test_numbers_without_a_header_that_may_be_one_are_told():
    assert any("'1,5' is read as two cells" in note for note in table("d.csv", "1,5", "2,7", "3,1").notes)
    assert not any("two cells" in note for note in table("d.csv", "1,5,2", "2,7,2", "3,1,1").notes)


def test_what_thousands_of_columns_say_is_cut():
    header = ",".join(f"c{i}" for i in range(50))
    p, q = (table(f"{n}.csv", header, *(",".join(["10%"] * 49 + [f"{i}%"]) for i in range(4))) for n in "pq")
    notes = assemble(Upload((p, q))).notes
    assert sum("is read as" in note for note in notes) == 30
    assert "20 further readings like these are in the report." in notes


def test_files_with_different_marks_are_a_warning():
    p, q = table("p.csv", "a;b", "8,65;1", "7,1;2"), table("q.csv", "a,b", "8.56,1", "9.2,3")
    made = assemble(Upload((p, q)))
    assert made.numbers("a").tolist() == [8.65, 7.1, 8.56, 9.2]
    assert "decimal points in q.csv and decimal commas in p.csv" in made.readings.warnings[0] in made.notes
    words = assemble(Upload((p, table("q.csv", "a;b", "low;1", "high;3", "low;5"))))
    assert "numbers in p.csv and words in q.csv" in words.readings.warnings[0]


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("inf", "is infinite"),
        ("-∞", "is infinite"),
        ("1e999", "is infinite or too large"),
        ("#DIV/0!", "is an error of Excel's"),
        ("<0.1", "is a bound"),
        ("≥ 5", "is a bound"),
        ("dog", "is not a number"),
    ],
)
def test_cells_that_are_no_numbers_are_named_with_row_and_column(cell, why):
    upload = column("1", "2", cell, "4", "5", "6.5", "7")
    with pytest.raises(TableError, match=r"d.csv: row 4, column 'c': .*" + why):
        prepare(upload)
    data = prepare(upload, cleaning=Cleaning("drop rows", "none"))
    assert len(data.x) + len(data.y) == 6 and any(why in note and "row 4" in note for note in data.decisions)


def test_codes_and_compact_dates_are_no_numbers():
    zips = assemble(column(*["01234", "12345", "00501", "99999"] * 2))
    assert zips.columns["c"].kind == "categorical" and "'01234' is read as a code" in " ".join(zips.notes)
    assert values(column(*["01234", "12345"] * 3), read_as={"c": "numbers"}) == [1234, 12345] * 3
    days = assemble(column("20240131", "20240201", "19991231", "20240303"))
    assert days.columns["c"].kind == "date" and "--read-as c=numbers" in " ".join(map(in_shell, days.notes))
    assert assemble(column("20240131", "20249999", "31", "5")).columns["c"].kind == "numeric"
    floats = assemble(column("20240131.0", "20240201.0", "19991231.0", "20240303.0"))
    assert floats.columns["c"].kind == "date" and "'20240131.0' is read as a date" in " ".join(floats.notes)
    many = [f"{day}{end}" for end in ("", ".0") for day in range(20240101, 20240129)]
    sentinel = column(*many, "99999999")
    (question,) = assemble(sentinel).readings.questions
    assert question.option == "read_as" and set(question.answers) == {"numbers", "dates"}
    assert values(sentinel, read_as={"c": "numbers"})[-2:] == [20240128, 99999999]
    moments = assemble(column("20240131120000", "20240201120000", "19991231235959", "20240303080000"))
    assert moments.columns["c"].kind == "date"
    for odd in (["1½", "2½"], ["10¹²", "10¹³"], ["2x3", "4x3"], ["12 AM", "3 PM"], ["1.5D3", "2.5D3"]):
        assert assemble(column(*odd * 3)).columns["c"].kind == "categorical"
    plates = assemble(column(*["1E10", "1A11", "2B05", "3C07"] * 2))
    assert plates.columns["c"].kind == "categorical" and "1E10" in plates.words("c").tolist()


def test_na_and_none_are_values_where_they_fit_and_numbers_do_not_use_them():
    country = prepare(column("NA", "DE", "FR", "NA"), cleaning=PLAIN)
    assert "c = NA" in country.features and "is read as a value" in " ".join(country.decisions)
    severity = prepare(column("None", "Mild", "None", "Severe"), cleaning=PLAIN)
    assert "c = None" in severity.features
    assert "c = Na" in prepare(column("Na", "K", "Cl", "Na"), cleaning=PLAIN).features
    results = prepare(column("+", "-", "++", "-"), cleaning=PLAIN)
    assert "c = -" in results.features and "'-' is read as a value" in " ".join(results.decisions)
    assert "count as missing" not in " ".join(results.decisions)
    for cells in (["NA", "red", "blue", "red"], ["n/a", "DE", "FR", "DE"]):
        with pytest.raises(TableError, match="column 'c': the value is missing"):
            prepare(column(*cells))
    used = table("d.csv", "c,v,group", "NA,1,p", "DE,NA,q", "FR,3,p", "NA,4,q")
    assert assemble(Upload((used,), group="group")).words("c").isna().sum() == 2
    arms = table("d.csv", "v,group", "1,None", "2,Drug", "3,None", "5,Drug")
    assert prepare(Upload((arms,), group="group")).x_name == "None"


def test_totals_are_left_out_or_kept():
    upload = Upload(
        (table("p.csv", "name,v", "x,1", "y,2", "z,3", "Total,6"), table("q.csv", "name,v", "x,4", "y,5.5"))
    )
    with pytest.raises(
        TableError,
        match=r"p.csv: row 5: 'Total' in this row looks like a total.* --totals \"leave out\" or --totals keep",
    ):
        prepare(upload)
    sizes = [len(prepare(replaced(upload, totals=t), cleaning=PLAIN).x) for t in ("leave out", "keep")]
    assert sizes == [3, 4]


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["x", "y", "Subtotal", "z", "w", "Subtotal", "Total"], (4, 7, 8)),
        (["Total", "x", "y", "z"], (2,)),
        (["x", "y", "z", "Mean", "SD", "Min", "Max"], (5, 6, 7, 8)),
        (["x", "y", "z", "Total (n=3)"], (5,)),
        (["partial", "total"] * 20, ()),
        (["total"] * 3, ()),
    ],
)
def test_totals_are_found_anywhere_but_a_common_word_is_a_value(names, rows):
    p = table("p.csv", "name,v", *(f"{name},{i}.5" for i, name in enumerate(names)))
    q = table("q.csv", "name,v", *(f"{'xyz'[i]},{i}.5" for i in range(3)))
    assert assemble(Upload((p, q))).readings.totals.get(0, ()) == rows


def test_identifiers_are_found_by_what_they_hold():
    rows = [f"{i * 7 % 20 + 100},{i:05},{i % 3}.5,{'ab'[i % 2]}" for i in range(20)]
    found = check_identifiers(assemble(Upload((table("d.csv", "entry,code,v,group", *rows),), group="group")))
    assert [(one.column, one.usable) for one in found] == [("entry", True), ("code", False)]
    twice = [f"{i // 2:05},{i % 3}.5,{'ab'[i % 2]}" for i in range(20)]
    (code,) = check_identifiers(assemble(Upload((table("d.csv", "code,v,group", *twice),), group="group")))
    assert (code.column, code.units, code.in_both, code.why) == ("code", 10, 10, "")


def test_units_reach_the_answer_and_the_learner():
    p = table("p.csv", "mass", "1 kg", "2 kg", "4 kg")
    data = prepare(Upload((p, table("q.csv", "mass", "5 kg", "6 kg", "9 kg"))))
    assert differences(data)[0].unit == "kg"
    encoding = Encoding.from_json(data.encoding.to_json())
    assert encoding == data.encoding
    grams = Upload((table("p.csv", "mass", "100 g", "200 g"), table("q.csv", "mass", "5 g", "6 g")))
    with pytest.raises(TableError, match="'mass' is in g here, and the learner was trained with kg"):
        prepare(grams, encoding=encoding)


def test_workbook_numbers_do_not_depend_on_marks_elsewhere():
    openpyxl, io = pytest.importorskip("openpyxl"), __import__("io")
    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in (["a", "b"], [8.654, "5,5"], [1234.5, "7,25"], [7.0, "1,5"]):
        book.active.append(row)
    book.save(stream)
    read = read_table("d.xlsx", stream.getvalue())
    assert read.numbers("a").tolist() == [8.654, 1234.5, 7] and read.numbers("b").tolist() == [5.5, 7.25, 1.5]


def test_the_report_repeats_the_answers(tmp_path, capsys):
    """The shell refuses until it is answered, and the code in the report has the answers."""
    for name, cells in (("p", ["8.654", "7.111", "5,5", "4"]), ("q", ["8.561", "9.222", "7.333", "4"])):
        (tmp_path / f"{name}.csv").write_text("a;w\n" + "".join(f"{cell};{i:02}\n" for i, cell in enumerate(cells)))
    files = [str(tmp_path / f"{name}.csv") for name in "pq"]
    assert main(["test", *files, "--method", "MMD-M", "--permutations", "19"]) == 2
    assert "--decimal" in capsys.readouterr().err
    report = tmp_path / "r.html"
    answers = ["--decimal", ",", "--read-as", "w=numbers"]
    command = ["test", *files, "--method", "MMD-M", "--permutations", "19", *answers, "--report", str(report)]
    assert main(command) == 0 and "8654" in capsys.readouterr().out
    html = report.read_text(encoding="utf-8")
    assert "How cells were read" in html and "--decimal ," in html and "--read-as w=numbers" in html
    source = DataSource(tuple(files), decimal=",", read_as={"w": "numbers"}, totals="keep")
    assert "--totals keep" in as_command(source, Cleaning(), m2st.Plan("MMD-M"))
    assert "decimal=',', read_as={'w': 'numbers'}, totals='keep'" in as_python(source, Cleaning(), m2st.Plan("MMD-M"))
    assert source.upload().digest != DataSource(tuple(files)).upload().digest


@pytest.mark.parametrize("answers", [{"decimal": ";"}, {"totals": "drop"}, {"read_as": {"c": "text"}}])
def test_answers_that_no_question_has_are_refused(answers):
    with pytest.raises(TableError, match="must be one of"):
        replaced(column("1", "2"), **answers)
    with pytest.raises(TableError, match="no column 'z'"):
        assemble(replaced(column("1", "2"), read_as={"z": "words"}))


def test_numbers_with_many_decimals_are_read_as_all_others():
    """Most cells that software writes take a short cut, which must not change what they are."""
    draw, forms = random.Random(0), 0
    for _ in range(3_000):
        whole = draw.choice(["0", "1", "12", "123", "1234", "01", "31", "20240131", str(draw.randrange(10**9))])
        decimals = "".join(draw.choices("0123456789", k=draw.randrange(3, 9)))
        text = f"{draw.choice(['', '-', '+'])}{whole}.{decimals}{draw.choice(['', '', 'e5', 'E-07', 'e+99', 'e100'])}"
        if grammar.MANY_DECIMALS.fullmatch(text) and not grammar.DATE_FORMS.fullmatch(text):
            forms += 1
            assert repr(grammar.read_cell(text)) == repr(grammar._number(text)), text
    assert forms > 500


def test_a_wide_table_is_read_column_by_column_as_a_narrow_one():
    """Columns with few rows are read without pandas, long ones with it: both give the same numbers and forms."""
    texts = pd.Series([*["1.5", "-2", "7,25", "", "8.654", "1e-3", "dog", "10 %"] * 3, None, "3"], dtype="str")
    many = pd.concat([texts] * 200, ignore_index=True)
    assert len(many) > columns.FEW_CELLS
    short, long = (columns.Profile("a", ["a.csv"], [cells]) for cells in (texts, many))
    assert np.array_equal(long.numbers(["."])[: len(texts)], short.numbers(["."]), equal_nan=True)
    assert np.array_equal(long.forms[: len(texts)], short.forms) and long.parsed == short.parsed
