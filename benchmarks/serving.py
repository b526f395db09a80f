"""A served instance under load: real websocket sessions on loopback that switch pages and train.

Two sweeps run meanwhile. The table has what was measured, beside the goals. A session that fails is counted, and comes
back as a new one. ``--cycles`` tabs are opened and closed at the end.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from app import PAGES
from benchmarks.common import Page, parse
from benchmarks.pages import server

PATIENCE = 120.0
TTL = 15  # seconds after which the server ends a session whose tab is closed
LEAVE_SECONDS = TTL + 20.0  # until what a closed tab held is let go
PAUSES = (4.0, 12.0)  # seconds between two actions of a person
LONG = "lab_repeats=60&lab_tests=400"  # a sweep that outlasts the measurement
SHORT = "lab_repeats=1&lab_tests=10"
HOME = "home"
RUN = re.compile(rb"power\?run=([0-9a-f]{12})")
ALL_PAGES = [HOME, *(Path(path).stem for path in PAGES if "home" not in path)]


def memory(process: int) -> float:
    """Megabytes of a process, without its workers."""
    status = Path(f"/proc/{process}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+)", status)
    return int(resident[1]) / 1024 if resident else float("nan")


class Tab:
    """A browser tab without a browser: it speaks streamlit's protocol, and polls where the page asks for it."""

    def __init__(self, host: str) -> None:
        self.host, self.page, self.query = host, HOME, ""
        self.finished, self.closed = asyncio.Event(), False
        self.elements: list[Any] = []
        self.pages: dict[str, str] = {}
        self.errors: list[str] = []
        self.runs: list[str] = []  # ids that the server has sent
        self.timers: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Connect as a browser does, with the cookies that the first page brings."""
        cookies = await asyncio.to_thread(_first_cookies, self.host)
        self.socket = await websockets.connect(
            f"ws://{self.host}/_stcore/stream",
            subprotocols=[websockets.Subprotocol("streamlit")],
            max_size=None,
            ping_interval=None,
            additional_headers={"Cookie": cookies},
            origin=websockets.Origin(f"http://{self.host}"),
        )
        self.reader = asyncio.create_task(self._read())
        await self.run()

    async def run(self, button: str = "", fragment: str = "") -> float:
        """Run the page, perhaps by a click on a button. Return the seconds to the end of the run."""
        began, message = time.perf_counter(), BackMsg()
        state = message.rerun_script
        state.query_string, state.fragment_id = self.query, fragment
        state.page_name = "" if self.page == HOME else self.page
        state.page_script_hash = "" if fragment else self.pages.get(self.page, "")
        if button:
            state.widget_states.widgets.add(id=button).trigger_value = True
        if not fragment:
            self.finished.clear()
            for timer in self.timers.values():
                timer.cancel()
            self.timers, self.elements = {}, []
        await self.socket.send(message.SerializeToString())
        if not fragment:
            await asyncio.wait_for(self.finished.wait(), PATIENCE)
        if self.closed:
            raise ConnectionError("the server closed the connection")
        return time.perf_counter() - began

    async def switch(self, page: str, query: str = "") -> float:
        """Open another page. Return the seconds to its end."""
        self.page, self.query = page, query
        return await self.run()

    async def train(self, settings: str) -> str:
        """Start a sweep of the power page; return the id of its run, empty if it was refused."""
        before = set(self.runs)
        await self.switch("power", settings)
        buttons = [element.button for element in self.elements if element.WhichOneof("type") == "button"]
        await self.run(next(button.id for button in buttons if button.label.startswith(("Train", "Refine"))))
        await asyncio.sleep(3)
        await self.switch("history")
        return next((run for run in self.runs if run not in before), "")

    async def close(self) -> None:
        """Close the tab. If that fails, the server ends the session."""
        for timer in self.timers.values():
            timer.cancel()
        if hasattr(self, "reader"):
            self.reader.cancel()
            with suppress(Exception):
                await asyncio.wait_for(self.socket.close(), 10)

    async def _read(self) -> None:
        try:
            async for data in self.socket:
                assert isinstance(data, bytes)
                self.runs += [run.decode() for run in RUN.findall(data)]
                self._take(ForwardMsg.FromString(data))
        except websockets.ConnectionClosed:
            pass
        except Exception as error:  # otherwise the tab would wait for a message that is not read
            self.errors.append(f"a message could not be read: {type(error).__name__}: {error}")
        self.closed = True
        self.finished.set()

    def _take(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "navigation":
            self.pages |= {page.url_pathname or HOME: page.page_script_hash for page in message.navigation.app_pages}
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            element = message.delta.new_element
            self.elements.append(element)
            if element.WhichOneof("type") in ("exception", "alert") and "went wrong" in str(element):
                self.errors.append(str(element))
        elif kind == "auto_rerun":
            fragment = message.auto_rerun.fragment_id
            self._stop(fragment)
            self.timers[fragment] = asyncio.create_task(self._poll(fragment, message.auto_rerun.interval))
        elif kind == "stop_auto_rerun":
            for fragment in message.stop_auto_rerun.fragment_ids:
                self._stop(fragment)
        elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
            self.finished.set()  # a fragment's end, or a run that starts again, is not the page's

    def _stop(self, fragment: str) -> None:
        if fragment in self.timers:
            self.timers.pop(fragment).cancel()

    async def _poll(self, fragment: str, interval: float) -> None:
        with suppress(websockets.ConnectionClosed, ConnectionError):
            while True:
                await asyncio.sleep(interval)
                await self.run(fragment=fragment)


def _first_cookies(host: str) -> str:
    request = urllib.request.Request(f"http://{host}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        first = str(answer.headers["Set-Cookie"]).split(";")[0]
    with urllib.request.urlopen(f"http://{host}/_stcore/health", timeout=PATIENCE) as answer:
        second = answer.headers["Set-Cookie"]
    return "; ".join([first, *([second.split(";")[0]] if second else [])])


@dataclass
class Load:
    """Times, failures and trainings of all sessions."""

    switches: dict[str, list[float]] = field(default_factory=dict)  # seconds by page
    problems: list[str] = field(default_factory=list)
    trainings: int = 0
    peak: float = 0.0


async def person(host: str, index: int, ends: float, load: Load) -> None:
    """Read pages, and train now and then; after a failure, in a new tab."""
    chance = random.Random(index)
    await asyncio.sleep(chance.uniform(0, PAUSES[1]))
    while time.monotonic() < ends and len(load.problems) < 100:
        tab = Tab(host)
        try:
            await tab.open()
            while time.monotonic() < ends:
                page = chance.choice(ALL_PAGES)
                load.switches.setdefault(page, []).append(await tab.switch(page))
                if page == "power" and chance.random() < 0.2:
                    await tab.train(f"setting_seed={index + 10}&seed={index + 10}&{SHORT}")
                    load.trainings += 1
                await asyncio.sleep(chance.uniform(*PAUSES))
        except Exception as error:
            load.problems.append(f"session {index} on {tab.page}: {type(error).__name__}: {error}")
        load.problems += tab.errors
        await tab.close()


async def put_under_load(host: str, process: int, sessions: int, minutes: float) -> Load:
    """Let so many people use the server for so many minutes."""
    load, ends = Load(), time.monotonic() + 60 * minutes
    people = [asyncio.create_task(person(host, index, ends, load)) for index in range(sessions)]
    while not all(task.done() for task in people) and time.monotonic() < ends + 180:
        await asyncio.sleep(min(30.0, 15 * minutes))
        load.peak = max(load.peak, memory(process))
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    return load


async def open_and_close(host: str, cycles: int) -> int:
    """Open and close tabs one after the other; return how many failed."""
    failed = 0
    for _ in range(cycles):
        tab = Tab(host)
        try:
            await tab.open()
        except Exception:
            failed += 1
        await tab.close()
    return failed


async def running(owners: Sequence[Tab], runs: Sequence[str]) -> int:
    """The number of the owners' sweeps that wait or run."""
    for owner, run in zip(owners, runs, strict=True):
        await owner.switch("history", f"run={run}")
    return sum(any(e.WhichOneof("type") == "progress" for e in owner.elements) for owner in owners)


async def measure(host: str, process: int, sessions: int, minutes: float, cycles: int) -> None:
    """Measure everything, and print a table."""
    page = Page()
    page.head("", "measured", "goal")
    first = Tab(host)
    await first.open()
    for name in ALL_PAGES:  # what is loaded at its first use is part of the idle server
        await first.switch(name)
    await first.close()
    await asyncio.sleep(LEAVE_SECONDS)
    idle = memory(process)
    page.row("memory when idle", f"{idle:,.0f} MB", "")
    owners = [Tab(host), Tab(host)]
    for owner in owners:
        await owner.open()
    runs = [await owner.train(f"setting_seed={seed}&seed={seed}&{LONG}") for seed, owner in enumerate(owners)]
    before = await running(owners, runs)
    load = await put_under_load(host, process, sessions, minutes)
    after = await running(owners, runs)
    page.row("sweeps that ran meanwhile", f"{before} at the beginning, {after} at the end", 2)
    times = [seconds for spent in load.switches.values() for seconds in spent]
    page.row("page switches, trainings", f"{len(times)}, {load.trainings}", "")
    median, late = np.quantile(times or [np.nan], (0.5, 0.95))
    page.row(f"page switch of {sessions} sessions, median and 95 %", f"{median:.2f} s, {late:.2f} s", "95 %: 2 s")
    slow = sorted(((np.quantile(spent, 0.95), name) for name, spent in load.switches.items()), reverse=True)[:3]
    page.row("slowest pages, 95 %", ", ".join(f"{name} {seconds:.2f} s" for seconds, name in slow), "")
    page.row("errors", len(load.problems), 0)
    each = (load.peak - idle) / max(sessions, 1)
    page.row("memory under load", f"{load.peak:,.0f} MB at most, {each:+.1f} MB for each session", "")
    for owner in owners:
        await owner.close()
    await asyncio.sleep(LEAVE_SECONDS)
    left = memory(process)
    page.row("memory after all had left", f"{left:,.0f} MB, {left / idle - 1:+.0%}", "+15 %")
    failed = await open_and_close(host, cycles)
    await asyncio.sleep(LEAVE_SECONDS)
    grown = f"{memory(process) - left:+,.0f} MB"
    page.row(f"{cycles} tabs opened and closed, {failed} failed", grown, "50 MB")
    page.say("", *(problem[:300] for problem in load.problems[:10]))


def main(arguments: Sequence[str] = ()) -> None:
    """Start a server and measure it."""
    options = parse(arguments, __doc__, sessions=40, minutes=10.0, cycles=200)
    with server("serve.py", "--server.disconnectedSessionTTL", str(TTL)) as (host, process):
        asyncio.run(measure(host, process, options.sessions, options.minutes, options.cycles))
