"""Workloads are checked data; every request follows from the seed; traffic keeps to the clock."""

import dataclasses
import json
import statistics

import pytest

from engine.errors import CommandRefused
from engine.presets import PRESETS, describe_presets
from engine.workload import Traffic, Workload, WorkloadDriver
from engine.workload.workload import MAX_REQUESTS
from tests.engine.watched import Watched

HEAVY = {"kind": "heavy_tail", "mean": 500, "rare": 30000, "share": 0.005}


def workload(**values):
    return Workload.from_dict(values)


def lengths(distribution, count=20000, seed=0):
    return [one.prompt_length for one in workload(num_requests=count, prompt_length=distribution, output_length=1, seed=seed).plan()]


def test_a_workload_is_a_function_of_its_seed():
    made = [workload(num_requests=50, arrivals={"kind": "poisson", "rate": 3}, prompt_length=HEAVY, seed=seed).plan() for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_changing_the_arrivals_leaves_the_lengths_as_they_were():
    plans = [workload(num_requests=50, arrivals=arrivals, prompt_length=HEAVY).plan()
             for arrivals in ({"kind": "at_once"}, {"kind": "poisson", "rate": 3}, {"kind": "closed", "users": 4})]
    assert len({tuple(one.prompt_length for one in plan) for plan in plans}) == 1


@pytest.mark.parametrize(("distribution", "mean"), [
    ({"kind": "uniform", "low": 10, "high": 30}, 20), ({"kind": "lognormal", "mean": 200, "sigma": 0.8}, 200),
    (HEAVY, 500), ({"kind": "fixed", "value": 7}, 7), (7, 7)])
def test_lengths_average_what_they_say(distribution, mean):
    drawn = lengths(distribution)
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.06)
    assert min(drawn) >= 1


def test_a_heavy_tail_has_a_median_far_below_its_mean_and_its_rare_giants():
    drawn = lengths(HEAVY)
    assert statistics.median(drawn) < 350
    assert 0.003 < sum(length == 30000 for length in drawn) / len(drawn) < 0.007


def test_clipped_lengths_stay_inside():
    drawn = lengths({"kind": "lognormal", "mean": 100, "sigma": 2.0, "low": 20, "high": 150}, 2000)
    assert min(drawn) == 20 and max(drawn) == 150


def test_poisson_arrivals_have_the_rate_and_the_variance_of_one():
    moments = [one.at for one in workload(num_requests=20000, arrivals={"kind": "poisson", "rate": 4}).plan()]
    gaps = [after - before for before, after in zip(moments, moments[1:])]
    assert statistics.fmean(gaps) == pytest.approx(0.25, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.05)


def test_bursts_come_together_and_speed_makes_them_denser():
    arrivals = {"kind": "bursts", "size": 3, "interval": 2.0}
    assert [one.at for one in workload(num_requests=7, arrivals=arrivals).plan()] == [0, 0, 0, 2, 2, 2, 4]
    assert [one.at for one in workload(num_requests=7, arrivals=arrivals, speed=2).plan()] == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid_and_survive_json(preset):
    entry = PRESETS[preset]
    entry.engine_config()
    once = Workload.from_dict(json.loads(json.dumps(entry.workload)))
    assert Workload.from_dict(once.to_dict()) == once
    assert entry.help.endswith(".") and entry in PRESETS.values() and len(describe_presets()) == len(PRESETS)


def test_explicit_items_survive_json():
    made = workload(name="mine", items=[{"at": 0, "prompt": 5, "output": 8}, {"at_step": 3, "prompt": "Hello", "output": 2}])
    assert Workload.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize("bad", [
    None, [], "chat", {"nmae": "x"}, {"name": ""}, {"name": 3}, {"seed": -1}, {"seed": 1.5}, {"seed": True}, {"num_requests": 0},
    {"num_requests": MAX_REQUESTS + 1}, {"num_requests": float("nan")}, {"speed": 0}, {"speed": float("inf")},
    {"arrivals": "poisson"}, {"arrivals": {"kind": "poisson"}}, {"arrivals": {"kind": "poisson", "rate": -1}},
    {"arrivals": {"kind": "poisson", "rate": "5"}}, {"arrivals": {"kind": "poisson", "rate": 1, "users": 2}}, {"arrivals": {"kind": []}},
    {"arrivals": {"kind": "closed", "users": 0}}, {"prompt_length": {"kind": "uniform", "low": 5, "high": 4}}, {"prompt_length": 0},
    {"prompt_length": 2.5}, {"prompt_length": {"kind": "heavy_tail", "mean": 100, "rare": 30000, "share": 0.1}},
    {"output_length": {"kind": "gauss"}}, {"shared_prefix": 5}, {"shared_prefix": {"tokens": -1}}, {"content": "poems"},
    {"params": {"temprature": 1}}, {"params": {"max_new_tokens": 3}}, {"params": []}, {"items": []}, {"items": {}}, {"items": [1]},
    {"items": [{"at": 1, "at_step": 1}]}, {"items": [{"prompt": ""}]}, {"items": [{"prompt": -4}]}, {"items": [{"output": -1}]},
    {"items": [{"when": 3}]},
])
def test_a_bad_workload_is_refused_in_a_sentence(bad):
    with pytest.raises(CommandRefused) as refusal:
        Workload.from_dict(bad)
    assert str(refusal.value).rstrip()[-1] == "." and refusal.value.code == "bad_workload"


def test_a_workload_of_absurd_size_is_refused_before_it_is_built():
    with pytest.raises(CommandRefused, match="adds up"):
        workload(num_requests=20000, prompt_length=1_000_000).plan()


def test_open_arrivals_are_handed_out_at_their_time_and_once():
    traffic = Traffic(workload(num_requests=5, arrivals={"kind": "bursts", "size": 2, "interval": 1.0}), 100)
    counts = [len(traffic.arrivals(now, 0, 0)) for now in (10.0, 10.5, 10.5, 11.0, 11.9)]
    assert counts == [2, 0, 0, 2, 0]
    assert traffic.next_time() == 12.0 and not traffic.done
    assert len(traffic.arrivals(traffic.next_time(), 0, 0)) == 1 and traffic.done and traffic.next_time() is None


def test_a_closed_loop_keeps_its_users_busy_and_lets_them_think():
    traffic = Traffic(workload(num_requests=7, arrivals={"kind": "closed", "users": 3, "think": 2.0}), 100)
    assert len(traffic.arrivals(0.0, 0, 0)) == 3
    assert len(traffic.arrivals(1.0, 5, 3)) == 0
    assert len(traffic.arrivals(2.0, 9, 1)) == 0          # two answered, they think
    assert traffic.next_time() == 4.0
    assert len(traffic.arrivals(4.0, 12, 1)) == 2
    assert len(traffic.arrivals(5.0, 13, 0)) == 0
    assert len(traffic.arrivals(7.0, 14, 0)) == 2 and traffic.done


def test_siblings_of_one_prompt_are_one_answer_to_a_user():
    traffic = Traffic(workload(num_requests=4, arrivals={"kind": "closed", "users": 1}, params={"n": 3}), 100)
    assert len(traffic.arrivals(0.0, 0, 0)) == 1
    assert len(traffic.arrivals(1.0, 1, 3)) == len(traffic.arrivals(2.0, 2, 1)) == 0
    assert len(traffic.arrivals(3.0, 3, 0)) == 1


def test_requests_by_step_come_at_their_step_or_when_nothing_runs():
    traffic = Traffic(workload(items=[{"at_step": 0, "prompt": 3}, {"at_step": 4, "prompt": 3}, {"at_step": 99, "prompt": 3}]), 100)
    assert len(traffic.arrivals(0.0, 10, 0)) == 1
    assert len(traffic.arrivals(0.0, 13, 1)) == 0
    assert len(traffic.arrivals(0.0, 14, 1)) == 1
    assert len(traffic.arrivals(0.0, 15, 0)) == 1 and traffic.done


def test_a_stopped_workload_hands_out_nothing_more():
    traffic = Traffic(workload(num_requests=9, arrivals={"kind": "poisson", "rate": 1}), 100)
    traffic.arrivals(0.0, 0, 0)
    traffic.stop()
    assert traffic.done and traffic.arrivals(1e9, 0, 0) == [] and traffic.next_time() is None


def test_prompts_have_their_length_share_their_prefix_and_avoid_control_tokens():
    made = workload(num_requests=30, prompt_length={"kind": "uniform", "low": 1, "high": 9}, shared_prefix={"tokens": 40, "groups": 2})
    traffic = Traffic(made, 50, avoid=(7,))
    handed = traffic.arrivals(0.0, 0, 0)
    assert [len(tokens) for tokens, *_ in handed] == [one.prompt_length for one in made.plan()]
    assert {tuple(tokens[:40]) for tokens, *_ in handed}.__len__() == 2
    assert all(3 <= token < 50 and token != 7 for tokens, *_ in handed for token in tokens)
    assert all(params.ignore_eos for _, params, *_ in handed)


class Words:
    """A tokenizer that makes each word a token."""

    chat_template = None

    def __init__(self):
        self.ids = {}

    def __len__(self):
        return 5000

    def encode(self, text, add_special_tokens):
        return [self.ids.setdefault(word, len(self.ids)) for word in text.split()]

    def decode(self, tokens):
        words = {number: word for word, number in self.ids.items()}
        return " ".join(words[token] for token in tokens)


def test_with_a_tokenizer_prompts_are_sentences_of_exactly_that_length():
    traffic = Traffic(workload(num_requests=5, prompt_length=33), 5000, Words())
    handed = traffic.arrivals(0.0, 0, 0)
    assert all(len(tokens) == 33 and len(text.split()) == 33 for tokens, _, text, _ in handed)
    assert len({text for _, _, text, _ in handed}) == 5


def test_questions_stand_as_they_are_and_may_end_by_themselves():
    handed = Traffic(workload(num_requests=3, content="questions"), 5000, Words()).arrivals(0.0, 0, 0)
    assert all(text[-1] in "?." and not params.ignore_eos for _, params, text, _ in handed)


def test_words_without_a_tokenizer_are_refused_not_faked():
    for made in (workload(content="questions"), workload(items=[{"prompt": "Hello"}])):
        with pytest.raises(CommandRefused, match="tokenizer"):
            Traffic(made, 100)


def test_a_request_that_came_during_a_step_is_timed_from_its_arrival():
    """Otherwise a long prefill would hide the wait that it causes."""
    room = Watched(num_blocks=200, max_batch_tokens=400)
    room.executor.roofline.hardware = dataclasses.replace(room.executor.hardware, host_step=1.0)      # every step takes a second
    driver = WorkloadDriver(workload(items=[{"at": 0, "prompt": 300, "output": 1}, {"at": 0.25, "prompt": 3, "output": 1}]), room.engine)
    driver.run()
    late = room.engine.requests["r2"]
    assert late.arrival == 0.25 and late.admitted == pytest.approx(1.0, abs=0.05)
