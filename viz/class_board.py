"""The challenge board: scores by nickname, kept in SQLite so that they survive a restart. Nothing else about anybody is kept."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import unicodedata
from pathlib import Path
from typing import Any

from engine.errors import CommandRefused

log = logging.getLogger("batchscope.class")

MAX_NICKNAME = 20
MAX_ENTRIES = 500          # a lesson; beyond them the lowest scores go
SHOWN = 20


def board_path() -> Path:
    """``$BATCHSCOPE_DATA/board.sqlite3``, else in the user's data directory."""
    base = os.environ.get("BATCHSCOPE_DATA") or os.path.join(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "batchscope")
    return Path(base) / "board.sqlite3"


def check_nickname(value: Any) -> str:
    """A short name of letters, digits, spaces, dots, dashes and underscores. Raises :class:`CommandRefused`."""
    if not isinstance(value, str):
        raise CommandRefused("bad_nickname", "A nickname is a text.")
    name = " ".join(unicodedata.normalize("NFC", value).split())
    if not 1 <= len(name) <= MAX_NICKNAME or not all(sign.isalnum() or unicodedata.category(sign)[0] == "M" or sign in " .-_" for sign in name):
        raise CommandRefused("bad_nickname", f"A nickname has 1 to {MAX_NICKNAME} letters, digits, spaces, dots, dashes or underscores.")
    return name


class Board:
    """Best score of each nickname and lesson. A file that can't be opened is replaced by memory, with a message in the log."""

    def __init__(self, path: Path | None = None) -> None:
        self.kept = True
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self.db = sqlite3.connect(path or ":memory:", check_same_thread=False)
            self._create()
        except (OSError, sqlite3.Error) as problem:
            log.warning("the challenge board cannot be kept at %s (%s); it lives until the server stops", path, problem)
            self.kept = False
            self.db = sqlite3.connect(":memory:", check_same_thread=False)
            self._create()

    def _create(self) -> None:
        with self.db:
            self.db.execute("CREATE TABLE IF NOT EXISTS scores (lesson TEXT NOT NULL, nickname TEXT NOT NULL, score REAL NOT NULL, "
                            "knobs TEXT NOT NULL, PRIMARY KEY (lesson, nickname))")

    def add(self, lesson: str, nickname: str, score: float, knobs: dict[str, Any]) -> bool:
        """Keep ``score`` when it is the nickname's best so far; tells whether it was."""
        with self.db:
            row = self.db.execute("SELECT score FROM scores WHERE lesson = ? AND nickname = ?", (lesson, nickname)).fetchone()
            if row is not None and row[0] >= score:
                return False
            self.db.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?)", (lesson, nickname, score, json.dumps(knobs)))
            self.db.execute("DELETE FROM scores WHERE lesson = ? AND nickname NOT IN "
                            "(SELECT nickname FROM scores WHERE lesson = ? ORDER BY score DESC LIMIT ?)", (lesson, lesson, MAX_ENTRIES))
        return True

    def top(self, lesson: str) -> list[dict[str, Any]]:
        rows = self.db.execute("SELECT nickname, score FROM scores WHERE lesson = ? ORDER BY score DESC, rowid LIMIT ?", (lesson, SHOWN))
        return [{"nickname": nickname, "score": score} for nickname, score in rows]

    def remove(self, lesson: str, nickname: str | None) -> None:
        """Take one nickname off the board, or everybody."""
        with self.db:
            if nickname is None:
                self.db.execute("DELETE FROM scores WHERE lesson = ?", (lesson,))
            else:
                self.db.execute("DELETE FROM scores WHERE lesson = ? AND nickname = ?", (lesson, nickname))

    def close(self) -> None:
        self.db.close()
