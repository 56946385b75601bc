"""What was asked of a room's engine, by turn: with the config it began with, enough to run it again and to fork it anywhere.

A run is a function of (model, config, workload, seed). Entries carry the turn of the engine at which they were obeyed, not
the time of day, so the same journal gives the same run on a slower machine. The engine keeps the entries
(``Engine.journal``); this module bounds, checks and replays them.
"""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from engine.errors import BatchscopeError, CommandRefused
from engine.sampling_params import SamplingParams

VERSION = 1
OPERATIONS = {
    "submit": ("tokens", "params", "prompt_text", "visitor", "request_id", "seed_index", "arrival"),
    "cancel": ("id",),
    "configure": ("changes",),
    "reset": (),
}
FIELDS = ("version", "device", "model", "config", "entries")


def journal_document(entries: list[dict[str, Any]], config: dict[str, Any], device: str, model: str | None) -> dict[str, Any]:
    """The journal as it travels, JSON-ready."""
    return {"version": VERSION, "device": device, "model": model, "config": config, "entries": list(entries)}


def check_journal(value: Any, limit: int) -> dict[str, Any]:
    """A journal from outside, checked field by field. Raises :class:`CommandRefused` naming the entry that is wrong."""
    if not isinstance(value, dict) or value.get("version") != VERSION or set(value) - set(FIELDS):
        raise _refused(f"A journal is an object with version {VERSION}, device, model, config and entries.")
    if not isinstance(value.get("device", "model"), str) or not isinstance(value.get("model"), (str, type(None))):
        raise _refused("The journal's device must be a text, and its model a text or null.")
    entries = value.get("entries")
    if not isinstance(entries, list) or len(entries) > limit:
        raise _refused(f"The journal's entries must be a list of at most {limit}.")
    try:
        EngineConfig.from_dict(value.get("config", {}))
    except BatchscopeError as problem:
        raise _refused(f"The journal's config does not work: {problem.message}") from None
    before = 0
    for number, entry in enumerate(entries):
        before = _check_entry(entry, f"Journal entry {number + 1}", before)
    return value


def _check_entry(entry: Any, where: str, before: int) -> int:
    if not isinstance(entry, dict) or entry.get("op") not in OPERATIONS:
        raise _refused(f"{where} must be an object whose op is one of {', '.join(OPERATIONS)}.")
    unknown = set(entry) - {"turn", "step", "op", *OPERATIONS[entry["op"]]}
    if unknown:
        raise _refused(f"{where} has an unknown field {str(min(unknown))[:40]!r}.")
    for name in ("turn", "step"):
        if isinstance(entry.get(name), bool) or not isinstance(entry.get(name), int) or entry[name] < 0:
            raise _refused(f"{where}: {name} must be a whole number.")
    if entry["turn"] < before:
        raise _refused(f"{where}: its turn lies before that of the entry above it.")
    if entry["op"] == "submit":
        tokens = entry.get("tokens")
        if not isinstance(tokens, list) or any(
            isinstance(token, bool) or not isinstance(token, int) or token < 0 for token in tokens
        ):
            raise _refused(f"{where}: tokens must be a list of token numbers.")
        texts = (entry.get("prompt_text", ""), entry.get("visitor") or "", entry.get("request_id") or "")
        if not all(isinstance(text, str) for text in texts) or not isinstance(entry.get("seed_index", 0), int):
            raise _refused(f"{where}: prompt_text, visitor and request_id must be texts, and seed_index a whole number.")
        arrival = entry.get("arrival")
        if arrival is not None and (isinstance(arrival, bool) or not isinstance(arrival, (int, float)) or not arrival >= 0):
            raise _refused(f"{where}: arrival must be a number of seconds.")
        try:
            SamplingParams.from_dict(entry.get("params", {}))
        except BatchscopeError as problem:
            raise _refused(f"{where}: {problem.message}") from None
    elif entry["op"] == "cancel" and not isinstance(entry.get("id"), str):
        raise _refused(f"{where}: id must be a text.")
    elif entry["op"] == "configure" and not isinstance(entry.get("changes"), dict):
        raise _refused(f"{where}: changes must be an object.")
    return entry["turn"]


def _refused(sentence: str) -> CommandRefused:
    return CommandRefused("bad_journal", sentence)


class Replay:
    """Obeys the entries of a journal at their turns, up to the engine step ``until`` (``None``: until nothing is left)."""

    def __init__(self, entries: list[dict[str, Any]], until: int | None) -> None:
        self.entries = [entry for entry in entries if until is None or entry["step"] <= until][::-1]  # the next one is last
        self.until = until

    def obey_due(self, engine: Any) -> None:
        """Obey what is due before the engine's next turn. Raises :class:`BatchscopeError` when the engine refuses one."""
        # With nothing to do no turn will ever come, so the next entry is due whatever its turn says.
        while self.entries and (self.entries[-1]["turn"] <= engine.turns or not engine.has_work):
            entry = self.entries.pop()
            if entry["op"] == "submit":
                engine.submit(
                    entry["tokens"],
                    SamplingParams.from_dict(entry["params"]),
                    prompt_text=entry.get("prompt_text", ""),
                    visitor=entry.get("visitor"),
                    request_id=entry.get("request_id"),
                    seed_index=entry.get("seed_index", 0),
                    arrival=entry.get("arrival"),
                )
            elif entry["op"] == "cancel":
                engine.cancel(entry["id"])
            elif entry["op"] == "configure":
                engine.configure(entry["changes"])
            else:
                engine.reset()

    def done(self, engine: Any) -> bool:
        if self.until is not None and engine.step_index >= self.until:
            return True
        return not self.entries and not engine.has_work
