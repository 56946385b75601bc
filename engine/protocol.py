"""The commands of the websocket protocol: what each one may carry, and how a frame is read and an answer written.

Reading a frame never trusts it: size, JSON, types and names are checked here, before anything else sees a value. Every
refusal is a :class:`CommandRefused` with a code and a sentence. The table of commands is in ``ARCHITECTURE.md``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from engine.errors import BatchscopeError, CommandRefused

try:  # several times faster than the standard library, and not needed for anything else
    import orjson
except ImportError:  # pragma: no cover - a GPU box with torch and transformers alone
    orjson = None

VERSION = 1
MAX_ID_LENGTH = 64

HOST, VIEWER = "host", "viewer"
ROLES = (HOST, VIEWER)


def encode(message: Any) -> str:
    """JSON text of a message, compact. Raises ``TypeError`` or ``ValueError`` for what JSON cannot say (a bug of the sender)."""
    if orjson is not None:
        return orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS).decode()
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ``ValueError`` for anything that is not strict JSON with well-formed Unicode."""
    if orjson is not None:
        return orjson.loads(text)
    try:
        value = json.loads(text, parse_constant=_no_constant)
        # The standard library lets half surrogate pairs through; they would break every later encoder.
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# --- the commands -------------------------------------------------------------------------------------------------------------

#: kind of a field → (python types, words for the error message)
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "object": ((dict,), "an object"),
    "list": ((list,), "a list"),
}


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What one command may carry. ``host``: changes what everybody in the room sees, so only a host of that room may.

    ``fields`` maps each name to its kind; a name with a trailing ``!`` must be present.
    """

    help: str
    fields: dict[str, str] = field(default_factory=dict)
    host: bool = False


_ROOM = {"room": "text"}

COMMANDS: dict[str, CommandSpec] = {
    "hello": CommandSpec(
        "Say who you are; the answer tells role, version, model and rooms. `key` makes you the same visitor as "
        "before a reconnection (page process only).",
        {"token": "text", "key": "text"},
    ),
    "subscribe": CommandSpec(
        "Receive a room's events, from `from_seq` of the same `life` where they are still known.",
        {**_ROOM, "from_seq": "int", "life": "text"},
    ),
    "unsubscribe": CommandSpec("Stop receiving a room's events.", dict(_ROOM)),
    "snapshot": CommandSpec("The room's whole state.", dict(_ROOM)),
    "submit": CommandSpec(
        "Queue one request, or several with `requests`.",
        {
            **_ROOM,
            "prompt": "text",
            "messages": "list",
            "prompt_tokens": "list",
            "requests": "list",
            "chat": "bool",
            "params": "object",
        },
    ),
    "cancel": CommandSpec("Cancel one request.", {**_ROOM, "request!": "text"}),
    "cancel_all": CommandSpec("Cancel every request you may cancel.", dict(_ROOM)),
    "configure": CommandSpec("Change knobs of the room.", {**_ROOM, "changes!": "object"}, host=True),
    "pause": CommandSpec("Stop before the next step.", dict(_ROOM), host=True),
    "resume": CommandSpec("Go on after a pause.", dict(_ROOM), host=True),
    "step": CommandSpec("Run `count` steps and pause.", {**_ROOM, "count": "int"}, host=True),
    "pace": CommandSpec("Limit the steps per second (0: unlimited).", {**_ROOM, "steps_per_second!": "number"}, host=True),
    "reset": CommandSpec("Empty queue, cache and counters.", dict(_ROOM), host=True),
    "workload": CommandSpec("Run a generated workload.", {**_ROOM, "workload!": "object"}, host=True),
    "workload_stop": CommandSpec("Stop the running workload.", dict(_ROOM), host=True),
    "rooms": CommandSpec("The rooms you may see."),
    "create_room": CommandSpec(
        "A new room of your own.",
        {
            "name": "text",
            "title": "text",
            "public": "bool",
            "config": "object",
            "device": "text",
            "model": "text",
            "paused": "bool",
        },
    ),
    "close_room": CommandSpec("Close a room.", {"room!": "text"}, host=True),
    "fork": CommandSpec(
        "A new room that re-runs this one (or a `journal`) up to `step` and goes on with `changes`.",
        {**_ROOM, "step": "int", "changes": "object", "journal": "object", "title": "text"},
    ),
    "journal": CommandSpec("All that is needed to run the room's history again.", dict(_ROOM)),
    "catalog": CommandSpec("Knobs, presets, simulated devices and models."),
}

#: allowed on every command: the number of the command, its name, and for whom the page process speaks
ENVELOPE = ("id", "cmd", "on_behalf")


@dataclass(slots=True)
class Command:
    """A checked command: ``fields`` holds only known names with values of the right kind."""

    id: int | str | None
    name: str
    fields: dict[str, Any]
    on_behalf: dict[str, Any] | None = None

    @property
    def spec(self) -> CommandSpec:
        return COMMANDS[self.name]

    @property
    def room(self) -> str:
        return self.fields.get("room", "main")


class FrameRefused(CommandRefused):
    """A frame that could not be read; ``id`` is the command's number where that much could be understood."""

    def __init__(self, code: str, message: str, id: int | str | None = None) -> None:
        super().__init__(code, message)
        self.id = id


def too_fast(frame: str | bytes, per_second: float) -> FrameRefused:
    """The refusal of a frame beyond the allowed rate. It names the command's id, or its sender would wait for ever."""
    try:
        number = decode(frame).get("id")
    except (ValueError, RecursionError, AttributeError):
        number = None
    if isinstance(number, bool) or not isinstance(number, (int, str)) or len(str(number)) > MAX_ID_LENGTH:
        number = None
    return FrameRefused("too_fast", f"More than {per_second:g} messages a second; slow down.", number)


def parse_command(frame: str | bytes) -> Command:
    """Read one frame. Raises :class:`FrameRefused`."""
    if isinstance(frame, (bytes, bytearray, memoryview)):
        raise FrameRefused("binary_frame", "Commands are JSON texts; this frame was binary.")
    try:
        value = decode(frame)
    except (ValueError, RecursionError):
        raise FrameRefused("bad_json", 'This frame is not JSON; send one object such as {"id": 1, "cmd": "rooms"}.') from None
    if not isinstance(value, dict):
        raise FrameRefused("not_an_object", f"A command is a JSON object, not {_noun(value)}.")
    number = value.get("id")
    if isinstance(number, bool) or not isinstance(number, (int, str, type(None))) or len(str(number)) > MAX_ID_LENGTH:
        raise FrameRefused("bad_id", f"id must be a whole number or a text of at most {MAX_ID_LENGTH} characters.")
    name = value.get("cmd")
    if not isinstance(name, str):
        raise FrameRefused("no_command", "The field cmd must name a command, as a text.", number)
    spec = COMMANDS.get(name)
    if spec is None:
        raise FrameRefused(
            "unknown_command", f"There is no command named {name[:40]!r}; the commands are {', '.join(COMMANDS)}.", number
        )
    return Command(number, name, _checked_fields(name, spec, value, number), _checked_on_behalf(value, number))


def _checked_fields(name: str, spec: CommandSpec, value: dict[str, Any], number: int | str | None) -> dict[str, Any]:
    wanted = {key.rstrip("!"): kind for key, kind in spec.fields.items()}
    fields: dict[str, Any] = {}
    for key, item in value.items():
        if key in ENVELOPE or (key == "room" and "room" not in wanted and isinstance(item, str)):
            continue  # a client may name its room with every command
        if key not in wanted:
            known = ", ".join(wanted) or "none"
            raise FrameRefused("unknown_field", f"{name} has no field {key[:40]!r}; its fields are: {known}.", number)
        if item is None:
            continue  # an optional field sent as null is the same as leaving it out
        types, words = KINDS[wanted[key]]
        # bool is an int in Python; true where a number belongs is a mistake worth naming.
        if not isinstance(item, types) or (isinstance(item, bool) and wanted[key] != "bool"):
            raise FrameRefused("bad_field", f"{name}: {key} must be {words}, not {_noun(item)}.", number)
        fields[key] = item
    for key in spec.fields:
        if key.endswith("!") and key[:-1] not in fields:
            raise FrameRefused("missing_field", f"{name} needs the field {key[:-1]}.", number)
    if len(fields.get("room", "")) > 64:
        raise FrameRefused("no_such_room", "A room's name has at most 64 characters.", number)
    return fields


def _checked_on_behalf(value: dict[str, Any], number: int | str | None) -> dict[str, Any] | None:
    behalf = value.get("on_behalf")
    if behalf is None:
        return None
    if (
        not isinstance(behalf, dict)
        or set(behalf) - {"role", "visitor"}
        or behalf.get("role", VIEWER) not in ROLES
        or not isinstance(behalf.get("visitor", ""), str)
        or len(behalf.get("visitor", "")) > 64
    ):
        raise FrameRefused(
            "bad_field", "on_behalf must be an object with role (host or viewer) and visitor (a short text).", number
        )
    return behalf


def _noun(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"


# --- answers ------------------------------------------------------------------------------------------------------------------


def ack(number: int | str | None, result: Any) -> str:
    return encode({"type": "ack", "id": number, "result": result})


def error(number: int | str | None, problem: BatchscopeError) -> str:
    return encode({"type": "error", "id": number, "code": problem.code, "message": problem.message})
