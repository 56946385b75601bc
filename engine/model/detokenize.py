"""Turning tokens into text as they come: never half a character, and never a character of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

#: What decoders put in the place of bytes that are not (yet) a character.
REPLACEMENT = "\ufffd"

#: A character has at most four bytes, so a tail that is still unreadable after this many tokens never becomes readable.
MAX_HELD_TOKENS = 8

_special_ids: WeakKeyDictionary = WeakKeyDictionary()


class TextStream:
    """The text of one output, token by token.

    ``tokenizer`` is a transformers tokenizer (byte-level BPE, sentencepiece with byte fallback, …); special tokens have no
    text. ``stop`` are texts at which the output ends; the emitted text ends before the first of them, and text that could
    be the beginning of one is held back until it is known not to be. ``context`` are the last tokens before the output:
    with a few of the prompt's, a sentencepiece output keeps the space before its first word.

    What :meth:`push` and :meth:`flush` return, joined, is ``tokenizer.decode`` of the tokens, cut before the stop text and
    before a character that was never completed.
    """

    def __init__(self, tokenizer, stop: Sequence[str] = (), context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._special = special_token_ids(tokenizer)
        # A decoder may treat the first token of a list in its own way (sentencepiece drops a leading space). So the text
        # of new tokens is the difference of two decodings that both begin at the tokens emitted last.
        self._window = [token for token in context if token not in self._special][-MAX_HELD_TOKENS:]
        self._num_emitted = len(self._window)
        self._emitted_text = self._decode(self._window)
        self._held = ""                      # readable, but possibly the beginning of a stop text
        self._stopped = False

    def push(self, token_id: int, may_stop: bool = True) -> tuple[str, bool]:
        """Take one token; return the text that became certain (maybe empty) and whether a stop text was completed. Without
        ``may_stop`` a stop text is text like any other.

        After a stop the stream stays closed: further tokens give no text.
        """
        if self._stopped:
            return "", True
        if token_id in self._special:
            return "", False
        self._window.append(token_id)
        text = self._decode(self._window)
        held_tokens = len(self._window) - self._num_emitted
        unfinished = text.endswith(REPLACEMENT) and held_tokens < MAX_HELD_TOKENS
        if unfinished or len(text) <= len(self._emitted_text):
            if held_tokens >= 4 * MAX_HELD_TOKENS:      # tokens without any text: do not decode them again for ever
                self._advance()
            return "", False
        fresh = text[len(self._emitted_text):]
        self._advance()
        return self._release(fresh) if may_stop else (fresh, False)

    def flush(self) -> str:
        """The end of the output: give out what was held back as a possible stop text. An incomplete character is dropped."""
        if self._stopped:
            return ""
        tail = self._decode(self._window)[len(self._emitted_text):].rstrip(REPLACEMENT)
        self._advance()
        fresh, stopped = self._release(tail)
        if stopped:
            return fresh
        rest, self._held = fresh + self._held, ""
        return rest

    def _decode(self, tokens: list[int]) -> str:
        if not tokens:
            return ""
        return self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _advance(self) -> None:
        """Everything in the window is out: it becomes the context of what follows."""
        if len(self._window) > self._num_emitted:
            self._window = self._window[self._num_emitted:]
            self._num_emitted = len(self._window)
            self._emitted_text = self._decode(self._window)

    def _release(self, fresh: str) -> tuple[str, bool]:
        """Pass ``fresh`` through the stop texts; what may still become one stays in ``_held``."""
        if not self._stop:
            return fresh, False
        text = self._held + fresh
        found = [position for position in (text.find(stop) for stop in self._stop) if position >= 0]
        if found:
            self._held, self._stopped = "", True
            return text[:min(found)], True
        keep = max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - keep:]
        return text[:len(text) - keep], False


def special_token_ids(tokenizer) -> frozenset[int]:
    """Ids that ``skip_special_tokens`` leaves out."""
    known = _special_ids.get(tokenizer)
    if known is None:
        added = getattr(tokenizer, "added_tokens_decoder", {})
        known = frozenset(tokenizer.all_special_ids) | {token for token, entry in added.items() if entry.special}
        _special_ids[tokenizer] = known
    return known


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``stop``."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
