"""Who is who: the host's secret, the origin of a websocket, and the headers that keep a page to itself."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from engine.protocol import HOST, VIEWER

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one page process.

    ``public``: strangers visit; nobody is host but by the secret. ``local_host``: whoever opens the page on this very machine
    is host. ``origins``: further origins (``https://name``) whose pages may open the websocket.
    """

    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    public: bool = False
    local_host: bool = True
    origins: tuple[str, ...] = ()

    def role(self, scope: Mapping[str, Any], given: str | None) -> str:
        """``host`` or ``viewer`` for an HTTP or websocket request. ``given`` is what was shown as the secret."""
        if given is not None and hmac.compare_digest(given.encode(), self.secret.encode()):
            return HOST
        return HOST if self.local_host and not self.public and _from_this_machine(scope) else VIEWER

    def origin_allowed(self, scope: Mapping[str, Any]) -> bool:
        """A browser tells which page opened the websocket; only our own page may. Programs send no origin."""
        origin = _header(scope, b"origin")
        if origin is None:
            return True
        if origin in self.origins:
            return True
        asked = urlsplit(origin)
        if asked.scheme not in ("http", "https") or not asked.hostname:
            return False
        names = (_header(scope, b"host"), _header(scope, b"x-forwarded-host"))
        return any(name and _same_place(asked, name.split(",")[0].strip()) for name in names)


def _same_place(origin: Any, host: str) -> bool:
    """Whether ``host`` (a Host header) names the origin's place. A proxy may have stripped the port."""
    try:
        here = urlsplit(f"//{host}")
        ports_differ = here.port is not None and here.port != (origin.port or (443 if origin.scheme == "https" else 80))
    except ValueError:
        return False
    return here.hostname == origin.hostname and not ports_differ


def _from_this_machine(scope: Mapping[str, Any]) -> bool:
    """The peer is this machine, called by a local name, and nobody has forwarded the request.

    The name matters: a foreign page whose domain was pointed at 127.0.0.1 would come from here too. Proxies on this machine
    give themselves away by their headers.
    """
    client = scope.get("client")
    if client is None or any(
        _header(scope, name) for name in (b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"forwarded", b"via")
    ):
        return False
    try:
        local = ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
    host = _header(scope, b"host") or ""
    try:
        return local and (urlsplit(f"//{host}").hostname or "") in LOCAL_NAMES
    except ValueError:
        return False


def _header(scope: Mapping[str, Any], name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def visitor_tag(key: str) -> str:
    """The public tag of a visitor. It stands on every request in the stream, so the secret key must not follow from it."""
    return "v" + hashlib.sha256(b"batchscope visitor " + key.encode()).hexdigest()[:12]


def new_visitor_key() -> str:
    return secrets.token_urlsafe(16)


def security_headers(frame_ancestors: str) -> list[tuple[bytes, bytes]]:
    """Headers for every answer.

    Gradio's page needs inline scripts, inline styles and ``eval`` (its components compile their ``js_on_load``); everything
    else is kept to this origin: no script, font, image or connection from or to anywhere else.
    """
    policy = "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self' data: blob:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            f"frame-ancestors {frame_ancestors}",
        )
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=()"),
    ]


class SecurityHeaders:
    """ASGI middleware that adds :func:`security_headers` to every HTTP answer."""

    def __init__(self, app: Any, frame_ancestors: str = "'self'") -> None:
        self.app = app
        self.headers = security_headers(frame_ancestors)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in self.headers}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
                message = {**message, "headers": kept + self.headers}
            await send(message)

        await self.app(scope, receive, send_with_headers)
