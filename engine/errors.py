"""Errors that speak to a person: what is wrong, where, and what to do, in one sentence.

Each error carries a short machine-readable ``code`` that travels in the websocket answer, so a client can
tell "prompt too long" from "queue full" without parsing English.
"""

from __future__ import annotations


class BatchscopeError(Exception):
    """Base of every error meant for a person. ``code`` is a stable snake_case name, ``str(error)`` the sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RequestRefused(BatchscopeError):
    """A request that the engine will not accept, refused at the door; no other request notices."""


class ConfigRefused(BatchscopeError):
    """A configuration that cannot work; the engine goes on with the one it had."""


class CommandRefused(BatchscopeError):
    """A command that is unknown, malformed or not allowed for this role; nothing was changed."""


class ModelUnavailable(BatchscopeError):
    """No model could be found or loaded; the message names each place that was tried."""


class CapacityExceeded(BatchscopeError):
    """A plan that does not fit the memory of the device."""


class IntegrityError(AssertionError):
    """An invariant of the cache, the queues or the budgets does not hold: a bug in the engine, never a user's fault."""
