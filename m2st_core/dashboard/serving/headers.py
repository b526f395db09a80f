"""The headers of a served instance: who may frame its pages, and what they may load."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

import streamlit

from m2st_core.environment import frame_ancestors


def protective_headers() -> dict[str, str]:
    """Headers of every answer: who may frame it, what its pages may load, and no address of ours to other sites."""
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


@cache
def _inline_scripts() -> str:
    """The hashes of the scripts inside streamlit's page, which may run although they are not in files."""
    page = Path(streamlit.__file__).parent / "static" / "index.html"
    scripts = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
