"""The example files for nginx work as they stand: under a sub-path, with websockets, and with an engine over wss."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.deploy.nginx import PATIENCE, ROOT, nginx
from tests.ports import held_port
from tests.server.helpers import Raw
from tests.server.page import SECRET, Page, running

PREFIX = "/batchscope"


@pytest.fixture(scope="module")
def site():
    """Address of the app behind nginx, without a slash at the end."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())
        page = Page("--root-path", PREFIX)
        stack.callback(page.stop)
        # What it printed is the public address; here the test is still on the inner side of the proxy.
        page.url = page.url.removesuffix(PREFIX)
        page.until_ready()
        app_port = page.url.rsplit(":", 1)[1]
        exchanged = {"listen 80;": f"listen 127.0.0.1:{port};", "127.0.0.1:7860": f"127.0.0.1:{app_port}"}
        stack.enter_context(nginx("nginx.conf.example", exchanged, port))
        yield f"http://127.0.0.1:{port}"


def fetch(url: str) -> tuple[str, str]:
    """Body and final address."""
    with urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode(), answer.geturl()


@contextlib.asynccontextmanager
async def websocket(site: str, query: str = "", **options):
    address = f"{site.replace('http', 'ws', 1)}{PREFIX}/ws{query}"
    async with connect(address, max_size=None, **options) as socket:
        yield Raw(socket)


def test_health_and_metrics_are_reached_under_the_sub_path(site):
    assert json.loads(fetch(f"{site}{PREFIX}/healthz")[0])["engine"]
    assert "# HELP" in fetch(f"{site}{PREFIX}/metrics")[0]


def test_the_bare_sub_path_leads_to_the_page(site):
    request = Request(f"{site}{PREFIX}")
    with urlopen(request, timeout=PATIENCE) as answer:
        assert answer.geturl().endswith(f"{PREFIX}/")


def test_nothing_is_served_beside_the_sub_path(site):
    with pytest.raises(HTTPError, match="404"):
        fetch(f"{site}/healthz")


def test_the_browser_modules_come_through_the_proxy(site):
    body, _ = fetch(f"{site}{PREFIX}/viz/main.js")
    for name in re.findall(r'from "\./([\w./-]+\.js)"', body):
        assert fetch(f"{site}{PREFIX}/viz/{name}")[0]


async def test_the_websocket_streams_a_request_through_the_proxy(site):
    async with websocket(site, f"?host={SECRET}", origin=site) as client:
        await client.ok("subscribe", room="main")
        submitted = await client.ok("submit", room="main", prompt="one two three", params={"max_new_tokens": 5})
        texts = []
        finished = False
        while not finished:
            message = client.events.pop(0) if client.events else await client.receive()
            texts += [token["text"] for token in message.get("tokens") or () if token["id"] == submitted["ids"][0]]
            finished = any(change["to"] == "finished" for change in message.get("transitions") or ())
        assert len(texts) == 5


async def test_nobody_is_local_behind_the_proxy(site):
    """nginx connects from this machine; the headers it adds must keep its visitors from being taken for the host."""
    async with websocket(site, origin=site) as client:
        assert (await client.ok("hello"))["role"] == "viewer"
        assert await client.refused("pause", room="main") == "host_only"
    async with websocket(site, f"?host={SECRET}", origin=site) as client:
        assert (await client.ok("hello"))["role"] == "host"


async def test_a_foreign_page_cannot_open_the_websocket_through_the_proxy(site):
    with pytest.raises(InvalidStatus, match="403"):
        async with websocket(site, origin="https://elsewhere.example"):
            pass


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A certificate for localhost that nobody has signed, and its key beside it."""
    if shutil.which("openssl") is None:
        pytest.fail("The test of wss needs openssl: install it (Debian: apt-get install openssl).")
    path = tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key.pem"), "-out", str(path)],
                   check=True, capture_output=True)
    return path


@contextlib.contextmanager
def token_engine(token: str):
    """``python -m engine`` on a simulated device with a token; yields its port."""
    command = [sys.executable, "-m", "engine", "--port", "0", "--device", "simulated:h100", "--model", "llama-8b",
               "--token-env", "ENGINE_TOKEN", "--announce"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "ENGINE_TOKEN": token})
    try:
        yield json.loads(process.stdout.readline())["port"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        process.stdout.close()


async def test_a_page_attaches_to_a_remote_engine_with_a_token_over_wss(certificate):
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())
        exchanged = {"listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;", "/etc/ssl/certs/gpu.example.org.pem": str(certificate),
                     "/etc/ssl/private/gpu.example.org.key": str(certificate.with_name("key.pem"))}
        address = f"wss://localhost:{port}/engine"
        exchanged["127.0.0.1:8765"] = f"127.0.0.1:{stack.enter_context(token_engine('sesame'))}"
        stack.enter_context(nginx("nginx-engine.conf.example", exchanged, port))
        # Without the token the engine takes the proxy's visitors for viewers, although they come from this machine.
        async with connect(address, ssl=ssl.create_default_context(cafile=certificate), max_size=None) as socket:
            assert (await Raw(socket).ok("hello"))["role"] == "viewer"
        with running("--engine", address, "--engine-token-env", "ENGINE_TOKEN",
                     environment={"ENGINE_TOKEN": "sesame", "SSL_CERT_FILE": str(certificate)}) as page:
            async with connect(page.ws + f"?host={SECRET}", max_size=None) as socket:
                client = Raw(socket)
                assert (await client.ok("hello"))["role"] == "host"
                await client.ok("configure", room="main", changes={"max_batch_tokens": 48})
                assert page.health()["engine"]
