"""Recorded traffic as a workload: the Azure LLM inference trace (CSV) and ShareGPT conversations (JSON).

* Azure LLM inference trace 2023/2024 (github.com/Azure/AzurePublicDataset): columns ``TIMESTAMP,ContextTokens,GeneratedTokens``,
  one request a line, lengths in tokens, no text.
* ShareGPT: a list of ``{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}, …]}``. The first
  question becomes the prompt and its answer the output length; there are no times, so arrivals are chosen by the caller.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from engine.workload.arrivals import Arrivals
from engine.workload.checks import refuse
from engine.workload.lengths import MAX_LENGTH
from engine.workload.workload import MAX_REQUESTS, Workload

MAX_BYTES = 256 * 2**20
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
#: Without a tokenizer a ShareGPT text counts as this many characters a token (typical of English).
CHARACTERS_PER_TOKEN = 4


def load_trace(path: str | Path, *, limit: int = 1000, arrivals: dict[str, Any] | None = None, tokenizer: Any = None) -> Workload:
    """The first ``limit`` requests of a trace file; ``.csv`` is an Azure trace and ``.json`` ShareGPT.

    ``arrivals`` (ShareGPT only, default all at once) is an arrival process as in a workload. Raises
    :class:`CommandRefused` with the file's line or entry when it cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".json"):
        raise refuse(f"{path.name}: a trace file ends in .csv (Azure LLM inference trace) or .json (ShareGPT).")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise refuse(f"{path.name} is larger than {MAX_BYTES // 2**20} MiB; cut it first.")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise refuse(f"{path.name} cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}.") from None
    if path.suffix.lower() == ".csv":
        return azure_trace(text, name=path.name, limit=limit)
    return sharegpt_trace(text, name=path.name, limit=limit, arrivals=arrivals, tokenizer=tokenizer)


def azure_trace(text: str, *, name: str = "trace", limit: int = 1000) -> Workload:
    """From the text of a CSV file. Arrivals keep their distances; the first one is at 0. Raises :class:`CommandRefused`."""
    _check_limit(limit)
    rows = csv.DictReader(io.StringIO(text))
    if not set(COLUMNS) <= set(rows.fieldnames or ()):
        raise refuse(f"{name}: line 1 must name the columns {', '.join(COLUMNS)}.")
    found: list[tuple[float, int, int]] = []
    try:
        for row in rows:
            if len(found) == limit:
                break
            found.append(_azure_row(row, f"{name}: line {rows.line_num}"))
    except csv.Error as problem:
        raise refuse(f"{name}: line {rows.line_num} is not CSV: {problem}.") from None
    if not found:
        raise refuse(f"{name} holds no requests.")
    found.sort(key=lambda one: one[0])
    first = found[0][0]
    items = [{"at": round(moment - first, 6), "prompt": context, "output": generated} for moment, context, generated in found]
    return Workload.from_dict({"name": name[:80], "source": "azure trace", "items": items, "content": "tokens"})


def _azure_row(row: dict[str, Any], where: str) -> tuple[float, int, int]:
    try:
        moment = datetime.fromisoformat((row["TIMESTAMP"] or "").strip())
    except ValueError:
        raise refuse(f"{where}: TIMESTAMP {str(row['TIMESTAMP'])[:40]!r} is no date and time.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    lengths = []
    for column in COLUMNS[1:]:
        value = (row[column] or "").strip()
        if not value.isascii() or not value.isdigit() or len(value) > 9 or not 1 <= int(value) <= MAX_LENGTH:
            raise refuse(f"{where}: {column} must be a whole number from 1 to {MAX_LENGTH:,}, not {value[:40]!r}.")
        lengths.append(int(value))
    return moment.timestamp(), lengths[0], lengths[1]


def sharegpt_trace(text: str, *, name: str = "trace", limit: int = 1000, arrivals: dict[str, Any] | None = None,
                   tokenizer: Any = None) -> Workload:
    """From the text of a JSON file. With a tokenizer prompts keep their words; without one only their lengths. Conversations
    that do not start with a question and an answer are skipped. Raises :class:`CommandRefused`."""
    _check_limit(limit)
    try:
        entries = json.loads(text)
    except RecursionError:
        raise refuse(f"{name} is nested too deeply for a list of conversations.") from None
    except ValueError as problem:
        raise refuse(f"{name} is not JSON: {str(problem)[:120]}.") from None
    if not isinstance(entries, list):
        raise refuse(f"{name} must be a list of conversations.")
    found = []
    for entry in entries:
        if len(found) == limit:
            break
        pair = _first_exchange(entry)
        if pair is not None:
            found.append(pair)
    if not found:
        raise refuse(f"{name} holds no conversation that starts with a question and an answer.")
    process = Arrivals.from_value(arrivals or {"kind": "at_once"})
    if process.closed:
        raise refuse("A trace has its own requests and no users; choose poisson, bursts or at_once for its arrivals.")
    items = []
    for (question, answer), moment in zip(found, process.times(len(found), Random("0:arrivals"))):
        prompt: Any = question if tokenizer is not None else _length(question, None)
        items.append({"at": moment, "prompt": prompt, "output": _length(answer, tokenizer)})
    return Workload.from_dict({"name": name[:80], "source": "sharegpt trace", "items": items,
                               "content": "auto" if tokenizer is not None else "tokens"})


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_REQUESTS:
        raise refuse(f"The number of requests must lie between 1 and {MAX_REQUESTS:,}, not {limit}.")


def _length(text: str, tokenizer: Any) -> int:
    count = len(tokenizer.encode(text, add_special_tokens=False)) if tokenizer is not None else len(text) // CHARACTERS_PER_TOKEN
    return min(max(1, count), MAX_LENGTH)


def _first_exchange(entry: Any) -> tuple[str, str] | None:
    turns = entry.get("conversations") if isinstance(entry, dict) else None
    if not isinstance(turns, list) or len(turns) < 2:
        return None
    pair = []
    for turn, speakers in zip(turns, (("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard"))):
        if not isinstance(turn, dict) or turn.get("from") not in speakers or not isinstance(turn.get("value"), str) or not turn["value"].strip():
            return None
        pair.append(turn["value"][:100_000])
    return pair[0], pair[1]

