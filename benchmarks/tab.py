"""A browser tab without a browser: it speaks streamlit's protocol over a real websocket to a server on loopback."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

ROOT = Path(__file__).parents[1]
PATIENCE = 120.0
TTL = 15  # seconds after which the server ends a session whose tab is closed
HOME = "home"
NAMES = re.compile(rb"fileof\d+|secretfile|power\?run=[0-9a-f]{12}")  # of files and runs, each of one person


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """A served instance with a store of its own: host and port, and its process. It ends with the block."""
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
            for _ in range(5 * int(PATIENCE)):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1)
                    break
                except OSError:
                    time.sleep(0.2)
                if process.poll() is not None:
                    raise RuntimeError("the server did not start")
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def memory(process: int) -> float:
    """Megabytes of a process, without its workers; NaN if it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return float("nan")
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else float("nan")


class Tab:
    """A browser tab: it speaks streamlit's protocol, polls where the page asks for it, and keeps what it was sent."""

    def __init__(self, host: str, cookie: str = "") -> None:
        self.host, self.cookie = host, cookie
        self.finished, self.elements, self.pages = asyncio.Event(), list[Any](), dict[str, str]()
        self.urls: asyncio.Future[Any] | None = None
        self.page, self.query, self.errors = HOME, "", list[str]()
        self.names: dict[str, None] = {}  # of files and runs that the server has sent
        self.closed = False
        self.timers: dict[str, asyncio.Task[None]] = {}

    async def open(self, page: str = HOME, query: str = "", session: str = "") -> float:
        """Connect as a browser does, with the cookie that the first page brings. Return the seconds to the end.

        ``session`` is the id of an earlier session to go on with.
        """
        began = time.perf_counter()
        if not self.cookie:
            self.cookie = await asyncio.to_thread(_first_cookie, self.host)
        self.socket = await websockets.connect(
            f"ws://{self.host}/_stcore/stream",
            subprotocols=["streamlit", *(["token", session] if session else [])],
            max_size=None,
            ping_interval=None,
            additional_headers={"Cookie": self.cookie},
            origin=f"http://{self.host}",
        )
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
        if self.closed:
            raise ConnectionError("the server closed the connection")
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
        await asyncio.to_thread(ask, "PUT", f"http://{self.host}{url.upload_url}", self.cookie, name, data)
        await self.claim(uploader.id, url, name, len(data))
        return url

    async def claim(self, uploader: str, url: Any, name: str, size: int) -> None:
        """Say that a file was uploaded."""
        state = BackMsg().rerun_script.widget_states.widgets.add().file_uploader_state_value
        state.uploaded_file_info.add(name=name, size=size, file_id=url.file_id).file_urls.CopyFrom(url)
        await self.run((uploader, "file_uploader_state_value", state))

    def saw(self, word: str) -> bool:
        """Whether the server has sent this name of a file."""
        return word in self.names

    async def close(self) -> None:
        """Close the tab."""
        for timer in self.timers.values():
            timer.cancel()
        if hasattr(self, "reader"):
            self.reader.cancel()
            await self.socket.close()

    async def _read(self) -> None:
        try:
            await self._take_messages()
        except websockets.ConnectionClosed:
            pass
        except Exception as error:  # otherwise whoever waits would wait for a message that nobody reads
            self.errors.append(f"a message could not be read: {type(error).__name__}: {error}")
        self.closed = True
        self.finished.set()

    async def _take_messages(self) -> None:
        async for data in self.socket:
            message = ForwardMsg.FromString(data)
            kind = message.WhichOneof("type")
            self.names |= {name.decode(): None for name in NAMES.findall(data)}
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
                if fragment in self.timers:
                    self.timers[fragment].cancel()
                self.timers[fragment] = asyncio.create_task(self._poll(fragment, message.auto_rerun.interval))
            elif kind == "stop_auto_rerun":
                for fragment in message.stop_auto_rerun.fragment_ids:
                    if fragment in self.timers:
                        self.timers.pop(fragment).cancel()
            elif kind == "file_urls_response" and self.urls is not None and not self.urls.done():
                self.urls.set_result(message.file_urls_response)
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                self.finished.set()  # a fragment's end, or a run that starts again, is not the page's

    async def _poll(self, fragment: str, interval: float) -> None:
        with suppress(websockets.ConnectionClosed, ConnectionError):
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


def ask(method: str, url: str, cookie: str, name: str = "", data: bytes = b"") -> None:
    """Send or ask for a file as a browser does. Raise an HTTPError if this is refused."""
    edge = uuid.uuid4().hex
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary={edge}", "Cookie": cookie}
    if token := re.search(r"_streamlit_xsrf=([^;]+)", cookie):
        headers["X-Xsrftoken"] = token[1]
    body = head.encode() + data + f"\r\n--{edge}--\r\n".encode() if name else None
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=PATIENCE):
        pass
