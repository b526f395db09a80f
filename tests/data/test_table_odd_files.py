"""Odd files, as people have them and as attackers make them: no traceback, no wait, no number misread in silence."""

import csv
import io
import re
import resource
import struct
import sys
import time
import zipfile

import numpy as np
import pytest

from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.files import read_tables
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits
from m2st_core.data.tables.upload import Upload
from m2st_core.sweeps.spec import SpecError, SweepSpec

MOST_SECONDS = 10  # of the processor
ROWS = 6
WORDS = None  # the writer meant words, codes or dates
MEANT = {  # cells, and the numbers that their writer meant; NaN for none
    "points": (["1.5", "2.25", "-3", "4", "0.5", "1e-3"], [1.5, 2.25, -3, 4, 0.5, 1e-3]),
    "commas": (["1,5", "2,25", "-3", "4", "0,5", "7,125"], [1.5, 2.25, -3, 4, 0.5, 7.125]),
    "three decimals": (["8.654", "7.111", "9.222"] * 2, [8.654, 7.111, 9.222] * 2),
    "thousands by points": (["8.654", "7.111", "9.222"] * 2, [8654, 7111, 9222] * 2),
    "thousands by commas": (["8,654", "7,111", "9,222"] * 2, [8654, 7111, 9222] * 2),
    "three decimals by commas": (["8,654", "7,111", "9,222"] * 2, [8.654, 7.111, 9.222] * 2),
    "millions": (["1,234,567", "2,345", "12", "7", "8", "9"], [1234567, 2345, 12, 7, 8, 9]),
    "millions by points": (["1.234.567", "2.345", "12", "7", "8", "9"], [1234567, 2345, 12, 7, 8, 9]),
    "a comma among points": (["8.654", "5,5", "9.222"] * 2, [8.654, 5.5, 9.222] * 2),
    "prices": (["1.234,50", "7,00", "9.222", "12,25", "5", "0,99"], [1234.5, 7, 9222, 12.25, 5, 0.99]),
    "spaces": (["1 234,5", "7 000", "9", "12,25", "5", "0,99"], [1234.5, 7000, 9, 12.25, 5, 0.99]),
    "apostrophes": (["1'234.5", "7’000", "9", "12.25", "5", "0.99"], [1234.5, 7000, 9, 12.25, 5, 0.99]),
    "percent": (["10%", "20%", "5.5%", "7 %", "1%", "2%"], [10, 20, 5.5, 7, 1, 2]),
    "percent and shares": (["10%", "0.2", "5.5%", "7 %", "1%", "2%"], [0.1, 0.2, 0.055, 0.07, 0.01, 0.02]),
    "dollars": (["$10", "$4.50", "$1,234.00", "$7", "$8", "$9"], [10, 4.5, 1234, 7, 8, 9]),
    "two currencies": (["$10", "€4.50", "$12", "$7", "$8", "$9"], WORDS),
    "codes of currency": (["USD 10", "USD 4.50", "USD 12", "USD 7", "USD 8", "USD 9"], [10, 4.5, 12, 7, 8, 9]),
    "kilograms": (["1 kg", "2kg", "3.5 kg", "4 kg", "5 kg", "6 kg"], [1, 2, 3.5, 4, 5, 6]),
    "two units": (["1 kg", "200 g", "3.5 kg", "4 kg", "5 kg", "6 kg"], [1, 0.2, 3.5, 4, 5, 6]),
    "a unit that is lacking": (["1 kg", "200", "3.5 kg", "4 kg", "5 kg", "6 kg"], [1, 0.2, 3.5, 4, 5, 6]),
    "micro": (["1 µg", "2 μg", "3 µg", "4 µg", "5 µg", "6 µg"], [1, 2, 3, 4, 5, 6]),
    "minus signs": (["–1", "−2", "‐3", "-4", "5", "6.5"], [-1, -2, -3, -4, 5, 6.5]),
    "postcodes": (["01234", "12345", "00501", "99999", "01234", "12345"], WORDS),
    "numbers of rows": (["001", "002", "003", "004", "005", "006"], WORDS),
    "codes of many lengths": (["0123", "45", "00678", "9", "0123", "45"], WORDS),
    "plates": (["1E10", "2E05", "1E10", "3E07", "1E10", "2E05"], WORDS),
    "plates and wells": (["1E10", "2A05", "1E10", "3C07", "1E10", "2A05"], WORDS),
    "wells": (["12A", "3B", "12A", "3B", "4C", "4C"], WORDS),
    "cells per ml": (["1E6", "5E5", "2.5E6", "100000", "7e5", "3E6"], [1e6, 5e5, 2.5e6, 1e5, 7e5, 3e6]),
    "compact dates": (["20240131", "20240229", "20231224", "20240101", "20240102", "20240103"], WORDS),
    "days and months": (["01.02", "15.03", "31.12", "24.12", "06.01", "03.10"], WORDS),
    "dates": (["2024-01-31", "2024-02-01", "2024-02-02", "2024-02-03", "2024-02-04", "2024-02-05"], WORDS),
    "German dates": (["31.1.2024", "1.2.2024", "2.2.2024", "3.2.2024", "4.2.2024", "5.2.2024"], WORDS),
    "times": (["10:30", "11:45", "9:15", "8:00", "7:30", "12:00"], WORDS),
    "days of one month": (["12 Jan", "13 Jan", "14 Jan", "15 Jan", "16 Jan", "17 Jan"], WORDS),
    "bounds": (["<0.1", "0.5", "0.7", "<0.1", "0.9", "1.1"], [np.nan, 0.5, 0.7, np.nan, 0.9, 1.1]),
    "infinite": (["inf", "1", "2", "-inf", "3", "4.5"], [np.nan, 1, 2, np.nan, 3, 4.5]),
    "errors": (["#DIV/0!", "1", "2", "#VALUE!", "3", "4.5"], [np.nan, 1, 2, np.nan, 3, 4.5]),
    "overflow": (["1e400", "1", "2", "9" * 400, "3", "4.5"], [np.nan, 1, 2, np.nan, 3, 4.5]),
    "a total": (["1", "2", "3", "4.5", "5", "Total"], [1, 2, 3, 4.5, 5, np.nan]),
    "countries": (["NA", "DE", "FR", "NA", "DE", "FR"], WORDS),
    "severity": (["None", "Mild", "Severe", "None", "Mild", "Mild"], WORDS),
    "fractions": (["1/2", "3/4", "1/2", "3/4", "1/4", "1/2"], WORDS),
    "ranges": (["1-2", "3-4", "1-2", "3-4", "5-6", "1-2"], WORDS),
    "long identifiers": ([str(2**60 + i) for i in range(6)], WORDS),
    "Indian lakhs": (["1,23,456", "2,34,567", "7"] * 2, [123456, 234567, 7] * 2),
    "accounts": (["(10)", "20", "30", "(40)", "50", "60.5"], [-10, 20, 30, -40, 50, 60.5]),
    "Arabic digits": (["١", "٢", "٣", "٤", "٥", "٦"], [1, 2, 3, 4, 5, 6]),
    "versions": (["1.2.3", "1.2.4", "1.2.3", "1.3.0", "1.2.3", "1.2.4"], WORDS),
    "phones": (["+49 30 1234", "+49 40 5678", "+49 30 1234", "030/123", "1", "2"], WORDS),
    "hexadecimal": (["0x1F", "0xA0", "0x1F", "0x10", "0xA0", "0x1F"], WORDS),
    "underscores": (["1_000", "2_000", "3_000", "1_000", "2_000", "1_000"], [1000, 2000, 3000, 1000, 2000, 1000]),
    "words": (["red", "blue", "red", "blue", "red", "blue"], WORDS),
    "yes and 1": (["yes", "1", "no", "0", "yes", "no"], WORDS),
}  # fmt: skip
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t"}


def text_file(cells, separator):
    """A file as a spreadsheet writes it: the cells, a column of numbers and the group."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator)
    writer.writerow(["c", "v", "group"])
    writer.writerows([cell, i, "pq"[i % 2]] for i, cell in enumerate(cells))
    return stream.getvalue().encode()


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("name", MEANT)
def test_no_number_is_misread_in_silence(name, separator):
    """A number comes out as its writer meant it, or the column is named in a note, or a sentence asks or refuses."""
    cells, meant = MEANT[name]
    (table,) = read_tables("d.csv", text_file(cells, SEPARATORS[separator]))
    upload = Upload((table,), group="group")
    for missing in ("refuse", "drop rows"):
        try:
            data = prepare(upload, cleaning=Cleaning(missing, "none"))
        except TableError as error:
            assert "\n" not in str(error) and ("'c'" in str(error) or "row 7" in str(error))
            continue
        noted = [note for note in data.decisions if "'c'" in note]
        if "c" not in data.features:
            assert noted, "words, categories and what is set aside are said"
        elif meant is None:
            assert noted, data.decisions
        else:
            kept = np.argsort(np.concatenate(data.rows))
            rows = np.sort(np.concatenate(data.rows)) - 2
            values = np.concatenate([data.x, data.y])[kept, data.features.index("c")]
            assert noted or np.array_equal(values, np.array(meant)[rows])


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRINGS = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"


def pack(parts, how=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    return stream.getvalue()


def workbook(sheet="", strings="", rows=(["a", "g"], [1, "p"], [2, "p"], [3, "q"], [4, "q"])):
    """A workbook of openpyxl's with this XML in its sheet or as its shared strings."""
    openpyxl = pytest.importorskip("openpyxl")
    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(stream)
    with zipfile.ZipFile(stream) as parts:
        content = {name: parts.read(name).decode() for name in parts.namelist()}
    if sheet:
        name = "xl/worksheets/sheet1.xml"
        content[name] = content[name].replace("</sheetData>", sheet + "</sheetData>")
    if strings:
        content["xl/sharedStrings.xml"] = f'<sst xmlns="{MAIN}">{strings}</sst>'
        kind = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{STRINGS}"/></Types>'
        content["[Content_Types].xml"] = content["[Content_Types].xml"].replace("</Types>", kind)
    return pack(content)


def without_name(data):
    """The same archive, whose only member has no name: the name's one letter is now an extra field."""
    for signature, at in ((b"PK\x03\x04", 26), (b"PK\x01\x02", 28)):
        start = data.index(signature) + at
        data = data[:start] + struct.pack("<HH", 0, 1) + data[start + 4 :]
    return data


def with_version(data, version):
    at = data.index(b"PK\x01\x02") + 6
    return data[:at] + struct.pack("<H", version) + data[at + 2 :]


HOSTILE = {
    "many empty shared strings": lambda: workbook(strings="<si/>" * 700_000),
    "many shared strings": lambda: workbook(strings="".join(f"<si><t>{i}</t></si>" for i in range(250_000))),
    "many cells": lambda: workbook(
        sheet="".join(f"<row>{'<c><v>1</v></c>' * 1_000}</row>" for _ in range(400)),
    ),
    "many rows": lambda: workbook(sheet="<row><c><v>1</v></c><c><v>2</v></c></row>" * 150_000),
    "a workbook of zip version 15": lambda: with_version(workbook(), 150),
    "an archive of zip version 15": lambda: with_version(pack({"a.csv": "a\n1\n"}), 150),
    "a member without a name": lambda: without_name(pack({"x": "a,g\n1,p\n"})),
    "a workbook without a sheet": lambda: pack({"xl/workbook.xml": "<x/>"}),
    "a workbook that is no XML": lambda: pack({"xl/workbook.xml": "x", "[Content_Types].xml": "x"}),
    "half an archive": lambda: pack({"a.csv": "a\n1\n" * 99})[:-30],
}


@pytest.fixture(scope="module", autouse=True)
def memory():
    yield
    if sys.platform == "linux":
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**21, "kB: 1 GB beside what the tests hold"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_time_with_a_sentence(name):
    data = HOSTILE[name]()
    began = time.thread_time()
    with pytest.raises(TableError) as caught:
        read_tables("x.xlsx", data, Limits(seconds=1))
    assert time.thread_time() - began < MOST_SECONDS / 4, "with a bound of 1 second in place of 8"
    assert str(caught.value).startswith("x.xlsx") and str(caught.value).endswith(".")
    assert not re.search(r"[a-z](Error|File|Exception)\b", str(caught.value)), "no name of Python's errors"
    assert not name.startswith("many ") or "damaged" not in str(caught.value), "the time was over, and that is said"


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 30_000 + " = 1",
        "".join(f"a{'.a' * i} = 1\n" for i in range(300)),
        "methods = " + "[" * 9_000 + "]" * 9_000,
        'methods = [["MMD-M"]]',
        "task = [[1]]",
        "m_te = [[50]]",
        "settings = [[1]]",
        "closeness = [[0.3]]",
        "[[methods]]\na = 1",
        "seed = {a = 1}",
    ],
)
def test_odd_sweeps_end_in_time_with_a_sentence(text):
    began = time.thread_time()
    with pytest.raises(SpecError):
        SweepSpec.from_toml(text)
    assert time.thread_time() - began < MOST_SECONDS / 2


def test_there_are_enough_of_them():
    assert len(MEANT) * len(SEPARATORS) + len(HOSTILE) + 10 >= 150
