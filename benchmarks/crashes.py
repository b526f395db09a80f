"""What sudden ends, a full disk, a read-only store, two owners and a jumping clock do to a store: one line each.

Owners are forked from this process, which has loaded everything and computed nothing, so that many of them can be
killed in little time. A full disk and a read-only store are real ones, in a small file system in memory. That needs the
right to mount.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from m2st_core.__main__ import main as shell
from m2st_core.sweeps.executors import InlineExecutor, PoolExecutor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.sweep import run_sweep, warm_up

SPEC = SweepSpec(
    methods=("MMD-M", "Meta-WiTS"), m_te=(10, 20), n_tasks=(4,), rows_per_task=8, m_tr=(8,), repeats=8, tests=4,
    n_permutations=39,
)  # fmt: skip
DAY = 86_400.0
PATIENCE = 600.0  # seconds that an owner may take to finish, on a machine that is busy with other work
SMALL_DISK = "300k"


def fork(work: Callable[[], None], output: Path | None = None) -> int:
    """Do some work in a process of its own; return its number. What it says goes to a file."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setpgid(0, 0)
        with contextlib.ExitStack() as stack:
            said = stack.enter_context(open(output or os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(said))
            stack.enter_context(contextlib.redirect_stderr(said))
            try:
                work()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0) if not isinstance(end.code, str) else 1
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(code)


def finish(process: int, seconds: float = PATIENCE) -> int:
    """Wait for a process; return its exit code, and −9 if it had to be killed."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def own(home: Path, spec: SweepSpec, ahead: float = 0.0) -> None:
    """Compute a sweep, with a clock that is so many seconds ahead."""
    if ahead:
        now = time.time
        time.time = lambda: now() + ahead
    run_sweep(spec, Store(home), InlineExecutor())


def reference(spec: SweepSpec) -> list[str]:
    """The rows of a sweep that nothing disturbed, without their times."""
    with tempfile.TemporaryDirectory() as home:
        if code := finish(fork(lambda: own(Path(home), spec))):
            raise RuntimeError(f"the reference could not be computed: exit code {code}")
        return rows(Path(home), spec)


def rows(home: Path, spec: SweepSpec) -> list[str]:
    """The rows of a sweep in a store, without their times."""
    table = Store(home).rows(spec).drop(columns="seconds", errors="ignore")
    return table.to_csv(index=False).splitlines()[1:]


def compared(home: Path, *specs: SweepSpec) -> str:
    """How the store differs from an undisturbed one: rows that are lost, doubled or different, and damage."""
    found = [rows(home, spec) for spec in specs]
    pairs = list(zip([reference(spec) for spec in specs], found, strict=True))
    lost = sum(max(len(before) - len(after), 0) for before, after in pairs)
    wrong = sum(a != b for before, after in pairs for a, b in zip(before, after, strict=False))
    with contextlib.closing(sqlite3.connect(home / "store.sqlite")) as db:
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]
        doubled = db.execute("SELECT count(*) - count(DISTINCT key) FROM cells").fetchone()[0]
    return f"{sum(map(len, found))} rows: {lost} lost, {doubled} doubled, {wrong} different; the store is {whole}"


def kills(count: int, seconds: float, chance: random.Random) -> str:
    """Kill owners at random moments; each successor goes on, and a finished sweep is followed by the next."""
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        home, specs, busy = Path(folder), [SPEC], 0
        while busy < count and time.monotonic() < ends:
            process = fork(lambda: own(home, specs[-1]))
            code = finish(process, chance.uniform(0.03, 0.6))
            if code == 0:
                specs.append(SPEC.with_(seed=len(specs)))
            elif code != -signal.SIGKILL:
                return f"an owner ended with {code}"
            else:
                busy += 1
        began = time.monotonic()
        if code := finish(fork(lambda: own(home, specs[-1]))):
            return f"the last owner ended with {code}"
        took = time.monotonic() - began
        temporary = Store(home).collect(orphans=True)
        return (
            f"{busy} owners killed in {len(specs)} sweeps; {compared(home, *specs)}; {temporary[2]} unfinished "
            f"learners removed; the last owner took {took:.1f} s"
        )


def kill_workers(count: int, seconds: float, chance: random.Random) -> str:
    """Kill workers of a pool at random moments. A cell that loses three workers fails, and is computed when resumed."""
    with tempfile.TemporaryDirectory() as folder:
        home, spec, killed, resumed = Path(folder), SPEC.with_(repeats=40), 0, 0
        executor = PoolExecutor(2)
        warm_up(executor)
        ends, due = time.monotonic() + seconds, time.monotonic() + chance.uniform(0.2, 2)

        def kill(at: object) -> None:
            nonlocal killed, due
            workers = list(executor._pool._processes or {})
            if killed < count and workers and due < time.monotonic() < ends:
                with contextlib.suppress(ProcessLookupError):  # it may have ended with one killed before
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    killed, due = killed + 1, time.monotonic() + chance.uniform(0.5, 3)

        while True:
            try:
                run_sweep(spec, Store(home), executor, progress=kill)
                break
            except RuntimeError:
                resumed += 1
                if resumed > count:
                    raise
        executor.close()
        return f"{killed} workers killed, {resumed} times resumed; {compared(home, spec)}"


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of its own; an OSError without the right to mount."""
    place = Path(tempfile.mkdtemp())
    try:
        mount("-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place))
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def mount(*words: str) -> None:
    """Mount something; an OSError if that is not allowed."""
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


def shell_says(home: Path, *words: str) -> tuple[int, str]:
    """The exit code of a command, and the last line it wrote."""
    output = Path(tempfile.mkstemp()[1])

    def run() -> None:
        os.environ["M2ST_HOME"] = str(home)
        sys.exit(shell(list(words)))

    code = finish(fork(run, output))
    text = output.read_text(encoding="utf-8").strip()
    output.unlink()
    return code, "a traceback" if "Traceback" in text else text.rpartition("\n")[2][-160:]


def disk() -> Iterator[str]:
    """A disk that becomes full, gets room again, and then cannot be written."""
    try:
        with small_disk() as home, tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(SPEC.to_toml())
            file.flush()
            command = ("sweep", file.name, "--executor", "inline")
            code, sentence = shell_says(home, *command)
            there = len(rows(home, SPEC))
            mount("-o", "remount,size=50m", str(home))
            again, _ = shell_says(home, *command)
            found = compared(home, SPEC)
            yield f"full disk: exit code {code} after {there} rows: “{sentence}”; with room again {again}: {found}"
            mount("-o", "remount,ro", str(home))
            listed, _ = shell_says(home, "runs", "list")
            code, sentence = shell_says(home, *command)
            there = len(rows(home, SPEC))
            yield f"read-only store: {there} rows are read, runs list ends with {listed}, a sweep {code}: “{sentence}”"
    except OSError as error:
        yield f"full disk, read-only store: not tried, as no file system could be mounted ({error})"


def two_owners() -> str:
    """Two owners of one sweep at once."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        Store(home)
        codes = [finish(process) for process in [fork(lambda: own(home, SPEC)) for _ in range(2)]]
        return f"two owners: exit codes {codes}; {compared(home, SPEC)}"


def clock() -> str:
    """Owners whose clocks are a day ahead and a day behind are killed; one with the right clock goes on."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for ahead in (DAY, -DAY, 3600.0):
            finish(fork(partial(own, home, SPEC, ahead)), 0.4)
        both = [fork(partial(own, home, SPEC, ahead)) for ahead in (0.0, -3600.0)]
        began = time.monotonic()
        codes = [finish(process) for process in both]
        found = compared(home, SPEC)
        return f"clock jumps: exit codes {codes} in {time.monotonic() - began:.1f} s; {found}"


def main(arguments: Sequence[str] = ()) -> None:
    """Do everything, and print one line each."""
    parser = argparse.ArgumentParser(prog="m2st_core bench crashes", description=__doc__)
    parser.add_argument("--kills", type=int, default=90, help="owners to kill")
    parser.add_argument("--workers", type=int, default=10, help="workers of a pool to kill")
    parser.add_argument("--seconds", type=float, default=90.0, help="of kills of owners, and of workers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    print(f"- {two_owners()}", flush=True)
    print(f"- {clock()}", flush=True)
    for line in disk():
        print(f"- {line}", flush=True)
    print(f"- kills: {kills(options.kills, options.seconds, chance)}", flush=True)
    print(f"- kills of workers: {kill_workers(options.workers, options.seconds, chance)}", flush=True)
