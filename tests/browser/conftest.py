"""A real server and a real browser for all files of this folder, gone before other tests start.

Without a browser these tests are skipped, unless M2ST_BROWSER=required.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
SETTLED = """() => document.querySelector('h1, h2')
    && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]')
    && document.getAnimations().every(
        a => a.playState !== 'running' || a.effect?.getTiming().iterations === Infinity)"""
PATIENCE = 120_000  # ms: a busy machine is slow, not wrong


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """The dashboard with a store of its own; its address."""
    port = free_port()
    environment = os.environ | {"M2ST_HOME": str(tmp_path_factory.mktemp("store"))}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    log = tmp_path_factory.mktemp("log") / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--server.headless", "true"], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail(f"The server did not start:\n{log.read_text()}")
        yield address
    finally:
        process.kill()  # its workers end with it
        process.wait(20)


@pytest.fixture(scope="package")
def browser(tmp_path_factory):
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        program = None
    if program is None:
        if os.environ.get("M2ST_BROWSER") == "required":
            pytest.fail("chromium and playwright are required here.")
        pytest.skip("needs chromium and playwright")
    expect.set_options(timeout=PATIENCE)
    home = {"HOME": str(tmp_path_factory.mktemp("home"))}
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=FLAGS, env=os.environ | home)
        yield launched
        launched.close()


class Visit:
    """A tab that remembers what went wrong in it."""

    def __init__(self, browser, server, **context):
        self.server = server
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | context))
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.errors, self.outside = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda r: None if self._inside(r.url) else self.outside.append(r.url))

    def _hear(self, message):
        """Errors in the console, but for streamlit's search for its own address on a deep link (a 404)."""
        if message.type == "error" and "/_stcore/" not in message.location.get("url", ""):
            self.errors.append(message.text)

    def _inside(self, url):
        return url.startswith((self.server, self.server.replace("http", "ws"), "data:", "blob:"))

    def open(self, path=""):
        self.page.goto(f"{self.server}/{path}")
        self.settle()

    def settle(self):
        """Wait until the page has a heading and nothing runs or moves."""
        self.page.wait_for_function(SETTLED)

    def wait_url(self, pattern):
        """Wait for an address that this expression matches."""
        self.page.wait_for_url(re.compile(pattern), wait_until="commit")

    def assert_clean(self):
        assert self.errors == [] and self.outside == []
        assert self.page.locator("[data-testid=stException]").count() == 0
        self.context.close()


@pytest.fixture
def visit(browser, server):
    """Open a tab: visit(), visit(color_scheme="dark"), visit(viewport=…)."""
    return lambda **context: Visit(browser, server, **context)
