"""What a stranger's session achieves with another's runs and files on a served instance."""

from __future__ import annotations

import asyncio
import urllib.error
from typing import Any

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg

from benchmarks.tab import Tab, ask

NAME, STOLEN = "a study that nobody else knows", "renamed by a stranger"


def table(rows: int, seed: int) -> bytes:
    """A CSV file."""
    numbers = np.random.default_rng(seed).normal(size=(rows, 8)).round(4)
    lines = [f"{'pq'[index % 2]}," + ",".join(map(str, row)) for index, row in enumerate(numbers.tolist())]
    return "\n".join(["group,a,b,c,d,e,f,g,h", *lines]).encode()


async def train(tab: Tab, settings: str) -> str:
    """Start a sweep of the power page; return the id of its run, empty if it was refused."""
    before = set(tab.names)
    await tab.switch("power", settings)
    button = tab.find("button", "Train") or tab.find("button", "Refine")
    await tab.run((button.id, "trigger_value", True))
    await asyncio.sleep(3)
    await tab.switch("history")
    runs = [name.removeprefix("power?run=") for name in tab.names if name.startswith("power?") and name not in before]
    return runs[-1] if runs else ""


def _widgets(tab: Tab, kind: str) -> list[Any]:
    return [getattr(element, kind) for element in tab.elements if element.WhichOneof("type") == kind]


def _shows(tab: Tab, words: str = NAME) -> bool:
    """Whether a page has these words, the name of the run."""
    return any(words.encode() in element.SerializeToString() for element in tab.elements)


async def attack(host: str, owner: Tab, run: str) -> tuple[int, list[str]]:
    """Try to list, open, cancel, delete, rename and share another's running sweep, and to take another's file.

    Return the number of tries and what was achieved: by links, by values of the owner's widgets, by messages that no
    page sends, and by a forged cookie.
    """
    tries, done, eve = 0, list[str](), Tab(host)
    await owner.switch("history", f"run={run}")
    names, rename = _widgets(owner, "text_input"), owner.find("button", "Rename")
    if not names or rename is None:
        return 0, ["the owner's run was not there, so nothing was tried"]
    await owner.run((names[0].id, "string_value", NAME), (rename.id, "trigger_value", True))
    await owner.switch("power", f"run={run}")
    stops = [(widget.id, "trigger_value", True) for widget in _widgets(owner, "button")]
    await owner.switch("history", f"run={run}")
    if not _shows(owner):
        return 0, ["the owner could not rename the run, so nothing was tried"]
    clicks = [(widget.id, "trigger_value", True) for widget in _widgets(owner, "button")]
    texts = [(widget.id, "string_value", STOLEN) for widget in _widgets(owner, "text_input")]
    lists = [(widget.id, "string_array_value", [run]) for widget in _widgets(owner, "multiselect")]
    await eve.open("history")
    links = [("history", query) for query in ("", f"run={run}", f"run={run}&share=guess", f"runs_shown={run}")]
    for page, query in (*links, ("power", f"run={run}"), ("paper", f"run={run}")):
        await eve.switch(page, query)
        tries += 1
        done += [f"{page}?{query} shows the run"] if _shows(eve) else []
    for values in ([*texts, *clicks], *([*texts, click] for click in clicks), lists):
        for query in ("", f"run={run}"):
            await eve.switch("history", query)
            await eve.run(*values)  # Cancel, Rename it, Make a link, Delete it, Undo
            tries += 1
            done += ["a widget's value shows the run"] if _shows(eve) else []
    for fragment in list(owner.timers) or ["unknown"]:  # parts of the owner's page
        await eve.run(*texts, *clicks, fragment=fragment)
        tries += 1
    await eve.switch("power", f"run={run}")
    await eve.run(*(click for click in stops if click[0] not in {one.id for one in _widgets(eve, "button")}))
    tries += 1
    done += ["the power page shows the run"] if _shows(eve) else []
    skills = BackMsg()
    skills.backend_operation_request.install_skills.SetInParent()
    commands = ("stop_script", "clear_cache", "set_run_on_save", "load_git_info", "debug_shutdown_runtime")
    for message in (skills, *(BackMsg(**{name: True}) for name in (*commands, "debug_disconnect_websocket"))):
        await eve.send(message, wait=False)
        tries += 1
    await eve.socket.send(b"\xff no message")
    thief = Tab(host, cookie="m2st_visitor=visitor:0.0")
    await thief.open("history", f"run={run}")
    tries += 2
    done += ["a forged cookie shows the run"] if _shows(thief) else []
    await owner.switch("history", f"run={run}")
    done += [] if _widgets(owner, "progress") else ["the run was stopped or deleted"]
    done += [] if _shows(owner) and not _shows(owner, STOLEN) else ["the run was renamed"]
    for tab in (eve, thief):
        await tab.close()
    stolen_tries, stolen = await steal(host, owner)
    return tries + stolen_tries, done + stolen


async def steal(host: str, owner: Tab) -> tuple[int, list[str]]:
    """Try to take another's file whose addresses have become known, or the session that has it.

    Return the number of tries and what was achieved.
    """
    eve, other, done, data = Tab(host), Tab(host, owner.cookie), list[str](), table(200, 0)
    await eve.open("test_my_data")
    await other.open("test_my_data")
    if other.find("file_uploader") is None or eve.find("file_uploader") is None:
        return 0, ["no uploader was shown, so files were not tried"]
    url = await other.bring("secretfile.csv", data)
    done += [] if other.saw("secretfile") else ["the owner's file was not taken in, so files were not tried"]
    for method, address in (("GET", url.upload_url), ("PUT", url.upload_url), ("DELETE", url.delete_url)):
        try:
            await asyncio.to_thread(ask, method, f"http://{host}{address}", eve.cookie, "other.csv", data)
            done.append(f"{method} of another's file is answered")
        except urllib.error.HTTPError:
            pass
    await eve.claim(eve.find("file_uploader").id, url, "a.csv", len(data))
    session = url.upload_url.rpartition("/upload_file/")[2].partition("/")[0]
    await other.close()
    again = Tab(host, eve.cookie)
    await again.open("test_my_data", session=session)
    for tab in (eve, again):
        done += ["another's file is shown"] if tab.saw("secretfile") else []
        await tab.close()
    return 5, done
