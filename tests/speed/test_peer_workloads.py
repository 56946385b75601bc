"""The compared workloads are what their descriptions say, and the same at every call."""

from __future__ import annotations

from engine.bench.peer_workloads import make_workload


class Words:
    """A tokenizer for the test: one id a word."""

    def __call__(self, text: str, add_special_tokens: bool = True):
        class Encoded:
            input_ids = list(range(len(text.split())))
        return Encoded()


def test_workload_d_has_the_stated_sums_and_bounds():
    requests = make_workload("d", Words())
    prompts, outputs = [len(item.prompt) for item in requests], [item.output_tokens for item in requests]
    assert (len(requests), sum(prompts), sum(outputs)) == (32, 6228, 1536)
    assert (min(prompts), max(prompts), min(outputs), max(outputs)) == (20, 400, 4, 256)
    assert sorted(outputs)[len(outputs) // 2] < sum(outputs) / len(outputs), "most outputs are short"


def test_workloads_are_the_same_every_time_and_share_no_prompt():
    for name, count in (("a", 1), ("b", 8), ("c", 32), ("d", 32)):
        requests = make_workload(name, Words())
        assert requests == make_workload(name, Words())
        assert len({tuple(item.prompt[:8]) for item in requests}) == count
