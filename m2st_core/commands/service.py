"""``app``, ``ready`` and ``store``: the dashboard, its health and its backups; and the files that commands write."""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

from m2st_core.sweeps.database import restore_store
from m2st_core.sweeps.store import Store

LEAST_DISK = 200 * 2**20  # bytes that must be free to compute and store results
HEALTH = "/_stcore/health"
PATIENCE = 5  # seconds


def entry_point(served: bool = False, package: Path = Path(__file__).parents[1]) -> Path:
    """The script that starts the dashboard: in the repository next to the package; installed, in m2st_app."""
    name = "serve.py" if served else "app.py"
    for folder in (package.parent, package.parent / "m2st_app"):
        if (folder / name).is_file() and (folder / "pages").is_dir():
            return folder / name
    raise ValueError(f"The dashboard's {name} is not next to {package}. Install again: pip install .")


def run_app(options: argparse.Namespace) -> None:
    """Replace this process by the dashboard's server, so that a service manager's signals reach it."""
    flags = [
        f"--server.{name}={value}" for name, value in (("port", options.port), ("address", options.address)) if value
    ]
    script = entry_point(options.served)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "streamlit", "run", str(script), *flags])


def run_ready(options: argparse.Namespace) -> None:
    """Check that results can be stored and, with an address, that a dashboard answers there."""
    store = Store()
    store.database.check_writable()
    free = shutil.disk_usage(store.home).free
    if free < LEAST_DISK:
        raise ValueError(f"The disk of {store.home} has only {free / 2**20:,.0f} MB free. Delete runs, or make room.")
    if options.url:
        address = options.url.rstrip("/") + HEALTH
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"The address must begin with http:// or https://. Got {options.url!r}.")
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - the user's own server
                if answer.status != 200:
                    raise OSError(0, f"it answers {answer.status}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            words = getattr(reason, "strerror", None) or (reason if isinstance(reason, str) else "no answer")
            raise ValueError(f"The dashboard does not answer at {address}: {words}.") from None
    print("ready")


def run_store(options: argparse.Namespace) -> None:
    """Back up the store into one file, or restore it."""
    if options.action == "backup":
        check_file(options.file)
        count = Store().database.back_up(Path(options.file))
        print(f"{count} learners and all results are in {options.file}.")
    else:
        home = restore_store(Path(options.file))
        print(f"The store {home} is as it was when {options.file} was made.")


def check_file(path: str | None) -> None:
    """Refuse a file that cannot be written, before its content is computed."""
    if path is None:
        return
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{path} cannot be written: it is a folder. Name a file in it.")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {file.parent}. Make it first.")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: writing is not allowed there.")


def check_folder(path: str) -> None:
    """Refuse a folder that cannot be made."""
    above = next(folder for folder in (Path(path).absolute(), *Path(path).absolute().parents) if folder.exists())
    if not above.is_dir():
        raise ValueError(f"{path} cannot be written: {above} is a file, not a folder.")
    if not os.access(above, os.W_OK):
        raise ValueError(f"{path} cannot be written: writing is not allowed in {above}.")


def write_whole(path: str, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a new file, which then replaces the old one; a ValueError if it cannot be written."""
    check_file(path)
    file = Path(path)
    new = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        write(new)
        new.replace(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or 'the disk refuses'}.") from None
    finally:
        new.unlink(missing_ok=True)
