"""Groups of layers with a sliding window, by hand. Blocks hold 4 tokens; a window of 8 spans at most 3 of them."""

import pytest


def test_blocks_out_of_the_window_are_freed(world):
    """Before the step at context c + 1, tokens below c - 8 + 1 are out of reach."""
    w = world(kv_groups=(8,))
    w.add("a", 4, 30)
    for computed in range(4, 30):
        w.step()
        if computed > 4:
            before = computed - 1
            assert w.engine.kv_blocks_used == -(-computed // 4) - max(0, before - 7) // 4


def test_full_and_window_layers_hold_blocks_of_one_pool(world):
    """A prompt of 16 takes 4 + 4 blocks; the next step takes one each and frees the 2 that left the window of 8."""
    w = world(kv_groups=(None, 8))
    w.add("a", 16, 3)
    used = [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(3)]
    assert used == [8, 8, 0]


def test_what_a_window_frees_admits_others(world):
    """Of 12 blocks the prompt holds 8. The window gives 2 back and the step takes 2: 4 are free for b."""
    w = world(kv_groups=(None, 8), usable=12)
    w.add("a", 16, 9)
    w.step()
    w.add("b", 8, 1)
    assert w.step().scheduled == {"a": 1, "b": 8}


def test_a_window_group_reserves_no_more_than_it_ever_holds(world):
    """Budget 8: a request never holds more than ceil((7 + 8) / 4) + 1 = 5 blocks, though 60 tokens fill 15."""
    for usable, admitted in ((4, {}), (5, {"a": 8})):
        w = world(kv_groups=(8,), usable=usable, max_batched_tokens=8)
        w.add("a", 60, 1)
        assert w.step().scheduled == admitted


def test_a_windowed_prompt_of_any_length_runs_to_its_end(world):
    w = world(kv_groups=(8,), usable=5, max_batched_tokens=8)
    a = w.add("a", 200, 20)
    assert w.engine.longest_request_tokens() is None
    w.drain()
    assert a.emitted_tokens == 20


@pytest.mark.parametrize("groups", [(None, 8), (8, None), (None, 8, 16), (None, None, 8)])
def test_the_longest_prompt_runs_and_a_longer_one_is_never_admitted(world, groups):
    def build():
        return world(kv_groups=groups, usable=30, max_batched_tokens=8)

    longest = build().engine.longest_request_tokens()
    for prompt, ends in ((longest - 1, True), (longest, False)):
        w = build()
        w.add("a", prompt, 1)
        w.steps(100)
        assert (w.engine.unfinished == 0) is ends


@pytest.mark.parametrize(("window", "shared"), [(8, 2), (5, 1), (6, 2)])
def test_a_hit_shares_all_full_blocks_and_the_windows_last_ones(world, window, shared):
    """32 cached tokens: 8 full blocks and ceil((window - 1) / 4) in the window; the 33rd token takes one block each."""
    w = world(kv_groups=(None, window), prefix_caching=True)
    w.add("a", [("s", 32)], 1)
    w.step()
    w.add("b", [("s", 32), ("u", 1)], 2)
    assert w.step().cached == {"b": 32}
    assert w.engine.kv_blocks_used == 8 + shared + 2


@pytest.mark.parametrize(("prefix", "hit"), [(32, 32), (24, 24), (20, 0), (16, 0)])
def test_a_prefix_is_hit_only_where_the_window_still_has_its_end(world, prefix, hit):
    """a uses all 16 blocks once; its first 4 window blocks were freed first, so c takes those. The 4 others remain."""
    w = world(kv_groups=(None, 8), prefix_caching=True, usable=16, max_batched_tokens=8)
    w.add("a", [("s", 32)], 1)
    w.steps(4)
    w.add("c", 8, 1)
    w.step()
    w.add("b", [("s", prefix), ("u", 1)], 1)
    assert w.step().cached == {"b": hit}


@pytest.mark.parametrize(("version", "used"), [("0.25", [2, 2, 2, 2, 1, 2]), ("0.32", [2, 3, 2, 2, 2, 2])])
def test_windows_wait_for_steps_in_flight_since_0_32(world, version, used):
    """8 tokens, a window of 4: the first block is out of reach in the second step, but the first still reads it."""
    w = world(version, kv_groups=(4,), async_scheduling=True)
    w.add("a", 8, 9)
    assert [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(6)] == used
