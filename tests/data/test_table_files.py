"""Files as people have them: each is read, or gets one sentence with the file, the place and the remedy."""

import io
import zipfile

import numpy as np
import pytest

from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits

ROWS = [[1.5, 2], [-3, 1234.25], [0.125, 4]]


def said(table):
    return " ".join(table.notes)


def text(separator=",", mark=".", end="\n", header="height,weight"):
    lines = [header.replace(",", separator)] if header else []
    return end.join([*lines, *(separator.join(str(v).replace(".", mark) for v in row) for row in ROWS)]) + end


DIALECTS = {
    "comma": text().encode(),
    "semicolon and decimal comma": text(";", ",").encode(),
    "semicolon and point": text(";").encode(),
    "tab": text("\t").encode(),
    "tab and decimal comma": text("\t", ",").encode(),
    "pipe": text("|").encode(),
    "Excel's sep= line": b"sep=;\r\n" + text(";", ",", "\r\n").encode(),
    "Windows line ends": text(end="\r\n").encode(),
    "old Mac line ends": text(end="\r").encode(),
    "byte order mark": text().encode("utf-8-sig"),
    "UTF-16": text("\t").encode("utf-16"),
    "UTF-16 big-endian": b"\xfe\xff" + text("\t").encode("utf-16-be"),
    "quotes": b'"height","weight"\n"1.5","2"\n"-3","1234.25"\n"0.125","4"\n',
    "quoted decimal comma": b'"height","weight"\n"1,5","2"\n"-3","1234,25"\n"0,125","4"\n',
    "thousands": b'height,weight\n1.5,2\n-3,"1,234.25"\n0.125,4\n',
    "thousands with points": b"height;weight\n1,5;2\n-3;1.234,25\n0,125;4\n",
    "thousands with spaces": "height;weight\n1,5;2\n−3;1\u00a0234,25\n0,125;4\n".encode(),
    "Swiss thousands": b"height,weight\n1.5,2\n-3,1'234.25\n0.125,4\n",
    "spaces": b" height , weight \n 1.5 ,  2\n-3, 1234.25 \n.125,4\n",
    "trailing blank lines": text().encode() + b"\n\n  \n",
    "trailing blank columns": b"height,weight,,\n1.5,2,,\n-3,1234.25,,\n0.125,4,,\n,,,\n",
    "separators after the rows only": b"height;weight\n1,5;2;\n-3;1234,25;\n0,125;4;\n",
    "blank rows between": b"height,weight\n\n1.5,2\n,\n-3,1234.25\n0.125,4",
    "no end of the last line": text().encode().rstrip(),
    "exponents": b"height,weight\n15e-1,+2\n-3,1.23425E3\n1.25e-1,4\n",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gives_the_same_numbers(dialect):
    table = read_table("data.csv", DIALECTS[dialect])
    assert list(table.frame.columns) == ["height", "weight"] and table.named
    assert np.column_stack([table.numbers(name) for name in table.frame.columns]).tolist() == ROWS


@pytest.mark.parametrize(
    ("cells", "separator", "expected"),
    [
        (["1,234,567", "5,678"], ";", [1234567, 5678]),
        (["1.234.567,5", "5.678"], ";", [1234567.5, 5678]),
        (["0,123", "4"], "\t", [0.123, 4]),
    ],
)
def test_one_comma_is_read_by_what_surrounds_it(cells, separator, expected):
    data = f"a{separator}b\n" + "".join(f"{cell}{separator}x\n" for cell in cells)
    assert read_table("data.csv", data.encode()).numbers("a").tolist() == expected


def test_a_decimal_comma_in_one_column_speaks_for_the_others_but_not_against_them():
    table = read_table("data.csv", b"a;b;c\n0,5;1.234;2\n1,5;2.345;3.\n")
    assert [table.numbers(name).tolist() for name in "ac"] == [[0.5, 1.5], [2, 3]]
    table = read_table("data.csv", b"a;b;c\n0,5;1.234;2\n1,5;2.345;3\n")
    assert table.numbers("b").tolist() == [1234, 2345]


def test_latin_1_is_read_and_said():
    table = read_table("data.csv", "größe,preis €\n1,2\n".encode("cp1252"))
    assert list(table.frame.columns) == ["größe", "preis €"] and "Latin-1" in said(table)
    assert list(read_table("x.csv", b"a\x81,b\n1,2\n").frame.columns)[1] == "b"


@pytest.mark.parametrize(
    ("data", "names", "note"),
    [
        (b"1,2\n3,4\n", ["column 1", "column 2"], "no header"),
        (b"1\n2\n", ["column 1"], "no header"),
        (b"1,red\n2,blue\n3,red\n", ["column 1", "column 2"], "no header"),
        (b"2019,2020,name\n1,2,x\n3,4,y\n", ["2019", "2020", "name"], ""),
        (b"a,a,a\n1,2,3\n", ["a", "a (2)", "a (3)"], "Two columns are called 'a'"),
        (b"a,a,a (2)\n1,2,3\n", ["a", "a (3)", "a (2)"], "Two columns are called 'a'"),
        (b",a\n1,2\n", ["column 1", "a"], ""),
        (b'"two\nlines",b\n1,2\n', ["two lines", "b"], ""),
        (b"<b>x</b>,**y**\n1,2\n", ["<b>x</b>", "**y**"], ""),
        (b"a,b,\n1,2,3\n", ["a", "b", "column 3"], ""),
    ],
)
def test_names_are_clean_and_unique(data, names, note):
    table = read_table("data.csv", data)
    assert list(table.frame.columns) == names and note in said(table)


def test_rows_keep_their_numbers_in_the_file():
    table = read_table("data.csv", b'a,b\n\n1,2\n"two\nlines",3\n\n5,6\n')
    assert table.frame.index.tolist() == [3, 5, 7]


@pytest.mark.parametrize("cell", ["", "NA", "n/a", "NaN", "null", "None", "?", "-", ".", "#N/A", "  "])
def test_missing_cells_are_missing(cell):
    table = read_table("data.csv", f"a,b\n1,{cell}\n2,3\n".encode())
    assert table.words("b").isna().tolist() == [True, False]


def test_formulas_and_markup_stay_text():
    cells = ["=cmd|' /C calc'!A0", "<script>alert(1)</script>", "[x](javascript:y)", "@SUM(A1)"]
    table = read_table("data.csv", ("a\n" + "\n".join(cells)).encode())
    assert table.frame["a"].tolist() == cells


def test_short_rows_are_filled_and_said():
    table = read_table("data.csv", b"a,b,c\n1,2,3\n4,5\n")
    assert table.frame["c"].isna().tolist() == [False, True] and "row 3" in said(table)


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256))
BAD = {
    "nothing": (b"", "empty"),
    "white space": (b" \n\n\t\n", "empty"),
    "only separators": (b",,\n,,\n", "empty"),
    "only missing cells": (b"NA,-\n,?\n", "every cell is missing"),
    "only a mark": (b"\xef\xbb\xbf", "empty"),
    "header only": (b"a,b\n", "a header but no row"),
    "header and blank rows": (b"a,b\n,\n\n", "a header but no row"),
    "NUL bytes": (b"a,b\n1,2\n3,\x004\n", "row 3 holds a NUL byte"),
    "UTF-16 without its mark": ("a,b\n1,2\n".encode("utf-16-le"), "NUL byte, so this is not a text file, or UTF-16"),
    "damaged UTF-16": (b"\xff\xfea\x00,\x00b", "begins like UTF-16"),
    "a picture": (PNG, "not a text file"),
    "binary without NUL": (bytes(range(1, 256)) * 9, "control characters"),
    "an old Excel file": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "not a text file"),
    "a cut zip": (b"PK\x03\x04" + b"x" * 50, "damaged"),
    "a Parquet file": (b"PAR1" + b"x" * 50, "Save it as CSV"),
    "ragged": (b"a,b\n1,2\n3,4,5\n", "row 3 has 3 cells and the first row has 2"),
    "an open quotation mark": (b'a,b\n1,"2\n' + b"3,4\n" * 50_000, "quotation mark that is opened and never closed"),
    "a long line of cells": (b"1," * 2**20, "row 1 is 2,097,152 characters long"),
    "a long cell": (b"a\n" + b"x" * 200_000, "row 2 a cell is longer than 131,072"),
    "too many columns": (b"a," * 5_999 + b"a\n" + b"1," * 6_000, "6,000 columns, and 5,000"),
    "too many rows": (b"a\n" + b"1\n" * 1_001, "1,001 rows, and 1,000"),
    "too many bytes": (b"a\n" + b"12345678\n" * 40_000, "352 kB, and 293 kB"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_sentence(name):
    data, message = BAD[name]
    with pytest.raises(TableError) as caught:
        read_table("data.csv", data, Limits(rows=1_000, bytes=300_000 if "bytes" in name else 20 * 2**20))
    sentence = str(caught.value)
    assert message in sentence and sentence.startswith("data.csv:") and "\n" not in sentence and sentence.endswith(".")


def workbook(rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def test_workbooks():
    table = read_table("data.xlsx", workbook([["a", "b", "c"], [1.5, "red", None], [None, None, None], [2, "blue", 7]]))
    assert table.numbers("a").tolist() == [1.5, 2] and table.frame["b"].tolist() == ["red", "blue"]
    assert table.frame.index.tolist() == [2, 4] and table.frame["c"].isna().tolist() == [True, False]
    with pytest.raises(TableError, match="unpacks to"):
        read_table("data.xlsx", workbook([["a"], [1]]), Limits(unpacked=1000))
    with pytest.raises(TableError, match="row 1: there are 6 columns, and 5"):
        read_table("data.xlsx", workbook([["a"] * 6]), Limits(columns=5))


ENTITIES = "".join(f'<!ENTITY {new} "{f"&{old};" * 20}">' for old, new in zip("abcdef", "bcdefg", strict=True))
HOSTILE = {
    "a last row far away": (
        lambda sheet: sheet.replace('"3"', '"99999999"').replace("A3", "A99999999"),
        "mostly blank",
    ),
    "cells far to the right": (
        lambda s: s.replace(
            "</sheetData>", "".join(f'<row><c r="XFD{i}"/></row>' for i in range(4, 900)) + "</sheetData>"
        ),
        "mostly blank",
    ),
    "entities within entities": (
        lambda sheet: f'<!DOCTYPE x [<!ENTITY a "{"x" * 1000}">{ENTITIES}]>' + sheet.replace("<v>1</v>", "<v>&g;</v>"),
        "damaged",
    ),
    "half a sheet": (lambda sheet: sheet[: len(sheet) // 2], "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_workbooks_get_one_sentence(name):
    change, message = HOSTILE[name]
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook([["a"], [1], [2]]))) as book, zipfile.ZipFile(stream, "w") as changed:
        for part in book.namelist():
            content = book.read(part).decode()
            changed.writestr(part, change(content) if part.endswith("sheet1.xml") else content)
    with pytest.raises(TableError, match=message):
        read_table("data.xlsx", stream.getvalue())


def test_limits_come_from_the_environment():
    limits = Limits.from_environment({"M2ST_MOST_BYTES": "1048576", "M2ST_MOST_TASKS": "5"})
    assert limits.bytes == 2**20 and limits.tasks == 5 and "1 MB per file" in limits.words
    for value in ("many", "0", "-3"):
        with pytest.raises(ValueError, match="whole number"):
            Limits.from_environment({"M2ST_MOST_ROWS": value})
