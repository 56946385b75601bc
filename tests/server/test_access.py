"""Who is host, and which page may open the websocket: every combination that matters."""

from __future__ import annotations

import pytest

from viz.access import Access, visitor_tag

SECRET = "s" * 22


def scope(client: str = "127.0.0.1", **headers: str) -> dict:
    return {
        "client": (client, 5000),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


@pytest.mark.parametrize(
    "public, local, client, headers, given, role",
    [
        (False, True, "127.0.0.1", {"host": "127.0.0.1:7860"}, None, "host"),
        (False, True, "127.0.0.1", {"host": "localhost:7860"}, None, "host"),
        (False, True, "::1", {"host": "[::1]:7860"}, None, "host"),
        (False, True, "127.0.0.1", {"host": "rebound.example:7860"}, None, "viewer"),
        (False, True, "127.0.0.1", {"host": "127.0.0.1", "x_forwarded_for": "10.0.0.9"}, None, "viewer"),
        (False, True, "127.0.0.1", {"host": "127.0.0.1", "x_real_ip": "10.0.0.9"}, None, "viewer"),
        (False, True, "127.0.0.1", {"host": "127.0.0.1", "forwarded": "for=10.0.0.9"}, None, "viewer"),
        (False, True, "10.0.0.9", {"host": "127.0.0.1:7860"}, None, "viewer"),
        (False, True, "127.0.0.1", {}, None, "viewer"),
        (False, True, "testclient", {"host": "localhost"}, None, "viewer"),
        (False, False, "127.0.0.1", {"host": "localhost"}, None, "viewer"),
        (True, True, "127.0.0.1", {"host": "localhost"}, None, "viewer"),
        (True, True, "10.0.0.9", {"host": "class.example"}, SECRET, "host"),
        (False, False, "10.0.0.9", {"host": "class.example"}, SECRET, "host"),
        (True, True, "10.0.0.9", {"host": "class.example"}, SECRET[:-1], "viewer"),
        (True, True, "10.0.0.9", {"host": "class.example"}, "", "viewer"),
        (True, True, "10.0.0.9", {"host": "class.example"}, "é" * 22, "viewer"),
    ],
)
def test_the_role_follows_from_secret_place_and_name(public, local, client, headers, given, role):
    assert Access(secret=SECRET, public=public, local_host=local).role(scope(client, **headers), given) == role


@pytest.mark.parametrize(
    "headers, allowed",
    [
        ({"host": "a.example"}, True),
        ({"host": "a.example", "origin": "https://a.example"}, True),
        ({"host": "a.example:7860", "origin": "http://a.example:7860"}, True),
        ({"host": "a.example", "origin": "http://a.example:8080"}, True),
        ({"host": "a.example:7860", "origin": "http://a.example"}, False),
        ({"host": "a.example:7860", "origin": "http://a.example:9"}, False),
        ({"host": "a.example", "origin": "https://b.example"}, False),
        ({"host": "a.example", "origin": "https://a.example.b.example"}, False),
        ({"host": "127.0.0.1:7860", "x_forwarded_host": "a.example", "origin": "https://a.example"}, True),
        ({"host": "a.example", "origin": "null"}, False),
        ({"host": "a.example", "origin": "file://"}, False),
        ({"host": "a.example", "origin": "chrome-extension://abc"}, False),
        ({"host": "a.example", "origin": "https://partner.example"}, True),
        ({"host": "a.example:bad", "origin": "https://a.example"}, False),
        ({"origin": "https://a.example"}, False),
    ],
)
def test_only_our_own_page_and_named_partners_may_connect(headers, allowed):
    assert Access(origins=("https://partner.example",)).origin_allowed(scope(**headers)) is allowed


def test_the_secret_is_random_and_not_in_the_representation():
    one, other = Access(), Access()
    assert one.secret != other.secret and len(one.secret) >= 22
    assert one.secret not in repr(one)


def test_a_tag_is_the_same_for_a_key_and_tells_nothing_of_it():
    assert visitor_tag("key") == visitor_tag("key") != visitor_tag("kez")
    assert len(visitor_tag("key")) == 13
