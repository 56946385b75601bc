"""The clock arithmetic of the CUDA lane, with events whose times are given: where a GPU's intervals stand on the room's clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.executor.base import Clock
from engine.executor.device_lane import CudaLane, Job


@dataclass
class GivenEvent:
    """Happened at ``moment`` of the device's own timer; ``passed`` as soon as the host looks."""

    moment: float
    passed: bool = False

    def elapsed_time(self, later: GivenEvent) -> float:
        return float(np.float32((later.moment - self.moment) * 1e3))      # milliseconds, as CUDA gives them

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        pass


class GivenClock(Clock):
    moment = 0.0

    def now(self) -> float:
        return self.moment


def make_lane(clock: Clock) -> CudaLane:
    lane = CudaLane.__new__(CudaLane)           # its constructor makes streams, which need a GPU
    lane._clock, lane._anchor, lane._anchor_time = clock, GivenEvent(0.0), clock.now()
    return lane


def finish(lane: CudaLane, begin: float, end: float, passed: bool) -> tuple[float, float]:
    job = Job(lambda: None, lambda: None, lambda result: result, events=(GivenEvent(begin), GivenEvent(end, passed)))
    lane.finish(job)
    return job.device


def test_a_day_of_steps_on_a_drifting_timer_stays_on_the_rooms_clock():
    """The device's timer is 20 ppm fast; 8 million steps' worth of time pass. 32-bit times from the beginning would by then be
    off by milliseconds, and the drift by seconds."""
    clock, lane_errors = GivenClock(), []
    lane, previous_end = make_lane(clock), 0.0
    for step in range(1, 3000):
        true_begin, true_end = step * 30.0, step * 30.0 + 0.020
        clock.moment = true_end + 2e-5          # the host was waiting
        begin, end = finish(lane, true_begin * (1 + 2e-5), true_end * (1 + 2e-5), passed=False)
        lane_errors.append(abs(end - true_end))
        assert previous_end <= begin <= end <= clock.moment
        assert abs((end - begin) - 0.020) < 1e-4
        previous_end = end
    assert max(lane_errors) < 2e-3


def test_a_step_collected_late_keeps_the_time_it_really_ended():
    clock = GivenClock()
    lane = make_lane(clock)
    clock.moment = 5.0
    begin, end = finish(lane, 0.010, 0.030, passed=True)
    assert abs(begin - 0.010) < 1e-6 and abs(end - 0.030) < 1e-6


def test_no_step_ends_in_the_future():
    clock = GivenClock()
    lane = make_lane(clock)
    clock.moment = 0.029
    begin, end = finish(lane, 0.010, 0.030, passed=True)
    assert end == 0.029 and abs((end - begin) - 0.020) < 1e-6
