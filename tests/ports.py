"""Ports for servers that are started later, by a number that has to be known before."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A free loopback port that stays free: as long as a socket is bound to it, the system gives it to nobody who asks for any
    port, and to no outgoing connection. A server that asks for this one gets it, because the holder does not listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
