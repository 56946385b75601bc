"""A recording: one run of one room as a file that anybody can open, replay, export and fork from.

The file is ``.jsonl.gz``: gzip around lines of JSON.

    line 1    the run card      {"format": "batchscope-recording", "version": 1, "model": …, "config": …, …}
    line 2    a snapshot        the room's state before the first event
    line 3…   events            consecutive ``seq``, exactly as the room emitted them

Nothing in it is code and nothing is ever unpickled. Files come from strangers, so reading is bounded in every direction
(bytes packed, bytes unpacked, lines, length and nesting of a line) and every refusal names the line and says what to do.
Unpacking is incremental: a gzip bomb is refused after :attr:`Limits.unpacked` bytes, however small the file was.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import BatchscopeError
from engine.state import SequenceGap, apply_event

FORMAT = "batchscope-recording"
VERSION = 1
EVENT_TYPES = ("step", "submit", "cancel", "config", "engine")
GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 64 * 1024


class RecordingRefused(BatchscopeError):
    """A file that is not a recording, is damaged, or is larger than this reader accepts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of what a reader accepts. Sizes in bytes; ``depth`` counts nested lists and objects."""

    packed: int = 64 * 2**20
    unpacked: int = 512 * 2**20
    line: int = 16 * 2**20
    lines: int = 500_000
    depth: int = 24


@dataclass(slots=True)
class Recording:
    """A parsed recording. ``header`` is the run card; ``snapshot`` and ``events`` are messages as the room sent them."""

    header: dict[str, Any]
    snapshot: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def first_step(self) -> int:
        return int(self.snapshot["state"].get("step", 0))

    @property
    def last_step(self) -> int:
        """Index of the last step any event launched; the snapshot's when none did."""
        return next((int(event["step"]) for event in reversed(self.events) if "step" in event), self.first_step)


def run_card(snapshot: dict[str, Any], *, workload: Any = None, versions: dict[str, str] | None = None, started: str = "",
             title: str = "", journal: Any = None) -> dict[str, Any]:
    """The first line of a recording, taken from the room's own state so that it cannot claim another machine.

    ``started`` is an ISO 8601 time. ``journal`` is what the room answered to ``journal``; with it the run can be forked.
    """
    state = snapshot["state"]
    engine, config = state.get("engine") or {}, state.get("config") or {}
    card = {"format": FORMAT, "version": VERSION, "title": title, "room": snapshot.get("room", ""), "started": started,
            "model": engine.get("model", ""), "device": engine.get("device", ""), "dtype": engine.get("dtype", ""),
            "backend": engine.get("backend", ""), "executor": engine.get("executor", ""),
            "simulated": bool(engine.get("simulated")), "versions": versions or {}, "config": config,
            "seed": config.get("seed"), "workload": workload}
    if journal is not None:
        card["journal"] = journal
    return card


# --- writing ---------------------------------------------------------------------------------------------------------

class RecordingWriter:
    """Writes a recording line by line, so that a long run is never held in memory twice. Use as a context manager.

    The same run gives the same bytes: the gzip header carries no time and no file name.
    """

    def __init__(self, target: BinaryIO, header: dict[str, Any], snapshot: dict[str, Any]) -> None:
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=9)
        self._write(header)
        self._write(snapshot)

    def add(self, event: dict[str, Any]) -> None:
        self._write(event)

    def _write(self, value: dict[str, Any]) -> None:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self._gzip.write(line.encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        self._gzip.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def save_recording(target: str | Path | BinaryIO, recording: Recording) -> None:
    """Write ``recording`` to a path or an open binary file."""
    if isinstance(target, (str, Path)):
        with open(target, "wb") as file:
            save_recording(file, recording)
        return
    with RecordingWriter(target, recording.header, recording.snapshot) as writer:
        for event in recording.events:
            writer.add(event)


# --- reading ---------------------------------------------------------------------------------------------------------

def open_recording(source: str | Path | bytes | BinaryIO, limits: Limits = Limits()) -> Recording:
    """Read a recording from a path, bytes or an open binary file. Raises :class:`RecordingRefused`."""
    if isinstance(source, (str, Path)):
        try:
            with open(source, "rb") as file:
                return open_recording(file, limits)
        except OSError as error:
            raise RecordingRefused("recording_unreadable", f"{Path(source).name} could not be opened: {error.strerror}.") from error
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    lines = enumerate(_lines(_unpacked(source, limits), limits), start=1)
    header = _parse_header(*_next_line(lines, "the run card"), limits)
    snapshot = _parse_snapshot(*_next_line(lines, "the snapshot"), limits)
    events, seq = [], snapshot["seq"]
    for number, line in lines:
        event = _parse_event(number, line, seq, limits)
        seq = event["seq"]
        events.append(event)
    return Recording(header, snapshot, events)


def replay(recording: Recording) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield ``(event, state)`` after each event. ``state`` is one document that is changed in place: copy what must last.

    Raises :class:`RecordingRefused` with the line of an event that does not fit the state before it.
    """
    state = json.loads(json.dumps(recording.snapshot["state"]))   # the recording itself stays as it was read
    for number, event in enumerate(recording.events, start=3):
        try:
            apply_event(state, event)
        except (LookupError, TypeError, ValueError, AttributeError, SequenceGap) as error:
            raise RecordingRefused("recording_event", f"Line {number} does not continue the run ({type(error).__name__}: "
                                   f"{str(error)[:80]}); the file was edited or comes from another version.") from error
        yield event, state


def _unpacked(source: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """The content in pieces, unpacked when it is gzip; several gzip members in a row are read as one, as gzip says."""
    packed = unpacked = 0
    unpacker: Any = None
    first = True
    while chunk := source.read(_CHUNK):
        packed += len(chunk)
        if packed > limits.packed:
            raise RecordingRefused("recording_size", f"The file is larger than {_size(limits.packed)}, the most this page opens; "
                                   "record fewer steps.")
        if first and chunk.startswith(GZIP_MAGIC):
            unpacker = zlib.decompressobj(wbits=31)
        first = False
        if unpacker is None:
            unpacked += len(chunk)
            _check_unpacked(unpacked, limits)
            yield chunk
            continue
        while chunk:
            try:
                piece = unpacker.decompress(chunk, _CHUNK)
            except zlib.error as error:
                raise RecordingRefused("recording_gzip", f"The file is not whole: its gzip data breaks off or is damaged after "
                                       f"{_size(unpacked)}; fetch it again.") from error
            unpacked += len(piece)
            _check_unpacked(unpacked, limits)
            if piece:
                yield piece
            chunk = unpacker.unconsumed_tail
            if unpacker.eof and unpacker.unused_data:
                chunk, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
    if unpacker is not None and not unpacker.eof:
        # The tail may still hold output that fitted no piece.
        rest = unpacker.flush()
        _check_unpacked(unpacked + len(rest), limits)
        if rest:
            yield rest
        if not unpacker.eof:
            raise RecordingRefused("recording_gzip", f"The file is not whole: its gzip data breaks off after {_size(unpacked)}; "
                                   "fetch it again.")


def _check_unpacked(size: int, limits: Limits) -> None:
    if size > limits.unpacked:
        raise RecordingRefused("recording_size", f"The file unpacks to more than {_size(limits.unpacked)}, the most this page "
                               "opens; record fewer steps.")


def _lines(pieces: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    number, parts, length = 0, [], 0
    for piece in pieces:
        start = 0
        while True:
            end = piece.find(b"\n", start)
            part = piece[start:] if end < 0 else piece[start:end]
            length += len(part)
            if length > limits.line:
                raise RecordingRefused("recording_line", f"Line {number + 1} is longer than {_size(limits.line)}; this is not a "
                                       "recording that Batchscope wrote.")
            parts.append(part)
            if end < 0:
                break
            number += 1
            if number > limits.lines:
                raise RecordingRefused("recording_lines", f"The file has more than {limits.lines:,} lines; record fewer steps.")
            yield b"".join(parts)
            parts, length, start = [], 0, end + 1
    if length:
        yield b"".join(parts)


def _next_line(lines: Iterator[tuple[int, bytes]], what: str) -> tuple[int, bytes]:
    found = next(lines, None)
    if found is None:
        raise RecordingRefused("recording_short", f"The file ends before {what}; it is not a whole recording.")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse(number: int, line: bytes, limits: Limits) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RecordingRefused("recording_text", f"Line {number} is not UTF-8 text; this is not a Batchscope recording.") from error
    except RecursionError as error:
        raise RecordingRefused("recording_depth", f"Line {number} is nested deeper than {limits.depth} levels; it is no event.") from error
    except ValueError as error:
        raise RecordingRefused("recording_json", f"Line {number} is not JSON ({str(error)[:80]}); the file is damaged or is not a "
                               "Batchscope recording.") from error
    if not isinstance(value, dict):
        raise RecordingRefused("recording_json", f"Line {number} must be a JSON object.")
    if _deeper_than(value, limits.depth):
        raise RecordingRefused("recording_depth", f"Line {number} is nested deeper than {limits.depth} levels; it is no event.")
    return value


def _deeper_than(value: Any, depth: int) -> bool:
    """Walk level by level, so that the walk itself needs no stack."""
    level = [value]
    for _ in range(depth):
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)
                 if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _parse_header(number: int, line: bytes, limits: Limits) -> dict[str, Any]:
    header = _parse(number, line, limits)
    if header.get("format") != FORMAT:
        raise RecordingRefused("recording_format", f"Line 1 is not a Batchscope run card (its format must be \"{FORMAT}\").")
    version = header.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RecordingRefused("recording_version", "Line 1 has no version number.")
    if version > VERSION:
        raise RecordingRefused("recording_version", f"The recording has version {version}, this Batchscope reads up to {VERSION}; "
                               "open it with a newer one.")
    for name, kind in (("config", dict), ("versions", dict), ("model", str), ("device", str), ("title", str)):
        if name in header and not isinstance(header[name], kind):
            raise RecordingRefused("recording_card", f"Line 1: {name} must be {'an object' if kind is dict else 'text'}.")
    return header


def _parse_snapshot(number: int, line: bytes, limits: Limits) -> dict[str, Any]:
    snapshot = _parse(number, line, limits)
    if snapshot.get("type") != "snapshot" or not isinstance(snapshot.get("state"), dict):
        raise RecordingRefused("recording_snapshot", f"Line {number} must be the snapshot that the events start from.")
    if not _is_count(snapshot.get("seq")):
        raise RecordingRefused("recording_snapshot", f"Line {number}: the snapshot has no sequence number.")
    return snapshot


def _parse_event(number: int, line: bytes, seq: int, limits: Limits) -> dict[str, Any]:
    event = _parse(number, line, limits)
    if event.get("type") not in EVENT_TYPES:
        raise RecordingRefused("recording_event", f"Line {number} is no event: its type must be one of {', '.join(EVENT_TYPES)}.")
    if event.get("seq") != seq + 1 or not _is_count(event["seq"]):
        raise RecordingRefused("recording_gap", f"Line {number} should have sequence number {seq + 1}; lines are missing or out of "
                               "order, so the run cannot be replayed.")
    return event


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count:,} bytes"
