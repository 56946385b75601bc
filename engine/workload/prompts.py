"""What the prompts of a workload say: token ids drawn from a seed, sentences, or questions."""

from __future__ import annotations

from random import Random
from typing import Any

from engine.workload.checks import refuse
from engine.workload.sentences import QUESTIONS, SENTENCES, SYSTEM_PROMPT
from engine.workload.workload import PlannedRequest, Workload


class PromptWriter:
    """Writes the prompt of each planned request: a function of (workload, request, tokenizer).

    ``tokenizer`` is a transformers tokenizer or ``None``; ``vocab_size`` bounds the ids that are drawn without one, and
    ``avoid`` names ids that must not be drawn (end of sequence and the like).
    """

    def __init__(self, workload: Workload, vocab_size: int, tokenizer: Any = None, avoid: tuple[int, ...] = ()) -> None:
        self.workload = workload
        self.tokenizer = tokenizer
        self.avoid = frozenset(avoid)
        self.vocab_size = vocab_size
        self._prefixes: dict[int, list[int]] = {}
        self._sentences: list[list[int]] = []
        if tokenizer is None and (workload.content == "questions" or any(item.prompt is not None for item in workload.items)):
            raise refuse("This workload has prompts in words, and the room has no tokenizer for them; use prompts by length instead.")

    def write(self, planned: PlannedRequest) -> tuple[list[int], str]:
        """Token ids and the text to show. Without a tokenizer the text says how many tokens there are."""
        workload = self.workload
        random = Random(f"{workload.seed}:prompt:{planned.index}")
        if planned.prompt is not None:
            return self._encode(planned.prompt), planned.prompt
        if workload.content == "questions":
            question = QUESTIONS[(workload.seed + planned.index) % len(QUESTIONS)]
            return self._chat(question), question
        shared = workload.shared_prefix[0] if not workload.items else 0
        tokens = list(self._prefix(planned.prefix_group, shared)) if shared else []
        tokens += self._filled(random, planned.prompt_length - len(tokens))
        if self._in_words:
            return tokens, self.tokenizer.decode(tokens)
        return tokens, f"[{len(tokens)} tokens]"

    @property
    def _in_words(self) -> bool:
        return self.tokenizer is not None and self.workload.content != "tokens"

    def _prefix(self, group: int, length: int) -> list[int]:
        if group not in self._prefixes:
            random = Random(f"{self.workload.seed}:prefix:{group}")
            start = self._encode(f"{SYSTEM_PROMPT} ({group + 1}) ")[:length] if self._in_words else []
            self._prefixes[group] = start + self._filled(random, length - len(start))
        return self._prefixes[group]

    def _filled(self, random: Random, length: int) -> list[int]:
        """Exactly ``length`` tokens: sentences in a drawn order, or ids."""
        if not self._in_words:
            ids = random.choices(range(min(3, self.vocab_size - 1), self.vocab_size), k=length)
            return ids if self.avoid.isdisjoint(ids) else [3 if token in self.avoid else token for token in ids]
        if not self._sentences:
            self._sentences = [self._encode(sentence + " ") for sentence in SENTENCES]
        tokens: list[int] = []
        while len(tokens) < length:
            tokens += random.choice(self._sentences)
        return tokens[:length]

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _chat(self, question: str) -> list[int]:
        if not getattr(self.tokenizer, "chat_template", None):
            return self._encode(question)
        return self._encode(self.tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                                               add_generation_prompt=True))
