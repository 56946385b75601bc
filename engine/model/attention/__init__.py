"""Attention over the paged cache: one small interface, several backends, and the choice among them."""

from __future__ import annotations

from engine.model.attention.base import AttentionBackend, Place
from engine.model.attention.flash import FlashBackend
from engine.model.attention.native import NativeBackend
from engine.model.attention.sdpa import SdpaBackend
from engine.model.attention.varlen import VarlenBackend

#: Fastest first. Those whose package or device is missing are here too; ``why_not`` says so.
BACKENDS: dict[str, type[AttentionBackend]] = {
    "flash": FlashBackend,
    "varlen": VarlenBackend,
    "native": NativeBackend,
    "sdpa": SdpaBackend,
}


def choose_backend(name: str, place: Place) -> tuple[AttentionBackend, list[str]]:
    """The backend called ``name``, or for ``auto`` the fastest that works at ``place``, and sentences about what was not
    possible. A named backend that cannot work is replaced by the automatic choice, and a sentence says so."""
    notes: list[str] = []
    if name != "auto":
        why = _why_not(BACKENDS[name], place)
        if why is None:
            return BACKENDS[name](), notes
        notes.append(f"The attention backend {name} is not used: {why}.")
    for backend in BACKENDS.values():
        if _why_not(backend, place) is None:
            return backend(), notes
    raise AssertionError("the sdpa backend works everywhere")


def _why_not(backend: type[AttentionBackend], place: Place) -> str | None:
    if place.sinks and not backend.takes_sinks:
        return "this model has attention sinks, which it does not know"
    return backend.why_not(place)
