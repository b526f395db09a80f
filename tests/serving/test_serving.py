"""A server for several people: who is asking, what they may do, what the gate lets through, and what limits say."""

import asyncio
import json
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import streamlit as st
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette.starlette_websocket import _parse_decoded_user_cookie

from m2st_core.dashboard.jobs import host, sweeps
from m2st_core.dashboard.jobs import runs as queue_module
from m2st_core.dashboard.jobs.host import Host, ServerLimits, Visitor, at_session_end, close_server, register_host
from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.jobs.runs import QueueFull, RunDesk, SweepQueue, TimeIsUp
from m2st_core.serving import gate
from m2st_core.serving.visitors import (
    COOKIE,
    KNOWN,
    PROXIED,
    STAMP,
    SharedHost,
    Tab,
    end_closed_sessions,
    identify_visitor,
    make_room,
    sign,
    signature,
    unsign,
    used_bytes,
)
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import InlineExecutor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store, own_id
from m2st_core.sweeps.work import SweepProgress

SPEC = SweepSpec(methods=("MMD-M",), m_te=(10,), repeats=2, tests=4, n_permutations=39)


@pytest.fixture(autouse=True)
def served(monkeypatch, tmp_path):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    monkeypatch.setenv("M2ST_SECRET", "of this test")
    monkeypatch.setattr(gate.util, "_run_finalizers", lambda: None)  # this process goes on
    close_server()
    register_host(SharedHost())
    yield
    register_host(Host())
    close_server()


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A queue whose sweeps run until they are stopped."""

    def endless(spec, store, executor, run, progress):
        while True:
            progress(SweepProgress(2, 1, 1, 0, 0.5, 1.0, 1.0))
            time.sleep(0.01)

    monkeypatch.setattr(queue_module, "compute_sweep", endless)
    monkeypatch.setattr(queue_module, "machine_factor", lambda: 1.0)
    queue = SweepQueue(Store(tmp_path), InlineExecutor)
    yield queue
    queue.close()


def desk(queue, person, tokens=()):
    return RunDesk(queue, Visitor(f"{person}'s tab", person, tokens=tuple(tokens)))


def may_cancel(desk, run):
    return desk.may_cancel(desk.look({run: SPEC})[run])


def at_once(progress):
    """No work."""


def test_clearing_streamlit_s_cache_touches_neither_queue_nor_jobs(monkeypatch):
    monkeypatch.setattr(sweeps, "start_executor", InlineExecutor)
    monkeypatch.setattr(queue_module, "machine_factor", lambda: 1.0)
    monkeypatch.setattr(queue_module, "warm_up_worker", lambda executor: None)
    monkeypatch.setattr("m2st_core.dashboard.jobs.jobs._warm_up", at_once)
    queue, manager = sweeps.server_queue(), job_manager()
    st.cache_resource.clear()  # what streamlit does at the message clear_cache of any client
    assert sweeps.server_queue() is queue and job_manager() is manager
    assert not queue._scheduler.closed and not manager.scheduler.closed
    close_server()
    assert queue._scheduler.close() and manager.scheduler.closed


def test_an_attacker_can_do_nothing_with_another_s_run(queue):
    ann, eve = desk(queue, "ann"), desk(queue, "eve")
    run = ann.submit(SPEC, "Ann's study")
    for known in (run, SPEC.run_id):  # also if she knows the id, or the settings
        assert eve.status(known) is None and not eve.owns(known) and eve.store.runs.get(known) is None
        for forbidden in (eve.cancel, eve.delete, eve.store.delete_run, eve.store.runs.restore, eve.store.runs.share):
            with pytest.raises(StoreError, match="There is no"):
                forbidden(known)
        with pytest.raises(StoreError, match="no run .* of yours"):
            eve.store.runs.rename(known, "Eve's")
    assert eve.store.all_runs().empty and eve.counts() == (0, 0)
    assert ann.status(run).active and ann.store.runs.get(run).name == "Ann's study"


def test_the_same_settings_are_two_runs_of_two_people(queue):
    ann, eve = desk(queue, "ann"), desk(queue, "eve")
    mine, theirs = ann.submit(SPEC), eve.submit(SPEC)
    assert mine != theirs
    eve.cancel(SPEC.run_id)  # her own
    assert ann.status(SPEC.run_id).active and eve.status(theirs).state == "cancelled"


def test_an_owner_s_rights_survive_the_tab(queue):
    run = desk(queue, "ann").submit(SPEC)
    later = RunDesk(queue, Visitor("a new tab", "ann"))
    assert later.status(run).active and may_cancel(later, run)
    later.cancel(run)
    later.wait(run, 5)
    assert later.status(run).state == "cancelled"
    later.delete(run)
    assert later.status(run) is None


def test_a_shared_run_can_be_read_and_no_more(queue):
    ann = desk(queue, "ann")
    run = ann.submit(SPEC)
    bob = desk(queue, "bob", [ann.store.runs.share(run)])
    assert bob.status(run).active and bob.store.all_runs()["id"].tolist() == [run]
    assert not bob.owns(run) and not may_cancel(bob, run)
    for forbidden in (bob.cancel, bob.delete):
        with pytest.raises(StoreError, match="of yours"):
            forbidden(run)


def test_on_one_s_own_machine_everybody_sees_everything(queue, monkeypatch):
    run = RunDesk(queue, Visitor("one tab")).submit(SPEC)
    other = RunDesk(queue, Visitor("another tab"))
    assert run == SPEC.run_id and other.status(run).active and other.owns(run) and sum(other.counts()) == 1
    assert may_cancel(other, run)  # the first tab is closed
    monkeypatch.setattr("m2st_core.dashboard.jobs.runs.is_open", lambda session: True)
    with pytest.raises(StoreError, match="Another browser session"):
        other.cancel(run)


def test_a_day_s_time_is_refused_and_stopped_with_a_sentence(queue, monkeypatch):
    monkeypatch.setenv("M2ST_MOST_MINUTES", "1")
    queue.count("ann", 30.0)
    with pytest.raises(TimeIsUp, match="Your computing time for today, 1 min, is used up. Finished cells are kept"):
        queue.count("ann", 31.0)
    assert queue.store.usage.of("ann") == 61.0
    with pytest.raises(QueueFull, match="You have used your computing time .* What is computed stays"):
        desk(queue, "ann").submit(SPEC)
    assert desk(queue, "bob").submit(SPEC) == own_id(SPEC.run_id, "bob")


def test_limits_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("M2ST_MOST_SESSIONS", "7")
    assert ServerLimits.from_environment() == ServerLimits(sessions=7)
    monkeypatch.setenv("M2ST_MOST_SWEEPS", "none")
    with pytest.raises(ValueError, match="M2ST_MOST_SWEEPS must be a whole number"):
        ServerLimits.from_environment()


def test_only_this_server_signs(monkeypatch):
    signed = sign("visitor:1")
    assert unsign(signed) == "visitor:1"
    for forged in ("", "visitor:1", "visitor:1.", signed[:-1], "visitor:2" + signed[9:], "." + signature("")):
        assert unsign(forged) == ""
    monkeypatch.setenv("M2ST_SECRET", "another server's")
    assert unsign(signed) == ""


def test_the_secret_is_kept_in_the_store_for_its_user_only(monkeypatch, tmp_path):
    monkeypatch.delenv("M2ST_SECRET")
    signed = sign("visitor:1")
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0 and unsign(signed) == "visitor:1"


LOGIN = {"is_logged_in": True, "iss": "https://id.example", "sub": "42", "email": "ann@example.org"}


@pytest.mark.parametrize(
    ("user", "headers", "cookies", "found"),
    [
        (LOGIN, {}, {}, ("login", "https://id.example 42", "ann@example.org")),
        (LOGIN | {"email_verified": False}, {}, {}, ("login", "https://id.example 42", "42")),
        (LOGIN | {"is_logged_in": False}, {}, {}, ("tab", "", "")),
        ({}, {STAMP: "signed proxy:ann"}, {}, ("proxy", "ann", "ann")),
        ({}, {STAMP: "proxy:ann"}, {}, ("tab", "", "")),
        ({}, {"x-forwarded-user": "ann"}, {}, ("tab", "", "")),
        ({}, {}, {COOKIE: "signed visitor:1"}, ("cookie", "visitor:1", "")),
        ({}, {}, {COOKIE: "visitor:1.abc"}, ("tab", "", "")),
        ({}, {STAMP: "signed visitor:1"}, {COOKIE: "signed proxy:ann"}, ("tab", "", "")),  # each in its own place only
    ],
)
def test_an_identity_needs_evidence(user, headers, cookies, found):
    def signed(values):
        parts = {name: value.rpartition("signed ") for name, value in values.items()}
        return {name: sign(text) if mark else text for name, (_, mark, text) in parts.items()}

    headers, cookies = signed(headers), signed(cookies)
    assert identify_visitor(user, headers, cookies) == found


def test_a_login_s_cookie_that_streamlit_has_checked_is_an_identity():
    claims = {"is_logged_in": True, "iss": "https://id.example", "sub": "42", "email": "ann@example.org"}
    cookie = json.dumps(claims | {"origin": "https://m2st.example"}).encode()
    user = _parse_decoded_user_cookie(cookie, "https://m2st.example")
    assert identify_visitor(user, {}, {COOKIE: sign(KNOWN + "1")}) == (
        "login",
        "https://id.example 42",
        "ann@example.org",
    )
    assert identify_visitor(_parse_decoded_user_cookie(cookie, "https://evil.example"), {}, {})[0] == "tab"


def answer(path="/", kind="http", scheme="http", method="GET", parts=3, **headers):
    """What the app behind the gate receives, and the status and headers that come out."""
    seen, sent = [], []

    async def app(scope, receive, send):
        seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if kind == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"public")]})

    async def send(message):
        sent.append(message)

    async def receive():
        left[0] -= 1
        return {"type": "http.request", "body": b"x", "more_body": left[0] > 0}

    left = [parts]
    headers = {"host": "localhost"} | headers
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(
        gate.Gate(app)(
            {"type": kind, "path": path, "scheme": scheme, "method": method, "headers": given}, receive, send
        )
    )
    assert left[0] == 0 or not sent or sent[0]["status"] == 200  # who is refused has been heard to the end
    start = sent[0] if sent else {"status": None, "headers": []}
    return (seen or [None])[0], start["status"], {name.decode(): value.decode() for name, value in start["headers"]}


def test_a_page_comes_with_a_cookie_and_protective_headers():
    _, status, headers = answer(accept="text/html", host="localhost")
    assert status == 200 and headers["cache-control"] == "no-store"
    value = headers["set-cookie"].split(";")[0].removeprefix(f"{COOKIE}=")
    assert (
        unsign(value).startswith(KNOWN)
        and "HttpOnly" in headers["set-cookie"]
        and "Secure" not in headers["set-cookie"]
    )
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer" and "script-src 'self'" in headers["content-security-policy"]
    assert "set-cookie" not in answer(accept="text/html", cookie=f"a=b; {COOKIE}={value}")[2]
    assert "set-cookie" not in answer(accept="*/*")[2]
    assert "Secure" in answer(accept="text/html", cookie=f"{COOKIE}=forged.abc", scheme="https")[2]["set-cookie"]


def test_other_host_names_are_refused(monkeypatch):
    monkeypatch.setattr(gate, "is_host_allowed", lambda host: host == "localhost")
    assert answer(host="localhost")[1] == 200
    seen, status, _ = answer(host="attacker.example")
    assert seen is None and status == 400
    assert answer("/_stcore/health", host="127.0.0.1:8501")[1] == 200  # the container's own check


def test_the_configuration_refuses_other_host_names_on_one_s_own_machine():
    from streamlit import config
    from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

    config.get_config_options(force_reparse=True)
    assert is_host_allowed("localhost:8501") and is_host_allowed("127.0.0.1:8501") and is_host_allowed("[::1]:8501")
    assert not is_host_allowed("attacker.example:8501")


def test_metrics_are_closed():
    assert answer("/_stcore/metrics")[1] == answer("/base/_stcore/metrics/")[1] == 404


def test_a_proxy_s_name_counts_with_its_secret_only(monkeypatch):
    assert STAMP not in answer(kind="websocket", x_forwarded_user="ann", x_m2st_proxy_secret="s3cret")[0]
    monkeypatch.setenv("M2ST_PROXY_HEADER", "X-Forwarded-User")
    assert STAMP not in answer(kind="websocket", x_forwarded_user="ann", x_m2st_proxy_secret="")[0]
    monkeypatch.setenv("M2ST_PROXY_SECRET", "s3cret")
    seen, _, _ = answer(kind="websocket", x_forwarded_user="ann", x_m2st_proxy_secret="s3cret")
    assert identify_visitor({}, seen, {}) == ("proxy", "ann", "ann") and "x-m2st-proxy-secret" not in seen
    for lie in ({"x_forwarded_user": "ann"}, {"x_m2st_proxied": sign(PROXIED + "ann")}):
        assert STAMP not in answer(kind="websocket", **lie)[0]


def test_messages_for_developers_do_not_pass():
    kinds = [BackMsg(clear_cache=True), BackMsg(load_git_info=True), BackMsg(app_heartbeat=True)]
    kinds[:0] = [operation("install_skills"), operation("dismiss_skills_nudge")]
    coming = [{"type": "websocket.receive", "bytes": message.SerializeToString()} for message in kinds]
    coming += [{"type": "websocket.receive", "bytes": b"\xff nonsense"}, {"type": "websocket.receive", "text": "hello"}]
    coming += [{"type": "websocket.disconnect"}]
    source = iter(coming)

    async def receive():
        return next(source)

    async def take(count):
        passing = gate._without_commands(receive)
        return [await passing() for _ in range(count)]

    assert asyncio.run(take(2)) == [coming[4], coming[-1]]


def operation(name):
    """A message by which a page asks streamlit for something beside a run of its script."""
    message = BackMsg()
    getattr(message.backend_operation_request, name).SetInParent()
    return message


def test_what_pages_send_passes():
    kinds = [operation("deferred_file"), operation("dataframe_chunk"), BackMsg(stop_script=True), BackMsg()]
    kinds[-1].rerun_script.query_string = "run=1"
    assert all(gate._passes(message.SerializeToString()) for message in kinds)


def test_every_kind_of_message_that_streamlit_has_was_thought_of():
    """A new version may bring a kind that pages need, or one that must not pass."""
    left_out = {"clear_cache", "set_run_on_save", "load_git_info"}
    left_out |= {"debug_disconnect_websocket", "debug_shutdown_runtime"}
    kinds = {field.name for field in BackMsg.DESCRIPTOR.oneofs_by_name["type"].fields}
    assert kinds <= {*gate.MESSAGES, gate.REQUEST} | left_out
    asked = BackMsg().backend_operation_request.DESCRIPTOR.oneofs_by_name["payload"].fields
    assert {field.name for field in asked} <= {*gate.OPERATIONS, "install_skills", "dismiss_skills_nudge"}


def test_a_server_stops_although_an_open_tab_does_not_answer(monkeypatch):
    """A laptop that sleeps never takes leave: SIGTERM ends its server within seconds, and sweeps are closed."""
    closed = []
    monkeypatch.setattr(gate, "close_server", lambda: closed.append(time.monotonic()))

    async def send(tab):
        await tab.accept()
        while True:
            await tab.send_bytes(bytes(2**20))  # the tab does not read, so this waits

    app = Starlette(routes=[WebSocketRoute("/", send)], lifespan=gate.lifespan)
    server = uvicorn.Server(uvicorn.Config(gate.Gate(app), port=0, log_level="critical", ws="websockets-sansio"))

    def visit():
        while not server.started:
            time.sleep(0.02)
        with socket.create_connection(server.servers[0].sockets[0].getsockname()) as tab:
            lines = ("GET / HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket")
            lines += ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "")
            tab.sendall("\r\n".join(lines).encode())
            assert tab.recv(4096).startswith(b"HTTP/1.1 101")
            asked.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)
            left.wait(20)

    asked, left, before = [], threading.Event(), signal.signal(signal.SIGTERM, lambda *_: None)
    tab = threading.Thread(target=visit)
    tab.start()
    try:
        server.run()
    finally:
        left.set()
        tab.join()
        signal.signal(signal.SIGTERM, before)
    assert closed and time.monotonic() - asked[0] < 8


def test_a_served_instance_starts_its_workers_before_the_first_visitor(monkeypatch):
    """Who resumes a run after a restart waits for its cells only."""
    import serve

    asked, drawn, closed = threading.Event(), threading.Event(), []
    workers = SimpleNamespace(started=threading.Event())
    monkeypatch.setattr("serve.server_queue", lambda: asked.set() or workers)
    monkeypatch.setattr("serve.job_manager", lambda: None)
    monkeypatch.setattr("serve.gallery", drawn.set)
    monkeypatch.setattr(gate, "close_server", lambda: closed.append(drawn.is_set()))

    async def live():
        async with serve.life(None):
            assert await asyncio.to_thread(asked.wait, 20)
            assert not drawn.wait(0.2)  # the workers come first
            workers.started.set()
            assert await asyncio.to_thread(drawn.wait, 20)

    asyncio.run(live())
    assert closed == [True]


@pytest.fixture
def uploads(monkeypatch):
    """A server with 600 bytes of files, and one tab, of a visitor with the cookie "ann"."""
    held = SimpleNamespace(file_storage={"a tab": {"a file": SimpleNamespace(data=b"x" * 600)}})
    tab = SimpleNamespace(client_context=SimpleNamespace(cookies={COOKIE: "ann"}))
    server = SimpleNamespace(uploaded_file_mgr=held, get_client={"a-tab": tab}.get)
    monkeypatch.setattr(gate.runtime, "get_instance", lambda: server)
    return {"path": "/_stcore/upload_file/a-tab/1", "cookie": f"{COOKIE}=ann"}


def test_raw_uploads_have_a_cap_over_all_sessions(uploads, monkeypatch):
    monkeypatch.setenv("M2ST_MOST_UPLOAD_BYTES", "1000")
    assert answer(**uploads, method="PUT", content_length="400")[1] == 200
    assert answer(**uploads, method="PUT", content_length="401")[1] == answer(**uploads, method="PUT")[1] == 507
    assert answer(**uploads, method="DELETE")[1] == 200


def test_raw_uploads_of_one_visitor_leave_room_for_others(uploads, monkeypatch):
    monkeypatch.setenv("M2ST_MOST_UPLOAD_BYTES", "2000")
    gate.runtime.get_instance().uploaded_file_mgr.file_storage["a-tab"] = {"x": SimpleNamespace(data=b"x" * 600)}
    assert answer(**uploads, method="PUT", content_length="400")[1] == 200
    assert answer(**uploads, method="PUT", content_length="401")[1] == 507


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_files_of_another_s_tab_cannot_be_reached(uploads, method):
    assert answer(**uploads, method=method)[1] == 200
    for lie in ({"cookie": f"{COOKIE}=eve"}, {"cookie": ""}, {"path": "/_stcore/upload_file/other/1"}):
        assert answer(**uploads | lie, method=method)[1] == 404


class Files:
    def __init__(self, bytes):
        self.bytes, self.told = bytes, ""

    def release(self, reason):
        self.bytes, self.told = 0, reason


@pytest.fixture
def tabs(monkeypatch):
    """Sessions with files, which a test closes by name: (sessions, files, names of the open ones)."""
    names = ("old", "idle", "busy")
    known, files, open_ = {}, {}, set(names)
    monkeypatch.setattr(host, "_sessions", {})
    monkeypatch.setattr(Tab, "connected", property(lambda self: self.connection in open_))
    for index, name in enumerate(names):
        known[name], files[name] = Tab(), Files(100)
        known[name].connection = name
        known[name].hold(files[name])
        known[name].seen = time.monotonic() - 1000 + 400 * index if name != "busy" else time.monotonic()
        host._sessions[known[name].id] = known[name]
    return known, files, open_


def test_files_of_the_longest_idle_session_make_room_and_it_is_told(tabs, monkeypatch):
    known, files, _ = tabs
    monkeypatch.setenv("M2ST_MOST_UPLOAD_BYTES", "400")
    assert used_bytes() == 300 and make_room(known["busy"], 100) and used_bytes() == 300
    assert make_room(known["busy"], 150)
    assert files["old"].bytes == 0 and "Please upload them again" in files["old"].told
    assert files["idle"].bytes == files["busy"].bytes == 100
    assert not make_room(known["idle"], 350) and files["busy"].bytes == 100  # what is in use stays


def test_what_a_closed_tab_held_is_let_go(tabs):
    known, files, open_ = tabs
    ended = []
    at_session_end(ended.append)
    open_.discard("busy")
    end_closed_sessions(after=60)
    assert files["busy"].bytes == 100 and not ended  # it may only be reloading
    known["busy"].closed -= 61
    end_closed_sessions(after=60)
    assert files["busy"].bytes == 0 and ended == [known["busy"].id] and used_bytes() == 200
    open_.discard("idle")
    end_closed_sessions(after=60)
    open_.add("idle")  # it came back
    end_closed_sessions(after=60)
    assert not known["idle"].closed and files["idle"].bytes == 100
    host._at_end.remove(ended.append)


def test_a_closed_tab_s_session_goes_on_for_its_visitor_only(tabs):
    """Streamlit gives a session with all its files to whoever names its id, which is in the addresses of its files."""
    known, _, open_ = tabs
    open_.discard("idle")
    known["idle"].cookie = "ann"
    for cookie, expected in (("ann", "streamlit, token, idle"), ("eve", "streamlit, token"), ("", "streamlit, token")):
        words = {"cookie": f"{COOKIE}={cookie}", "sec_websocket_protocol": "streamlit, token, idle"}
        assert answer(kind="websocket", **words)[0]["sec-websocket-protocol"] == expected
    seen, _, _ = answer(kind="websocket", sec_websocket_protocol="streamlit")
    assert seen["sec-websocket-protocol"] == "streamlit"


def test_a_full_server_says_so(monkeypatch, tabs):
    def page():
        import streamlit as st

        from m2st_core.dashboard.jobs.host import host

        if host().admit():
            st.success("in")

    monkeypatch.setenv("M2ST_MOST_SESSIONS", "3")
    known, _, open_ = tabs
    for session in known.values():
        session.admitted = True
    app = AppTest.from_function(page, default_timeout=60).run()
    assert "All 3 places on this server are taken" in app.warning[0].value and not app.success
    open_.discard("idle")
    assert app.run().success


def test_without_a_name_nothing_is_shown_where_login_is_required(monkeypatch):
    def page():
        import streamlit as st

        from m2st_core.dashboard.widgets.page import run_page

        run_page(lambda: st.success("in"))

    monkeypatch.setenv("M2ST_LOGIN", "required")
    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception and app.title[0].value == "Please sign in" and not app.success
    monkeypatch.setattr("m2st_core.serving.visitors.user_info", lambda: LOGIN)
    assert app.run().success


def test_an_admin_sees_usage_and_no_names(monkeypatch, queue):
    def page():
        from m2st_core.dashboard.jobs.host import host

        host().show_visitor()

    queue.store.usage.add("0123456789abcdef", 90.0)
    monkeypatch.setattr("m2st_core.serving.visitors.server_queue", lambda: queue)
    monkeypatch.setattr("m2st_core.serving.visitors.user_info", lambda: LOGIN)
    app = AppTest.from_function(page, default_timeout=60).run()
    assert "Signed in as ann@example.org" in app.caption[0].value and not app.dataframe
    monkeypatch.setenv("M2ST_ADMINS", "ann@example.org, bob@example.org")
    app.run()
    assert not app.exception and app.dataframe[1].value.to_numpy().tolist() == [["01234567", 1.5]]
