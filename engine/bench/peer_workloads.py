"""The four workloads on which systems are compared: the same token ids and the same exact output lengths for everyone."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: Plain English to cut prompts from; which words does not matter for speed, that they are words does for greedy text.
TEXT = """
The library stood at the end of the street, where the tram turned back towards the river. On most days it was quiet, and the
woman at the desk read the newspaper from the last page to the first. Students came in the afternoon, put their coats over the
chairs and asked the same questions every year: how a bridge carries its weight, why the sea is salt, what a star burns, and who
decided that a week should have seven days. She knew where the answers were, and sometimes she knew the answers too. A small boy
wanted to know how many grains of sand there are, and she gave him a book about large numbers. An old man wanted to read about the
ships his father had built. In the evening the lamps were lit one after another, the tram passed with its windows bright, and the
rain began. Write a short story about what happened next. Explain how a computer stores a photograph. List the planets in order of
their size, and say one thing about each of them. Describe the taste of an apple to somebody who has never eaten one. What is the
difference between weather and climate? Give three reasons to learn a second language, and one reason not to. Translate the second
sentence into French. Summarise the text above in ten words. How would you plan a garden that has flowers in every month of the
year? Tell me about the history of paper, from the first sheets to the last newspaper.
"""

DESCRIPTIONS = {
    "a": "1 request, 64 tokens out", "b": "8 requests at once, 64 tokens out each", "c": "32 requests at once, 64 tokens out each",
    "d": "32 mixed requests at once: prompts of 20 to 400 tokens (6,228 in all), outputs of 4 to 256, most of them short (1,536 in all)",
}


@dataclass(frozen=True, slots=True)
class PeerRequest:
    prompt: list[int]           # token ids
    output_tokens: int          # exactly so many, whatever the model says


def make_workload(name: str, tokenizer) -> list[PeerRequest]:
    """The requests of workload ``a``, ``b``, ``c`` or ``d``; the same each time."""
    ids = tokenizer(TEXT, add_special_tokens=False).input_ids
    generator = random.Random(f"peers {name}")
    if name == "d":
        prompts = _lengths(generator, 32, 20, 400, 6228, 1.0)
        outputs = _lengths(generator, 32, 4, 256, 1536, 3.0)
    else:
        count = {"a": 1, "b": 8, "c": 32}[name]
        prompts, outputs = [generator.randint(24, 40) for _ in range(count)], [64] * count
    # Every prompt starts somewhere else, so no prefix cache, ours or another, saves anyone a token.
    starts = generator.sample(range(len(ids)), len(prompts))
    return [PeerRequest([ids[(start + i) % len(ids)] for i in range(length)], out)
            for start, length, out in zip(starts, prompts, outputs)]


def _lengths(generator: random.Random, count: int, low: int, high: int, total: int, skew: float) -> list[int]:
    """``count`` lengths from ``low`` to ``high`` that sum to ``total``; the larger ``skew``, the more are short."""
    lengths = [round(low + (high - low) * generator.random() ** skew) for _ in range(count)]
    lengths[0], lengths[1] = high, low
    while sum(lengths) != total:
        i = generator.randrange(2, count)
        step = 1 if sum(lengths) < total else -1
        if low <= lengths[i] + step <= high:
            lengths[i] += step
    generator.shuffle(lengths)
    return lengths
