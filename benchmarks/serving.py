"""A served instance under load: real websocket sessions on loopback that switch pages, train and bring files.

Two sweeps run meanwhile, and an attacker's session tries to reach another's run and another's file. Prints a table of
what was measured, beside the goals. A session that fails is counted, and comes back as a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app import PAGES
from benchmarks.attack import attack, table, train
from benchmarks.tab import HOME, TTL, Tab, memory, server

PAUSES = (4.0, 12.0)  # seconds between two actions of a person
LONG = "lab_repeats=60&lab_tests=400"  # a sweep that outlasts the measurement
SHORT = "lab_repeats=1&lab_tests=10"
LEAVE_SECONDS = TTL + 20.0  # until what a closed tab held is let go
ALL_PAGES = [HOME, *(Path(path).stem for path in PAGES if "home" not in path)]


@dataclass
class Load:
    """What the sessions saw and did."""

    times: list[float] = field(default_factory=list)
    switches: dict[str, list[float]] = field(default_factory=dict)  # seconds by page
    problems: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    owners: dict[str, int] = field(default_factory=dict)  # who saw the name of a file or run first
    uploads: int = 0
    trainings: int = 0
    peak: float = 0.0


async def person(host: str, index: int, ends: float, load: Load) -> None:
    """Someone who reads pages, brings a file now and then, and trains; after a failure, in a new tab."""
    chance, own, failures = random.Random(index), f"fileof{index}", 0
    await asyncio.sleep(chance.uniform(0, PAUSES[1]))
    while time.monotonic() < ends and failures < 10:
        tab = Tab(host)
        try:
            await tab.open()
            while time.monotonic() < ends:
                page = chance.choice(ALL_PAGES)
                load.switches.setdefault(page, []).append(seconds := await tab.switch(page))
                load.times.append(seconds)
                if page == "test_my_data" and tab.find("file_uploader") is not None:
                    await tab.bring(f"{own}.csv", table(2_000, index))
                    load.uploads += 1
                    load.problems += [] if tab.saw(own) else [f"{own}.csv was not taken in"]
                if page == "power" and chance.random() < 0.2:
                    await train(tab, f"setting_seed={index + 10}&seed={index + 10}&{SHORT}")
                    load.trainings += 1
                await asyncio.sleep(chance.uniform(*PAUSES))
        except Exception as error:
            failures += 1
            load.problems.append(f"session {index} on {tab.page}: {type(error).__name__}: {error}")
            await asyncio.sleep(1)
        for name in tab.names:
            if load.owners.setdefault(name, index) != index or ("file" in name and name != own):
                load.foreign.append(f"session {index} saw {name}")
        load.problems += tab.errors
        await _leave(tab)


async def _leave(tab: Tab) -> None:
    try:
        await asyncio.wait_for(tab.close(), 10)
    except Exception:
        pass  # the server ends it


async def put_under_load(host: str, process: int, sessions: int, minutes: float) -> Load:
    """Let so many people use the server for so many minutes."""
    load, ends = Load(), time.monotonic() + 60 * minutes
    people = [asyncio.create_task(person(host, index, ends, load)) for index in range(sessions)]
    while not all(task.done() for task in people) and time.monotonic() < ends + 180:
        await asyncio.sleep(min(30.0, 15 * minutes))
        load.peak = max(load.peak, now := memory(process))
        print(f"  {now:,.0f} MB, {len(load.times)} page switches, {len(load.problems)} problems", flush=True)
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    return load


async def open_and_close(host: str, cycles: int, seconds: float) -> tuple[int, int]:
    """Open and close tabs one after the other; return how many were, and how many failed."""
    failed, ends = 0, time.monotonic() + seconds
    for done in range(cycles):
        if time.monotonic() > ends:
            return done, failed
        tab = Tab(host)
        try:
            await tab.open()
        except Exception:
            failed += 1
        await _leave(tab)
    return cycles, failed


async def visit_all(host: str) -> None:
    """Open every page once, so that what is loaded at its first use is part of the idle server."""
    tab = Tab(host)
    await tab.open()
    for page in [*ALL_PAGES, "test_my_data"]:
        await tab.switch(page)
    if tab.find("file_uploader") is not None:
        await tab.bring("fileof999.csv", table(2_000, 0))
    await _leave(tab)


async def running(owners: Sequence[Tab], runs: Sequence[str]) -> int:
    """How many of the owners' sweeps wait or run."""
    count = 0
    for owner, run in zip(owners, runs, strict=True):
        if run:
            await owner.switch("history", f"run={run}")
            count += any(element.WhichOneof("type") == "progress" for element in owner.elements)
    return count


async def measure(host: str, process: int, sessions: int, minutes: float, cycles: int) -> str:
    """Measure everything; return a table."""
    rows: list[tuple[str, str, str, bool | None]] = []

    def add(what: str, found: str, goal: str = "", met: Callable[[], bool] | None = None) -> None:
        rows.append((what, found, goal, met() if met else None))
        print(f"{what}: {found}", flush=True)

    await visit_all(host)
    await asyncio.sleep(LEAVE_SECONDS)
    idle = memory(process)
    add("memory when idle", f"{idle:,.0f} MB")
    owners = [Tab(host), Tab(host)]
    for owner in owners:
        await owner.open()
    runs = [await train(owner, f"setting_seed={seed}&seed={seed}&{LONG}") for seed, owner in enumerate(owners)]
    try:
        tries, achieved = await attack(host, owners[0], runs[0])
    except Exception as error:
        tries, achieved = 0, [f"the attack was not completed: {type(error).__name__}: {error}"]
    found = f"{tries} tries, {'; '.join(sorted(set(achieved))) or 'all refused'}"
    add("attacker's session", found, "all refused", lambda: not achieved)
    before = await running(owners, runs)
    load = await put_under_load(host, process, sessions, minutes)
    after = await running(owners, runs)
    add(
        "sweeps that ran meanwhile", f"{before} at the beginning, {after} at the end", "2", lambda: before == after == 2
    )
    add("page switches, files, trainings", f"{len(load.times)}, {load.uploads}, {load.trainings}")
    median, late = np.quantile(load.times or [np.nan], (0.5, 0.95))
    add(f"page switch of {sessions} sessions, median", f"{median:.2f} s")
    add("page switch, 95 %", f"{late:.2f} s", "≤ 2 s", lambda: bool(late <= 2))
    slow = sorted(load.switches, key=lambda page: -np.quantile(load.switches[page], 0.95))[:3]
    add("slowest pages, 95 %", ", ".join(f"{page} {np.quantile(load.switches[page], 0.95):.2f} s" for page in slow))
    add("errors", str(len(load.problems)), "0", lambda: not load.problems)
    add("cross-talk", str(len(load.foreign)), "0", lambda: not load.foreign)
    each = (load.peak - idle) / max(sessions, 1)
    add("memory under load", f"{load.peak:,.0f} MB at most, {each:+.1f} MB for each session")
    for problem in [*load.foreign, *load.problems][:10]:
        print(f"  {problem[:300]}", flush=True)
    for owner in owners:
        await _leave(owner)
    await asyncio.sleep(LEAVE_SECONDS)
    left = memory(process)
    add("memory after they left", f"{left:,.0f} MB, {left / idle - 1:+.0%}", "+15 %", lambda: left <= 1.15 * idle)
    done, failed = await open_and_close(host, cycles, 10.0 * cycles)
    await asyncio.sleep(LEAVE_SECONDS)
    grown = memory(process) - left
    words = f"{done} tabs opened and closed, {failed} failed"
    add(words, f"{grown:+,.0f} MB", "< 50 MB", lambda: grown < 50 and not failed and done == cycles)
    verdicts = {True: "yes", False: "**no**", None: ""}
    lines = [f"| {what} | {found} | {goal} | {verdicts[met]} |" for what, found, goal, met in rows]
    return "\n".join(["| | measured | goal | met |", "|---|---|---|---|", *lines])


def main(arguments: Sequence[str] = ()) -> None:
    """Start a server and measure it."""
    parser = argparse.ArgumentParser(prog="m2st_core bench serving", description=__doc__)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cycles", type=int, default=200)
    options = parser.parse_args(arguments)
    longest = 1200 + 60 * options.minutes + 10 * options.cycles
    with server() as (host, process):
        measuring = measure(host, process, options.sessions, options.minutes, options.cycles)
        print("\n" + asyncio.run(asyncio.wait_for(measuring, longest)))
