"""Length of the paths through the code: functions, plans, conversions, queries, types, modules and lines.

``python -m m2st_core bench house`` measures; ``--write`` also writes the table of docs/architecture.md.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import numpy as np

import m2st_core as m2st
from benchmarks.common import fill_page, markdown, parse
from m2st_core.types import DEFAULT_TEST

ROOT = Path(m2st.__file__).parent
DOCS = ROOT.parent / "docs" / "architecture.md"
Calls = Counter[CodeType]


@contextmanager
def traced_calls(on_event: Callable[[FrameType, str, Any], None] | None = None) -> Iterator[Calls]:
    """Count the calls of each function of the package; comprehensions, generator expressions and lambdas are left out.

    ``on_event`` gets every call and return of these functions, as ``sys.setprofile`` gives them.
    """
    calls: Calls = Counter()

    def profile(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event in ("call", "return") and code.co_filename.startswith(str(ROOT)) and "<" not in code.co_name:
            if event == "call":
                calls[code] += 1
            if on_event is not None:
                on_event(frame, event, value)

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def times_called(calls: Calls, name: str) -> int:
    """The number of calls of all functions of this name."""
    return sum(count for code, count in calls.items() if code.co_name == name)


def functions_of(method: str) -> tuple[int, int]:
    """The functions in one test of 60 + 60 rows, and how often it is planned."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 60, 3))
    m2st.two_sample_test(x, y, method)  # fills caches
    with traced_calls() as calls:
        m2st.two_sample_test(x, y, method)
    return len(calls), times_called(calls, "plan_test")


def upload() -> dict[str, float]:
    """Conversions and plans of one upload with related tasks, from files to its answer, and the check's seconds."""
    from m2st_core.analysis.plan import Plan, carry_out, check_plan
    from m2st_core.analysis.related import check_uploaded_tasks

    plan = Plan("Meta-FUSE", ("MMD-M",))
    data = m2st.prepare(m2st.EXAMPLES["diabetes"].load())
    carry_out(data, plan)  # fills caches
    with traced_calls() as calls:
        data = m2st.prepare(m2st.EXAMPLES["diabetes"].load())
        planned = check_plan(data, plan)
        carry_out(data, plan, tests=planned)
    check_uploaded_tasks(data)
    began = time.process_time()
    check_uploaded_tasks(data)
    seconds = time.process_time() - began
    return {
        "as_two_sample": times_called(calls, "as_two_sample"),
        "plan_test": times_called(calls, "plan_test") / (len(plan.methods) + 1),  # and the baseline beside them
        "seconds": seconds,
    }


def journey_types() -> set[str]:
    """Classes of the package whose instances go from a room to another in a test with Meta-MKL."""
    from m2st_core.data.synthetic import HDGM

    travelling: set[str] = set()

    def room(code: CodeType) -> str:
        return Path(code.co_filename).relative_to(ROOT).parts[0].removesuffix(".py")

    def on_event(frame: FrameType, event: str, value: Any) -> None:
        caller = frame.f_back
        if caller is None or not caller.f_code.co_filename.startswith(str(ROOT)):
            return
        if room(caller.f_code) == room(frame.f_code):
            return
        count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
        values = (
            [value] if event == "return" else [frame.f_locals.get(name) for name in frame.f_code.co_varnames[:count]]
        )
        travelling.update(type(value).__name__ for value in values if type(value).__module__.startswith("m2st_core."))

    x, y = HDGM().sample(20, seed=1)
    tasks = m2st.hdgm_related_tasks(n_tasks=3, rows=10)
    with traced_calls(on_event):
        m2st.two_sample_test(x, y, "Meta-MKL · tuned", related_tasks=tasks)
    return travelling


def rerun_of_power() -> tuple[int, int]:
    """SQL statements and hashes of ours in a rerun of Power in which nothing changed."""
    from streamlit.testing.v1 import AppTest

    statements, hashes = [0], [0]
    connect, sha256 = sqlite3.connect, hashlib.sha256

    def counting_connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(lambda _: statements.__setitem__(0, statements[0] + 1))
        return connection

    def counting_sha256(*args: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        hashes[0] += caller.startswith(str(ROOT))
        return sha256(*args, **options)

    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.dict(os.environ, {"M2ST_HOME": home}),
        mock.patch("sqlite3.connect", counting_connect),
        mock.patch("hashlib.sha256", counting_sha256),
    ):
        page = AppTest.from_file(str(ROOT.parent / "app.py"), default_timeout=120).run()
        page.switch_page("pages/power.py").run()
        page.run()
        statements[0], hashes[0] = 0, 0
        page.run()
        return statements[0], hashes[0]


def circles() -> list[str]:
    """Pairs of rooms or sub-rooms (folders of folders) that import each other."""
    modules = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")}

    def room_of(module: str) -> str:
        parts = module.removesuffix(".__init__").split(".")[1:]
        is_folder = f"m2st_core.{'.'.join(parts)}.__init__" in modules
        return "/".join(parts if is_folder or len(parts) == 1 else parts[:-1])

    edges = {
        (room_of(module), room_of(node.module))
        for module, path in modules.items()
        if path.parent != ROOT
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("m2st_core.")
    }
    return sorted(f"{room} ↔ {other}" for room, other in edges if room < other and (other, room) in edges)


def lines_of(folder: Path) -> tuple[int, int]:
    """Modules and lines of a folder."""
    paths = list(folder.rglob("*.py"))
    return len(paths), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print, and with --write put the table into docs/architecture.md."""
    options = parse(arguments, __doc__, write=False)
    one_kernel, planned = functions_of("MMD-M")
    default, _ = functions_of(DEFAULT_TEST)
    uploaded = upload()
    statements, hashes = rerun_of_power()
    modules, lines = lines_of(ROOT)
    types, in_circles = journey_types(), circles()
    rows = [
        ("functions of ours in one MMD-M test; in the default test", f"{one_kernel}; {default}", "≤ 60; ≤ 100"),
        ("times a test is planned: API; from an upload", f"{planned}; {uploaded['plan_test']:g}", "1; 1"),
        ("`as_two_sample` for one upload with related tasks", f"{uploaded['as_two_sample']}", "≤ 3"),
        ("`check_uploaded_tasks`, seconds of CPU (example diabetes)", f"{uploaded['seconds']:.2f}", "≤ 1"),
        ("SQL statements, hashes in an unchanged rerun of Power", f"{statements}, {hashes}", "≤ 3, ≤ 10"),
        ("own types that go from room to room with Meta-MKL", f"{len(types)}", "≤ 8"),
        (
            "modules; lines of m2st_core; of benchmarks",
            f"{modules}; {lines:,}; {lines_of(ROOT.parent / 'benchmarks')[1]:,}",
            "≤ 118; ≤ 25,000; ≤ 3,900",
        ),
        ("rooms or sub-rooms that import in a circle", f"{len(in_circles)} pairs" if in_circles else "0", "0"),
    ]
    table = markdown(["", "now", "to reach"], rows)
    print(table)
    print("types:", ", ".join(sorted(types)))
    print("circles:", ", ".join(in_circles) or "none")
    if options.write:
        DOCS.write_text(fill_page(DOCS.read_text(encoding="utf-8"), lambda name: table), encoding="utf-8")
