"""ZIP archives: tables in, or one sentence."""

import io
import struct
import zipfile

import pytest

from m2st_core.data.tables.files import read_table, read_tables
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits

CSV = b"a,group\n1,x\n2,x\n3,y\n4,y\n"


def pack(members, how=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def with_flag(data, flag):
    """The same archive whose first directory entry says that it is encrypted."""
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + struct.pack("<H", flag) + data[at + 2 :]


def with_declared_size(data, size):
    """The same archive, whose directory lies about the size of its first file."""
    at = data.index(b"PK\x01\x02") + 24
    return data[:at] + struct.pack("<I", size) + data[at + 4 :]


def test_tables_come_out_by_name_and_clutter_stays():
    data = pack(
        {
            "a/north.csv": CSV,
            "south.tsv": CSV.replace(b",", b"\t"),
            "__MACOSX/x.csv": b"\0",
            ".x.csv": b"\0",
            "readme.md": b"x",
        }
    )
    tables = read_tables("history.zip", data)
    assert [table.name for table in tables] == ["history.zip/a/north.csv", "history.zip/south.tsv"]
    assert [table.stem for table in tables] == ["north", "south"]
    assert all(table.numbers("a").tolist() == [1, 2, 3, 4] for table in tables)
    assert len(read_tables("one.csv", CSV)) == 1


BAD = {
    "bomb": (pack({"a.csv": bytes(80 * 2**20)}), "unpacks to more than 60 MB"),
    "many small bombs": (pack({f"{i}.csv": bytes(2**20) for i in range(61)}), "unpacks to more than 60 MB"),
    "a bomb that lies": (with_declared_size(pack({"a.csv": bytes(80 * 2**20)}), 100), "damaged"),
    "outside": (pack({"../a.csv": CSV}), "'../a.csv' points outside"),
    "deep outside": (pack({"x/../../a.csv": CSV}), "points outside"),
    "backslashes outside": (pack({"x\\..\\..\\a.csv": CSV}), "points outside"),
    "absolute": (pack({"/etc/a.csv": CSV}), "points outside"),
    "a drive": (pack({"C:\\a.csv": CSV}), "points outside"),
    "nested": (pack({"a.csv": CSV, "more.zip": pack({"b.csv": CSV})}), "more.zip is itself an archive"),
    "nested and renamed": (pack({"b.csv": pack({"b.csv": CSV})}), "b.csv is itself an archive"),
    "encrypted": (with_flag(pack({"a.csv": CSV}), 1), "a.csv is locked by a password"),
    "too many": (pack({f"{i}.csv": CSV for i in range(401)}), "holds more than 400 files"),
    "far too many": (pack({f"{i}.x": b"" for i in range(2_000)}), "more than 400 files"),
    "empty": (pack({}), "no table"),
    "only clutter": (pack({"readme.md": b"x"}), "no table"),
    "cut": (pack({"a.csv": CSV * 100})[:-40], "damaged"),
    "a bad table inside": (
        pack({"good.csv": CSV, "bad.csv": b"a,b\n1,2,3\n"}),
        "history.zip/bad.csv: row 2 has 3 cells",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_archives_get_one_sentence(name):
    data, message = BAD[name]
    with pytest.raises(TableError) as caught:
        read_tables("history.zip", data)
    sentence = str(caught.value)
    assert (
        message in sentence and sentence.startswith("history.zip") and "\n" not in sentence and sentence.endswith(".")
    )


def test_an_archive_is_no_single_table_and_limits_hold():
    with pytest.raises(TableError, match="this is a ZIP archive, not a table"):
        read_table("p.csv", pack({"a.csv": CSV}))
    with pytest.raises(TableError, match="more than 2 files"):
        read_tables("history.zip", pack({f"{i}.csv": CSV for i in range(3)}), Limits(tasks=1))
    with pytest.raises(TableError, match="its tables hold more than 20 cells"):
        read_tables("history.zip", pack({f"{i}.csv": CSV for i in range(3)}), Limits(cells=20))
