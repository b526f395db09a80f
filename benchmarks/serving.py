"""A served instance under load: real websocket sessions on loopback that switch pages, train and bring files.

Prints the times of page switches while two sweeps run, what an attacker's session gets, and the server's memory before,
during and after.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from app import PAGES

ROOT = Path(__file__).parents[1]
PATIENCE = 120.0
PAUSES = (4.0, 12.0)  # seconds between two actions of a person
TTL = 15  # seconds after which the server ends a session whose tab is closed
HOME = "home"
MESSAGES_KEPT = 4000


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """A served instance with a store of its own: host and port, and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.port", str(port)]
        options = ["--server.headless", "true", "--server.disconnectedSessionTTL", str(TTL)]
        process = subprocess.Popen(
            [*command, *options], cwd=ROOT, env=os.environ | {"M2ST_HOME": home}, stdout=subprocess.DEVNULL
        )
        try:
            while process.poll() is None:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1)
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def memory(process: int) -> float:
    """Megabytes of the server's own process, without its workers."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


class Tab:
    """A browser tab: it speaks streamlit's protocol, polls where the page asks for it, and keeps what it was sent."""

    def __init__(self, host: str, cookie: str = "") -> None:
        self.host, self.cookie = host, cookie
        self.finished, self.elements, self.pages = asyncio.Event(), list[Any](), dict[str, str]()
        self.urls: asyncio.Future[Any] | None = None
        self.page, self.query, self.errors = HOME, "", list[str]()
        self.texts: deque[bytes] = deque(maxlen=MESSAGES_KEPT)
        self.timers: dict[str, asyncio.Task[None]] = {}

    async def open(self, page: str = HOME, query: str = "") -> float:
        """Connect as a browser does, with the cookie that the first page brings. Return the seconds to the end."""
        began = time.perf_counter()
        if not self.cookie:
            self.cookie = await asyncio.to_thread(_first_cookie, self.host)
        self.socket = await websockets.connect(
            f"ws://{self.host}/_stcore/stream", subprotocols=["streamlit"], max_size=None, ping_interval=None,
            additional_headers={"Cookie": self.cookie}, origin=f"http://{self.host}",
        )  # fmt: skip
        self.reader = asyncio.create_task(self._read())
        self.page, self.query = page, query
        await self.run()
        return time.perf_counter() - began

    async def run(self, *widgets: tuple[str, str, Any], fragment: str = "", wait: bool = True) -> float:
        """Run the page, with new values of widgets: (id, kind, value). Return the seconds."""
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_name, state.fragment_id = self.query, self._path(self.page), fragment
        state.page_script_hash = "" if fragment else self.pages.get(self.page, "")
        for id_, kind, value in widgets:
            entry = state.widget_states.widgets.add(id=id_)
            if kind == "file_uploader_state_value":
                entry.file_uploader_state_value.CopyFrom(value)
            elif kind == "string_array_value":
                entry.string_array_value.data.extend(value)
            else:
                setattr(entry, kind, value)
        return await self.send(message, wait and not fragment)

    async def send(self, message: BackMsg, wait: bool = True) -> float:
        """Send any message."""
        began = time.perf_counter()
        if wait:
            self.finished.clear()
            for timer in self.timers.values():
                timer.cancel()
            self.timers, self.elements = {}, []
        await self.socket.send(message.SerializeToString())
        if wait:
            await asyncio.wait_for(self.finished.wait(), PATIENCE)
        return time.perf_counter() - began

    async def switch(self, page: str, query: str = "") -> float:
        """Open another page. Return the seconds to its end."""
        self.page, self.query = page, query
        return await self.run()

    def find(self, kind: str, label: str = "") -> Any:
        """The first widget of a kind, with a label that starts so."""
        found = (getattr(e, kind) for e in self.elements if e.WhichOneof("type") == kind)
        return next((widget for widget in found if widget.label.startswith(label)), None)

    async def bring(self, name: str, data: bytes) -> Any:
        """Upload a file with the page's first uploader. Return its addresses."""
        uploader = self.find("file_uploader")
        message = BackMsg()
        message.file_urls_request.request_id = uuid.uuid4().hex
        message.file_urls_request.file_names.append(name)
        self.urls = asyncio.get_running_loop().create_future()
        await self.send(message, wait=False)
        (url,) = (await asyncio.wait_for(self.urls, PATIENCE)).file_urls
        await asyncio.to_thread(_ask, "PUT", f"http://{self.host}{url.upload_url}", self.cookie, name, data)
        await self.claim(uploader.id, url, name, len(data))
        return url

    async def claim(self, uploader: str, url: Any, name: str, size: int) -> None:
        """Say that a file was uploaded."""
        state = BackMsg().rerun_script.widget_states.widgets.add().file_uploader_state_value
        state.uploaded_file_info.add(name=name, size=size, file_id=url.file_id).file_urls.CopyFrom(url)
        await self.run((uploader, "file_uploader_state_value", state))

    def saw(self, word: str) -> bool:
        """Whether the server has sent this word."""
        return any(word.encode() in text for text in self.texts)

    async def close(self) -> None:
        """Close the tab."""
        for timer in self.timers.values():
            timer.cancel()
        self.reader.cancel()
        await self.socket.close()

    async def _read(self) -> None:
        async for data in self.socket:
            message = ForwardMsg.FromString(data if isinstance(data, bytes) else data.encode())
            kind = message.WhichOneof("type")
            self.texts.append(message.SerializeToString())
            if kind == "navigation":
                self.pages |= {
                    page.url_pathname or HOME: page.page_script_hash for page in message.navigation.app_pages
                }
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                element = message.delta.new_element
                self.elements.append(element)
                if element.WhichOneof("type") in ("exception", "alert") and "went wrong" in str(element):
                    self.errors.append(str(element))
            elif kind == "auto_rerun":
                fragment = message.auto_rerun.fragment_id
                self.timers[fragment] = asyncio.create_task(self._poll(fragment, message.auto_rerun.interval))
            elif kind == "stop_auto_rerun":
                for fragment in message.stop_auto_rerun.fragment_ids:
                    if fragment in self.timers:
                        self.timers.pop(fragment).cancel()
            elif kind == "file_urls_response" and self.urls is not None:
                self.urls.set_result(message.file_urls_response)
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                self.finished.set()  # a fragment's end, or a run that starts again, is not the page's

    async def _poll(self, fragment: str, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            await self.run(fragment=fragment)

    def _path(self, page: str) -> str:
        return "" if page == HOME else page


def _first_cookie(host: str) -> str:
    request = urllib.request.Request(f"http://{host}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        first = str(answer.headers["Set-Cookie"]).split(";")[0]
    with urllib.request.urlopen(f"http://{host}/_stcore/health", timeout=PATIENCE) as answer:
        second = answer.headers["Set-Cookie"]
    return "; ".join([first, *([second.split(";")[0]] if second else [])])


def _ask(method: str, url: str, cookie: str, name: str = "", data: bytes = b"") -> None:
    """Send or ask for a file as a browser does. Raise an HTTPError if this is refused."""
    edge = uuid.uuid4().hex
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary={edge}", "Cookie": cookie}
    if token := re.search(r"_streamlit_xsrf=([^;]+)", cookie):
        headers["X-Xsrftoken"] = token[1]
    body = head.encode() + data + f"\r\n--{edge}--\r\n".encode() if name else None
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=PATIENCE):
        pass


def table(rows: int, seed: int) -> bytes:
    """A CSV file."""
    numbers = np.random.default_rng(seed).normal(size=(rows, 8)).round(4)
    lines = [f"{'pq'[index % 2]}," + ",".join(map(str, row)) for index, row in enumerate(numbers.tolist())]
    return "\n".join(["group,a,b,c,d,e,f,g,h", *lines]).encode()


async def person(host: str, index: int, ends: float, times: list[float], problems: list[str]) -> None:
    """Someone who reads pages, brings a file now and then, and looks at the own runs."""
    chance, tab, own = random.Random(index), Tab(host), f"fileof{index}.csv"
    pages = [HOME, *(Path(path).stem for path in PAGES if "home" not in path)]
    try:
        await tab.open()
        while time.monotonic() < ends:
            page = chance.choice(pages)
            times.append(await tab.switch(page))
            if page == "test_my_data" and tab.find("file_uploader") is not None:
                await tab.bring(own, table(2_000, index))
                if not tab.saw(own.removesuffix(".csv")):
                    problems.append(f"{own} was not taken in")
            await asyncio.sleep(chance.uniform(*PAUSES))
    except Exception as error:
        problems.append(f"session {index}: {type(error).__name__}: {error}")
    names = {name.decode() for message in tab.texts for name in re.findall(rb"fileof\d+", message)}
    foreign = names - {own.removesuffix(".csv")}
    problems += [f"session {index} saw {foreign}"] if foreign else []
    problems += tab.errors
    await tab.close()


async def train(tab: Tab, seed: int) -> str:
    """Start a long sweep; return the id of its run."""
    await tab.switch("power", f"setting_seed={seed}&seed={seed}&lab_repeats=60&lab_tests=400")
    button = tab.find("button", "Train") or tab.find("button", "Refine")
    await tab.run((button.id, "trigger_value", True))
    await asyncio.sleep(3)
    await tab.switch("history")
    runs = re.findall(r"power\?run=([0-9a-f]{12})", b" ".join(tab.texts).decode("utf-8", "replace"))
    return runs[-1] if runs else ""


async def attack(host: str, owner: Tab, run: str) -> list[str]:
    """What a stranger achieves with another's run, by links, widget values and crafted messages; empty if nothing."""
    eve, done = Tab(host), list[str]()
    await eve.open()
    name = "MMD-M"
    for page, query in (("history", f"run={run}"), ("history", f"run={run}&share=guess"), ("power", f"run={run}")):
        await eve.switch(page, query)
        if any(e.WhichOneof("type") == "progress" for e in eve.elements):
            done.append(f"{page}?{query} shows the progress of the run")
    await owner.switch("history", f"run={run}")
    known = [(e.WhichOneof("type"), getattr(e, e.WhichOneof("type"))) for e in owner.elements]
    buttons = [widget for kind, widget in known if kind == "button"]
    chosen = [widget for kind, widget in known if kind == "multiselect"]
    await eve.switch("history", f"run={run}")
    await eve.run(*((widget.id, "trigger_value", True) for widget in buttons))  # Cancel, Delete, Rename, Share
    await eve.run(*((widget.id, "string_array_value", [run, name]) for widget in chosen))
    await eve.send(BackMsg(clear_cache=True), wait=False)
    await asyncio.sleep(2)
    if run.encode() in b" ".join(e.SerializeToString() for e in eve.elements):
        done.append("the run is listed")
    await owner.switch("history", f"run={run}")
    if not any(e.WhichOneof("type") == "progress" for e in owner.elements):
        done.append("the run was stopped or deleted")
    thief = Tab(host, cookie="m2st_visitor=visitor:0.0")
    await thief.open("history", f"run={run}")
    if any(e.WhichOneof("type") == "progress" for e in thief.elements):
        done.append("a forged cookie opens it")
    for tab in (eve, thief):
        await tab.close()
    return done + await steal(host, owner)


async def steal(host: str, owner: Tab) -> list[str]:
    """What a stranger achieves with another's file, whose addresses have become known; empty if nothing."""
    eve, done, data = Tab(host), list[str](), table(200, 0)
    await eve.open("test_my_data")
    await owner.switch("test_my_data")
    if owner.find("file_uploader") is None or eve.find("file_uploader") is None:
        return ["no uploader was shown, so this was not tried"]
    url = await owner.bring("secretfile.csv", data)
    for method, address in (("GET", url.upload_url), ("PUT", url.upload_url), ("DELETE", url.delete_url)):
        try:
            await asyncio.to_thread(_ask, method, f"http://{host}{address}", eve.cookie, "other.csv", data)
            done.append(f"{method} of another's file is answered")
        except urllib.error.HTTPError:
            pass
    await eve.claim(eve.find("file_uploader").id, url, "a.csv", len(data))
    if eve.saw("secretfile") or not owner.saw("secretfile"):
        done.append("another's file is shown")
    await eve.close()
    return done


async def measure(host: str, process: int, sessions: int, minutes: float, cycles: int) -> None:
    """Print everything."""
    first = Tab(host)
    for page in (HOME, *(Path(path).stem for path in PAGES if "home" not in path)):
        await (first.switch(page) if first.pages else first.open(page))
    await first.close()
    await asyncio.sleep(TTL + 10)
    idle = memory(process)
    print(f"memory when idle: {idle:,.0f} MB", flush=True)
    owners = [Tab(host), Tab(host)]
    runs = []
    for seed, owner in enumerate(owners):
        await owner.open()
        runs.append(await train(owner, seed))
    print(f"two sweeps: {', '.join(runs)}", flush=True)
    achieved = await attack(host, owners[0], runs[0]) if runs[0] else ["no sweep was started"]
    print(f"an attacker's session: {'; '.join(achieved) or 'all refused'}", flush=True)
    times, problems = list[float](), list[str]()
    ends = time.monotonic() + 60 * minutes
    people = [asyncio.create_task(person(host, index, ends, times, problems)) for index in range(sessions)]
    while not all(task.done() for task in people):
        await asyncio.sleep(min(30, 60 * minutes / 4))
        print(f"  {memory(process):,.0f} MB, {len(times)} page switches", flush=True)
    median, late = np.quantile(times, (0.5, 0.95))
    print(f"{sessions} sessions: {len(times)} page switches, median {median:.2f} s, 95 % {late:.2f} s", flush=True)
    print(f"problems: {len(problems)}" + "".join(f"\n  {problem[:300]}" for problem in problems[:10]), flush=True)
    for owner in owners:
        await owner.close()
    await asyncio.sleep(TTL + 15)
    after = memory(process)
    print(f"memory after they left: {after:,.0f} MB, {after / idle - 1:+.0%}", flush=True)
    for _ in range(cycles):
        tab = Tab(host)
        await tab.open()
        await tab.close()
    await asyncio.sleep(TTL + 15)
    print(f"after {cycles} tabs were opened and closed: {memory(process) - after:+,.0f} MB", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Start a server and measure it."""
    parser = argparse.ArgumentParser(prog="m2st_core bench serving", description=__doc__)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cycles", type=int, default=200)
    options = parser.parse_args(arguments)
    with server() as (host, process):
        asyncio.run(measure(host, process, options.sessions, options.minutes, options.cycles))
