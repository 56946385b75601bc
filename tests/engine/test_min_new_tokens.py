"""``min_new_tokens``: neither the end token nor a stop text ends an answer before, and everything else stays as it was."""

from __future__ import annotations

import pytest

from engine.errors import RequestRefused
from engine.model.detokenize import TextStream
from engine.sampling_params import SamplingParams
from tests.engine.watched import Watched
from tests.model.test_detokenize import BYTES, byte_tokens
from viz.unfinished import Interrupted


def answers(*, least: int, count: int = 6, **config) -> list[int]:
    """Lengths of the answers of a room whose requests would end by themselves after 2 to 5 tokens."""
    room = Watched(stop_after=(2, 5), **config)
    ids = [room.submit(3 + number, 30, min_new_tokens=least)[0] for number in range(count)]
    room.run()
    return [len(room.outputs(name)) for name in ids]


@pytest.mark.parametrize("config", [{}, {"use_async_batching": True, "use_cuda_graph": True}])
def test_no_answer_is_shorter_and_the_end_token_counts_again_from_there(config):
    free = answers(least=0, **config)
    assert max(free) <= 5
    assert answers(least=9, **config) == [9] * len(free)
    assert answers(least=3, **config) == [max(3, length) for length in free]


@pytest.mark.parametrize(("params", "sentence"), [
    ({"min_new_tokens": -1}, "between 0"), ({"min_new_tokens": 1.5}, "whole number"), ({"min_new_tokens": True}, "whole number"),
    ({"min_new_tokens": 9, "max_new_tokens": 8}, "must not be more than max_new_tokens")])
def test_a_length_that_cannot_be_is_refused(params, sentence):
    with pytest.raises(RequestRefused, match=sentence):
        SamplingParams(**params)


def test_what_was_written_before_an_interruption_counts():
    params = SamplingParams(max_new_tokens=20, min_new_tokens=8).to_dict()
    assert Interrupted("r1", [1, 2, 3], "x", params, 5, None, outputs=3).submission()["params"]["min_new_tokens"] == 5
    assert Interrupted("r1", [1, 2, 3], "x", params, 5, None, outputs=12).submission()["params"]["min_new_tokens"] == 0


def test_runs_recorded_before_there_was_such_a_knob_are_read():
    old = {name: value for name, value in SamplingParams().to_dict().items() if name != "min_new_tokens"}
    assert SamplingParams.from_dict(old) == SamplingParams()
    assert Interrupted("r1", [1], "x", old, 5, None).submission()["params"]["min_new_tokens"] == 0


def test_a_stop_text_before_is_text_and_one_after_ends_the_answer():
    stream = TextStream(BYTES, ["END"])
    early = "".join(stream.push(token, may_stop=False)[0] for token in byte_tokens(BYTES, "an END "))
    assert early == "an END "
    late = [stream.push(token) for token in byte_tokens(BYTES, "the END")]
    assert "".join(text for text, _ in late) == "the " and late[-1][1]
