"""Whatever is submitted, cancelled and configured in whatever order: no invariant breaks and nobody is lost.

Runs on the shadow device, which checks the content of every cache slot that a step reads. After every call the engine checks its
integrity and the reduced state is compared with the snapshot.
"""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from engine.errors import ConfigRefused, RequestRefused
from tests.engine.shadow import tiny_spec
from tests.engine.watched import Watched

STEPS_WANTED = 20_000

SPECS = {
    "full": tiny_spec,
    "sliding": lambda: tiny_spec(window=10),
    "hybrid": lambda: tiny_spec(layers=6, window=8, full_every=3),
}
CONFIGS = some.fixed_dictionaries({
    "scheduler_type": some.sampled_from(["fifo", "prefill_first", "static"]), "block_size": some.sampled_from([4, 5, 8]),
    "num_blocks": some.integers(10, 40), "max_batch_tokens": some.integers(1, 24), "max_requests_per_batch": some.integers(1, 8),
    "chunked_prefill": some.booleans(), "safety_margin": some.sampled_from([None, 0.0, 0.3]),
    "cpu_offload_space": some.sampled_from([0.0, 0.002, 0.01]), "allow_block_sharing": some.booleans(),
    "demotion_policy": some.sampled_from(["most_recent", "lru"]), "max_kv_read_tokens": some.sampled_from([None, 60, 200]),
})
GRAPHS = some.sampled_from([{}, {"use_cuda_graph": True}, {"use_cuda_graph": True, "use_async_batching": True}])
CHANGES = some.one_of(
    some.fixed_dictionaries({"max_batch_tokens": some.integers(1, 24)}),
    some.fixed_dictionaries({"max_requests_per_batch": some.integers(1, 8)}),
    some.fixed_dictionaries({"scheduler_type": some.sampled_from(["fifo", "prefill_first", "static"])}),
    some.fixed_dictionaries({"num_blocks": some.integers(10, 40)}), some.fixed_dictionaries({"block_size": some.sampled_from([4, 8])}),
    some.fixed_dictionaries({"allow_block_sharing": some.booleans()}), some.fixed_dictionaries({"chunked_prefill": some.booleans()}),
    some.fixed_dictionaries({"use_cuda_graph": some.just(True), "use_async_batching": some.booleans()}),
    some.fixed_dictionaries({"cpu_offload_space": some.sampled_from([0.0, 0.002])}),
    some.fixed_dictionaries({"safety_margin": some.sampled_from([0.0, 0.5])}),
    some.fixed_dictionaries({"max_kv_read_tokens": some.sampled_from([None, 80])}),
)
PREFIXES = [[(family * 97 + 13 * place) % 900 + 10 for place in range(60)] for family in range(3)]


class EngineUnderFire(RuleBasedStateMachine):
    total_steps = 0
    complete = False
    pressure: dict[str, int] = {}

    @initialize(config=CONFIGS, graphs=GRAPHS, spec=some.sampled_from(sorted(SPECS)), stop_after=some.sampled_from([None, None, (2, 12)]))
    def open(self, config, graphs, spec, stop_after):
        self.room = Watched(SPECS[spec](), stop_after, **config, **graphs)

    @rule(family=some.integers(0, 2), shared=some.integers(0, 40), own=some.integers(0, 8), new_tokens=some.sampled_from([0, 1, 2, 5, 20, 40]),
          n=some.sampled_from([1, 1, 1, 2, 3]), penalty=some.sampled_from([1.0, 1.0, 1.0, 1.1]))
    def submit(self, family, shared, own, new_tokens, n, penalty):
        prompt = PREFIXES[family][:shared] + [(len(self.room.everyone) * 31 + place) % 900 + 10 for place in range(own)]
        try:
            self.room.submit(prompt, new_tokens, n=n, repetition_penalty=penalty)
        except RequestRefused as refusal:
            assert str(refusal).endswith(".")
            self.room.check()

    @precondition(lambda self: self.room.engine.scheduler.requests)
    @rule(which=some.integers(0, 1000))
    def cancel(self, which):
        names = sorted(self.room.engine.scheduler.requests)
        self.room.cancel(names[which % len(names)])

    @rule(changes=CHANGES)
    def configure(self, changes):
        try:
            self.room.configure(**changes)
        except ConfigRefused as refusal:
            assert str(refusal).endswith(".")

    @rule(count=some.integers(1, 12))
    def step(self, count):
        self.room.step(count)

    @rule(count=some.integers(1, 12))
    def step_again(self, count):
        self.room.step(count)

    def teardown(self):
        if not hasattr(self, "room"):
            return
        self.room.run()
        self.room.check_everyone_ended_well()
        EngineUnderFire.total_steps += self.room.steps
        for name, value in self.room.counters.items():
            EngineUnderFire.pressure[name] = EngineUnderFire.pressure.get(name, 0) + value


def test_no_invariant_breaks_under_any_order_of_calls():
    run_state_machine_as_test(EngineUnderFire, settings=settings(
        max_examples=400, stateful_step_count=25, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck)))
    assert EngineUnderFire.total_steps > 10_000
    EngineUnderFire.complete = True


@pytest.mark.parametrize("seed", range(44))
def test_nobody_is_lost_under_pressure(seed):
    """Long answers in a cache for three: offload, soft reset and restore all the time, on every kind of model."""
    choose = random.Random(seed)
    spec = sorted(SPECS)[seed % 3]
    graphs = choose.choice([{}, {"use_cuda_graph": True}, {"use_cuda_graph": True, "use_async_batching": True}])
    room = Watched(SPECS[spec](), num_blocks=choose.randint(12, 20) * (3 if spec == "hybrid" else 1), max_requests_per_batch=choose.randint(3, 8),
                   max_batch_tokens=choose.randint(4, 24), scheduler_type=choose.choice(["fifo", "prefill_first"]),
                   cpu_offload_space=choose.choice([0.0, 0.001, 0.003]), allow_block_sharing=choose.random() < 0.7, **graphs)
    for _ in range(24):
        prompt = PREFIXES[choose.randrange(3)][:choose.randint(1, 10)] + [choose.randint(10, 900) for _ in range(choose.randint(0, 3))]
        room.submit(prompt, choose.choice([10, 20, 35]), n=choose.choice([1, 1, 2]))
        room.step(choose.randint(0, 12))
        if choose.random() < 0.1 and room.engine.scheduler.requests:
            room.cancel(choose.choice(sorted(room.engine.scheduler.requests)))
    room.run()
    room.check_everyone_ended_well()
    EngineUnderFire.total_steps += room.steps
    for name, value in room.counters.items():
        EngineUnderFire.pressure[name] = EngineUnderFire.pressure.get(name, 0) + value


def test_the_suite_took_enough_steps_and_every_mechanism_was_at_work():
    """Runs after the two above; alone it has nothing to say."""
    if not EngineUnderFire.complete:
        pytest.skip("the tests that count were not selected")
    assert EngineUnderFire.total_steps >= STEPS_WANTED
    idle = [name for name, value in EngineUnderFire.pressure.items() if not value and name != "failed"]
    assert not idle, f"never happened: {idle}"
