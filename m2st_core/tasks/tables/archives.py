"""A ZIP of tables, unpacked in memory within bounds, or refused in one sentence."""

from __future__ import annotations

import io
import zipfile
import zlib

from m2st_core.tasks.tables.files import Table, read_table
from m2st_core.tasks.tables.limits import Limits, TableError

ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".xlsx")
PACKED = (".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".tgz")
CHUNK = 2**16
ENTRY = b"PK\x01\x02"  # begins every line of the archive's directory


def is_archive(data: bytes) -> bool:
    """Whether these bytes are a ZIP that is not an Excel workbook."""
    return data[:4] in (b"PK\x03\x04", b"PK\x05\x06") and b"xl/workbook.xml" not in data


def read_tables(name: str, data: bytes, limits: Limits | None = None) -> tuple[Table, ...]:
    """The tables in a file: all of a ZIP, else the one it is."""
    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    return _read_archive(name, data, limits) if is_archive(data) else (read_table(name, data, limits),)


def _read_archive(name: str, data: bytes, limits: Limits) -> tuple[Table, ...]:
    """Every table in the archive, each called by the archive's name and its own."""
    most = 2 * limits.tasks  # a task may be a pair of files
    if data.count(ENTRY) > 2 * most + 100:
        raise TableError(
            f"{name}: the archive holds more than {most:,} files. Bring fewer, or one file with all tasks."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [info for info in archive.infolist() if _wanted(name, info)]
            if not members:
                raise TableError(f"{name}: the archive holds no table. Put CSV files into it.")
            if len(members) > most:
                raise TableError(
                    f"{name}: the archive holds {len(members):,} files, and {most:,} is the most that is read. "
                    "Bring fewer, or one file with all tasks."
                )
            if sum(info.file_size for info in members) > limits.unpacked:
                raise _too_large(name, limits)
            tables, size, cells = [], 0, 0
            for info in members:
                content = _unpack(name, archive, info, limits.unpacked - size, limits)
                size += len(content)
                if content[:2] == b"PK" and is_archive(content):
                    raise TableError(f"{name}: {info.filename} is itself an archive. Unpack it and bring its files.")
                tables.append(read_table(f"{name}/{info.filename}", content, limits))
                cells += tables[-1].frame.size
                if cells > limits.cells:
                    raise TableError(f"{name}: its tables hold more than {limits.cells:,} cells. Bring fewer rows.")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise TableError(f"{name}: the archive is damaged ({type(error).__name__}). Pack the files again.") from None
    return tuple(tables)


def _wanted(name: str, info: zipfile.ZipInfo) -> bool:
    """Whether a member is a table; names that point outside, passwords and archives are refused."""
    path = info.filename.replace("\\", "/")
    if path.startswith("/") or path[1:2] == ":" or ".." in path.split("/"):
        raise TableError(f"{name}: {info.filename!r} points outside the archive. Pack the files again, by plain names.")
    if info.flag_bits & 1:
        raise TableError(f"{name}: {info.filename} is locked by a password. Pack the files again without one.")
    if path.lower().endswith(PACKED):
        raise TableError(f"{name}: {info.filename} is itself an archive. Unpack it and bring its files.")
    hidden = path.startswith("__MACOSX/") or path.split("/")[-1].startswith(".")
    return not info.is_dir() and not hidden and path.lower().endswith(ENDINGS)


def _unpack(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int, limits: Limits) -> bytes:
    """The bytes of one member; it stops as soon as there are more than may be left."""
    parts, size = [], 0
    with archive.open(info) as stream:
        while part := stream.read(CHUNK):
            parts.append(part)
            size += len(part)
            if size > left:
                raise _too_large(name, limits)
    return b"".join(parts)


def _too_large(name: str, limits: Limits) -> TableError:
    return TableError(
        f"{name}: the archive unpacks to more than {limits.unpacked / 2**20:,.0f} MB, the most that is read. "
        "Bring fewer or smaller files."
    )
