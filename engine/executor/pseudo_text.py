"""Text for simulated rooms: a tokenizer without a vocabulary file, whose words mean nothing and look it.

A simulated device computes no language. Its rooms use this tokenizer whether or not a real one has been loaded, so that a
simulated run stays a function of (model, config, workload, seed) alone. A token is about four characters, as in English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar
from zlib import crc32

_ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"]
_VOWELS = ["a", "e", "i", "o", "u"]
_CODAS = ["", "n", "l", "s", "r"]
_SYLLABLES = [onset + vowel + coda for onset in _ONSETS for vowel in _VOWELS for coda in _CODAS]

#: words, spaces and single signs; long words are cut so that a long line without spaces has many tokens too
_PIECES = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s")


class PseudoTokenizer:
    """Maps pieces of text to numbers by their checksum, and numbers to syllables. There is no way back to the prompt."""

    all_special_ids: tuple[int, ...] = ()
    added_tokens_decoder: ClassVar[dict[int, Any]] = {}
    chat_template = None

    def __len__(self) -> int:
        return 2 * len(_SYLLABLES)

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text)}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [crc32(piece.encode()) % len(self) for piece in _PIECES.findall(text)]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True, **_: Any) -> str:
        # Half of the numbers begin a word, the other half continue one.
        return "".join((" " if token < len(_SYLLABLES) else "") + _SYLLABLES[token % len(_SYLLABLES)] for token in tokens)
