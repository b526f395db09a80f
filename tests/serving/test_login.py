"""Signing in with an identity provider: a stub of one on loopback, and streamlit's own way there and back."""

import asyncio
import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from streamlit import user_info
from streamlit.runtime.secrets import secrets_singleton
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette.starlette_app import create_streamlit_middleware
from streamlit.web.server.starlette.starlette_auth_routes import create_auth_routes
from streamlit.web.server.starlette.starlette_websocket import (
    USER_COOKIE_NAME,
    _get_signed_cookie_with_chunks,
    _parse_decoded_user_cookie,
)

from m2st_core.dashboard.jobs.host import Host, register_host
from m2st_core.serving.gate import Gate
from m2st_core.serving.visitors import SharedHost, can_log_in, identify_visitor

OWN, FOREIGN = (RSAKey.generate_key(2048, {"kid": "1"}) for _ in range(2))
ORIGIN = "http://localhost:8501"
CLIENT = {"client_id": "m2st", "client_secret": "s3cret"}


class Provider(BaseHTTPRequestHandler):
    """An identity provider that lets Ann in without asking."""

    key = OWN
    asked: dict[str, str] = {}

    def do_GET(self):
        url = urlsplit(self.path)
        here = f"http://127.0.0.1:{self.server.server_port}"
        if url.path == "/authorize":
            type(self).asked = {name: values[0] for name, values in parse_qs(url.query).items()}
            back = urlencode({"code": "c0de", "state": self.asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{self.asked['redirect_uri']}?{back}")
            self.end_headers()
            return
        pages = {
            f"{name}_endpoint": f"{here}/{path}" for name, path in (("authorization", "authorize"), ("token", "token"))
        }
        known = {"issuer": here, "jwks_uri": f"{here}/jwks", "code_challenge_methods_supported": ["S256"], **pages}
        algorithms = {"id_token_signing_alg_values_supported": ["RS256"]}
        self.answer({"keys": [OWN.as_dict(private=False)]} if url.path == "/jwks" else known | algorithms)

    def do_POST(self):
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        digest = hashlib.sha256(given["code_verifier"][0].encode()).digest()
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == self.asked["code_challenge"]
        assert given["code"] == ["c0de"]
        claims = {"iss": f"http://127.0.0.1:{self.server.server_port}", "aud": "m2st", "sub": "42"}
        claims |= {
            "email": "ann@example.org",
            "nonce": self.asked["nonce"],
            "iat": time.time(),
            "exp": time.time() + 60,
        }
        signed = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)
        self.answer({"access_token": "t0ken", "token_type": "Bearer", "expires_in": 60, "id_token": signed})

    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def provider(monkeypatch):
    """The stub's address, which the secrets name."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        stub = CLIENT | {"server_metadata_url": f"{address}/.well-known/openid-configuration"}
        auth = {"redirect_uri": f"{ORIGIN}/oauth2callback", "cookie_secret": "a long random text " * 2, "stub": stub}
        monkeypatch.setattr(secrets_singleton, "_secrets", {"auth": auth})
        register_host(SharedHost())
        can_log_in.cache_clear()
        yield address
        register_host(Host())
        can_log_in.cache_clear()
        server.shutdown()


def press_sign_in(monkeypatch):
    """The address to which the page's button sends the browser."""

    def page():
        from m2st_core.dashboard.jobs.host import host

        host().show_visitor()

    sent, make = [], user_info.generate_login_redirect_url
    monkeypatch.setattr(user_info, "generate_login_redirect_url", lambda name: sent.append(make(name)) or sent[-1])
    app = AppTest.from_function(page, default_timeout=60).run()
    app.button(key="sign_in_stub").click().run()
    assert not app.exception
    return sent[0]


async def sign_in(start, *, lose_session=False):
    """Follow the way from the button to the provider and back; return the identity that the server then knows."""
    served = Gate(Starlette(routes=create_auth_routes(""), middleware=create_streamlit_middleware()))
    browser = httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url=ORIGIN)
    async with browser, httpx.AsyncClient() as outside:
        away = await browser.get(start)
        back = await outside.get(away.headers["location"])
        if lose_session:
            browser.cookies.clear()
        home = await browser.get(back.headers["location"])
        assert home.status_code == 302 and home.headers["location"] == "/"
        decoded = _get_signed_cookie_with_chunks(dict(browser.cookies), USER_COOKIE_NAME)
    user = _parse_decoded_user_cookie(decoded, ORIGIN) if decoded else {}
    return identify_visitor(user, {}, {})


def test_a_login_is_an_identity(provider, monkeypatch):
    start = press_sign_in(monkeypatch)
    assert asyncio.run(sign_in(start)) == ("login", f"{provider} 42", "ann@example.org")
    assert asyncio.run(sign_in(start, lose_session=True))[0] == "tab"  # another's way back, followed by a stranger
    monkeypatch.setattr(Provider, "key", FOREIGN)
    assert asyncio.run(sign_in(start))[0] == "tab"  # not signed by the provider
