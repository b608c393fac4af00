"""The timing core, on a clock that the test moves."""

from __future__ import annotations

import pytest

from calibrate.bench import LEAST_REPEATS, MOST_REPEATS, Budget, HostTimer, measure


class Clock:
    """Seconds that pass only when a kernel runs."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns: list[int] = []

    def __call__(self) -> float:
        return self.now_s

    def kernel(self, *seconds):
        """A kernel that takes these times in turn."""

        def call(turn: int) -> None:
            self.turns.append(turn)
            self.now_s += seconds[turn % len(seconds)]

        return call

    def timer(self) -> HostTimer:
        return HostTimer(lambda: None, self)


def test_a_slow_kernel_is_timed_call_by_call_and_least_often():
    clock = Clock()
    found = measure(clock.timer(), clock.kernel(1.0), 0.5, clock)
    assert (found.seconds, found.spread, found.repeats, found.calls) == (1.0, 0.0, LEAST_REPEATS, 1)


def test_a_fast_kernel_is_timed_in_batches_above_the_timers_resolution():
    clock = Clock()
    found = measure(clock.timer(), clock.kernel(1e-5), 100.0, clock)
    assert found.calls == 200
    assert found.repeats == MOST_REPEATS
    assert found.seconds == pytest.approx(1e-5)


def test_the_median_forgets_an_interruption_and_the_spread_shows_jitter():
    clock = Clock()
    times = [1.0, 1.0, 1.0, 1.0, 1.2, 50.0, 0.8]
    found = measure(clock.timer(), clock.kernel(*times), 55.5, clock)
    assert found.repeats == 5
    assert found.seconds == 1.0
    assert found.spread == pytest.approx(0.2)


def test_operands_turn_over_at_every_call():
    """Weights used again and again would come from cache."""
    clock = Clock()
    measure(clock.timer(), clock.kernel(1e-3), 0.01, clock)
    assert clock.turns == list(range(len(clock.turns)))


def test_the_device_is_idle_at_both_ends_of_a_batch():
    events: list[str] = []
    timer = HostTimer(lambda: events.append("synchronise"))
    timer.prepare(lambda turn: events.append(f"call {turn}"), 2)()
    assert events == ["synchronise", "call 0", "call 1", "synchronise"]


def test_what_one_kernel_leaves_of_its_share_the_others_get():
    clock = Clock()
    budget = Budget(10.0, 2, clock)
    assert budget.next_share_s() == 5.0
    clock.now_s = 1.0
    assert budget.next_share_s() == 9.0
    assert not budget.exhausted
    clock.now_s = 11.5
    assert budget.exhausted
    assert budget.next_share_s() == Budget.LEAST_SHARE_S
