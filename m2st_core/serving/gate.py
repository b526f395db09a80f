"""The ASGI middleware of a server for several people, its security headers, and its shutdown."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import re
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from multiprocessing import util
from pathlib import Path
from typing import Any

import streamlit
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from streamlit import config, runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from m2st_core.dashboard.jobs.host import ServerLimits, close_server
from m2st_core.environment import frame_ancestors, proxy
from m2st_core.serving.visitors import COOKIE, KNOWN, PROXIED, STAMP, may_resume, sign, unsign

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
HEALTH, METRICS, UPLOADS = "/_stcore/health", "/_stcore/metrics", "/_stcore/upload_file/"
MESSAGES = ("rerun_script", "stop_script", "file_urls_request", "app_heartbeat")  # sent by pages
REQUEST, OPERATIONS = "backend_operation_request", ("deferred_file", "dataframe_chunk")
PROTOCOLS = "sec-websocket-protocol"  # the header in which a page names the session to resume
YEAR = 365 * 24 * 3600
PERSON_SHARE = 0.5  # of the memory for files
LEAVE_SECONDS = 1  # for open tabs to disconnect when the server stops
PROXY_SECRET = "x-m2st-proxy-secret"  # the header that authenticates a trusted proxy


class Gate:
    """ASGI middleware: visitor cookie, user name from a trusted proxy, security headers."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request or a websocket."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        given = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        web = scope["type"] == "http"
        if web and (refusal := _refusal(scope["method"], scope["path"], given)):
            await _refuse(receive, _protecting(send, False, scope["scheme"] == "https"), *refusal)
            return
        scope = {**scope, "headers": _vouched(scope["headers"], given)}
        has_cookie = unsign(_visitor_cookie(given.get("cookie", ""))).startswith(KNOWN)
        is_new = "text/html" in given.get("accept", "") and not has_cookie
        if web:
            await self.app(scope, receive, _protecting(send, is_new, scope["scheme"] == "https"))
        else:
            await self.app(scope, _without_commands(receive), send)


def _refusal(method: str, path: str, given: dict[str, str]) -> tuple[int, str] | None:
    """The status and the text with which a request is refused; None if it is allowed."""
    page = path.rstrip("/")
    if not page.endswith(HEALTH) and not is_host_allowed(given.get("host")):  # health checks use 127.0.0.1
        return 400, "This server has another name. Its operator can allow this one."
    if page.endswith(METRICS):
        return 404, "Not found."
    if UPLOADS in path and method != "OPTIONS":
        if not _is_own_tab(path, given):
            return 404, "Not found."
        if method == "PUT" and (sentence := _no_room(given)):
            return 507, sentence
    return None


def _vouched(headers: list[tuple[bytes, bytes]], given: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Remove reserved and foreign-session headers; add the proxy's user name."""
    reserved = {STAMP, PROXY_SECRET}
    protocol, token, session, *_ = (*(word.strip() for word in given.get(PROTOCOLS, "").split(",")), "", "", "")
    if session and not may_resume(session, _visitor_cookie(given.get("cookie", ""))):
        reserved.add(PROTOCOLS)
    vouched = [(name, value) for name, value in headers if name.decode("latin-1").lower() not in reserved]
    if PROTOCOLS in reserved:
        vouched.append((PROTOCOLS.encode(), f"{protocol}, {token}".encode("latin-1")))
    header, secret = proxy()
    name = given.get(header, "").strip() if header else ""
    if name and secret and hmac.compare_digest(given.get(PROXY_SECRET, "").encode(), secret.encode()):
        vouched.append((STAMP.encode(), sign(PROXIED + name).encode("latin-1", "replace")))
    return vouched


def _is_own_tab(path: str, given: dict[str, str]) -> bool:
    """Whether a file's address belongs to an open tab with the visitor's cookie."""
    cookie = _cookie_of(path.partition(UPLOADS)[2].partition("/")[0])
    return cookie is not None and cookie == _visitor_cookie(given.get("cookie", ""))


def _cookie_of(tab: str) -> str | None:
    client = runtime.get_instance().get_client(tab)
    context = client.client_context if client is not None else None
    return context.cookies.get(COOKIE, "") if context is not None else None


def _no_room(given: dict[str, str]) -> str:
    """Why a file exceeds the memory for raw uploads, of all or of this visitor; empty if it fits."""
    size = given.get("content-length", "")
    new = int(size) if size.isdecimal() else config.get_option("server.maxUploadSize") * 2**20
    stored = getattr(runtime.get_instance().uploaded_file_mgr, "file_storage", {})
    stored_bytes = {tab: sum(len(file.data) for file in list(files.values())) for tab, files in list(stored.items())}
    most, visitor = ServerLimits.from_environment().upload_bytes, _visitor_cookie(given.get("cookie", ""))
    if new + sum(stored_bytes.values()) > most:
        return "The server's memory for files is full. Please try again in a few minutes."
    if new + sum(bytes_ for tab, bytes_ in stored_bytes.items() if _cookie_of(tab) == visitor) > PERSON_SHARE * most:
        return "Your files take half of the server's memory for files. Please remove some, or close other tabs."
    return ""


def _without_commands(receive: Receive) -> Receive:
    """Drop all messages but those of pages: developers' commands, unknown kinds and damaged ones.

    They could clear shared caches, or list and write files of the server.
    """

    async def receiving() -> MutableMapping[str, Any]:
        while (message := await receive())["type"] == "websocket.receive" and not _passes(message.get("bytes")):
            pass
        return message

    return receiving


def _passes(data: bytes | None) -> bool:
    if data is None:  # a text
        return False
    try:
        message = BackMsg.FromString(data)
    except DecodeError:
        return False
    kind = message.WhichOneof("type")
    if kind == REQUEST:
        return getattr(message, REQUEST).WhichOneof("payload") in OPERATIONS
    return kind is None or kind in MESSAGES


def _visitor_cookie(cookies: str) -> str:
    """The visitor cookie as it was sent; empty without one."""
    try:
        cookie = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def _protecting(send: Send, is_new: bool, https: bool) -> Send:
    """Add security headers to a response, and for a new visitor the visitor cookie."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            added = _protective_headers()
            if is_new:
                terms = f"Path=/; Max-Age={YEAR}; HttpOnly; SameSite=Lax{'; Secure' if https else ''}"
                cookie = f"{COOKIE}={sign(KNOWN + secrets.token_hex(16))}; {terms}"
                added |= {"set-cookie": cookie, "cache-control": "no-store"}
            replaced = {name.encode() for name in added} - {b"set-cookie"}
            others = [(name, value) for name, value in message["headers"] if name.lower() not in replaced]
            message = {**message, "headers": [*others, *((n.encode(), v.encode()) for n, v in added.items())]}
        await send(message)

    return sending


async def _refuse(receive: Receive, send: Send, status: int, sentence: str) -> None:
    """Refuse a request after its body has arrived, because a browser that still sends reads no response."""
    left = config.get_option("server.maxUploadSize") * 2**20
    while left > 0 and (message := await receive()).get("more_body"):
        left -= len(message.get("body", b""))
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sentence.encode()})


def _protective_headers() -> dict[str, str]:
    """Security headers of every response: allowed frames, allowed sources, and no referrer for other sites."""
    frames = frame_ancestors()
    policy = (
        "default-src 'self'",
        f"script-src 'self' 'wasm-unsafe-eval' blob: {_inline_scripts()}".strip(),
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        f"frame-ancestors {frames}",
    )
    headers = {
        "content-security-policy": "; ".join(policy),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }
    return headers | ({"x-frame-options": "DENY"} if frames == "'none'" else {})


@functools.cache
def _inline_scripts() -> str:
    """The hashes of the inline scripts of streamlit's page, which are allowed."""
    page = Path(streamlit.__file__).parent / "static" / "index.html"
    scripts = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


@asynccontextmanager
async def lifespan(app: object) -> AsyncIterator[None]:
    """Close the server's singletons when it stops, without waiting for tabs that do not answer."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)  # uvicorn's: streamlit gives it no limit
    if settings := getattr(server, "config", None):
        settings.timeout_graceful_shutdown = LEAVE_SECONDS
    try:
        yield
    finally:
        close_server()
        getattr(util, "_run_finalizers", lambda: None)()  # uvicorn ends by the signal, before Python would do it
