"""The priority policy, and what releases changed about it. Blocks hold 4 tokens; a lower priority goes first."""

import pytest


def test_the_waiting_are_served_by_priority_then_arrival(world):
    w = world(policy="priority", max_sequences=1)
    w.add("late", 2, 1, priority=2)
    w.add("first", 2, 1, priority=1)
    w.add("second", 2, 1, priority=1)
    assert w.scheduled(3) == [{"first": 2}, {"second": 2}, {"late": 2}]


def test_the_least_important_is_preempted_wherever_it_runs(world):
    """low is first in the list and had its turn in this step; it loses it when b needs a block."""
    w = world(policy="priority", usable=4)
    w.add("low", 6, 9, priority=5)
    w.step()
    w.add("high", 7, 9, priority=1)
    assert w.scheduled(2) == [{"low": 1, "high": 7}, {"low": 1, "high": 1}]
    log = w.step()
    assert (log.scheduled, log.preempted) == ({"high": 1}, ["low"])


def test_of_equal_priority_the_youngest_is_preempted(world):
    w = world(policy="priority", usable=4)
    w.add("a", 7, 9)
    w.add("b", 7, 9)
    w.steps(2)
    assert w.step().preempted == ["b"]


@pytest.mark.parametrize(("version", "chunk"), [("0.25", 2), ("0.32", 3), ("0.33", 3)])
def test_tokens_of_a_victim_go_back_to_the_budget_since_0_32(world, version, chunk):
    """Budget 4: low 1, high 1; high's block costs low its turn, and its token goes to third's chunk."""
    w = world(
        version,
        policy="priority",
        usable=4,
        max_batched_tokens=4,
        reserve_full_prompt=False,
        async_scheduling=False,
    )
    w.add("low", 4, 20, priority=1)
    w.step()
    w.add("high", 3, 20)
    w.step()
    w.add("third", 20, 1)
    assert w.scheduled(2) == [{"low": 1, "high": 1, "third": 2}, {"high": 1, "third": chunk}]


@pytest.mark.parametrize(("version", "rest"), [("0.32", {}), ("0.33", {"high": 1})])
def test_a_self_preemption_no_longer_ends_the_step_in_0_33(world, version, rest):
    """low needs a block, and is itself the least important."""
    w = world(version, policy="priority", usable=3)
    w.add("low", 3, 9, priority=1)
    w.step()
    w.add("high", 6, 9)
    assert w.scheduled(1) == [{"low": 1, "high": 6}]
    log = w.step()
    assert (log.preempted, log.scheduled) == (["low"], rest)


def test_a_preempted_request_waits_by_its_priority(world):
    """It does not go to the front: what is more important and still waiting is served first."""
    w = world(policy="priority", usable=4)
    w.add("a", 7, 3, priority=1)
    w.add("b", 7, 6, priority=3)
    w.steps(2)
    w.add("c", 16, 1, priority=2)
    log = w.step()
    assert (log.preempted, log.finished) == (["b"], ["a"])
    assert w.scheduled(2) == [{"c": 16}, {"b": 9}]


def test_an_aborted_request_leaves_the_queue(world):
    w = world(policy="priority", max_sequences=1)
    first = w.add("first", 2, 1, priority=1)
    w.add("second", 2, 1, priority=2)
    w.engine.abort(first)
    assert w.scheduled(1) == [{"second": 2}]
