"""Drafts: attached, verified, rolled back, padded and budgeted, in worlds small enough to count by hand."""

from itertools import islice

import pytest
from engine_loads import loads, play
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.request import Request, Status
from sim.engine.speculation import SpeculationSettings, expected_tokens, seeded_draws
from sim.work import PrefillChunk


def drafting(method="ngram", tokens=2, acceptance=None, seed=0):
    return SpeculationSettings(method=method, tokens=tokens, acceptance=acceptance or (0.5,) * tokens, seed=seed)


def test_a_verification_emits_what_it_accepts_and_one_more(world):
    """5 prompt tokens, k = 2, accepting 2, 0, 2: 1 + 3 + 1 + 3 = 8 tokens in 4 steps.

    computed before each step: 0, 5, 8 (all 3 kept), 9 (2 of 3 rolled back).
    """
    w = world(speculation=drafting(), accepts=[2, 0, 2])
    request = w.add("a", 5, 8)
    seen = []
    for _ in range(4):
        before = request.computed_tokens
        seen.append((before, w.step()))
    assert [before for before, _ in seen] == [0, 5, 8, 9]
    assert [log.scheduled["a"] for _, log in seen] == [5, 3, 3, 3]
    assert [log.tokens["a"] for _, log in seen] == [1, 3, 1, 3]
    assert request.status is Status.FINISHED


def test_the_last_verification_is_cut_at_the_request_s_end(world):
    """As above with 6 tokens to give: the last verification accepts 2 of which 1 is wanted."""
    w = world(speculation=drafting(), accepts=[2, 0, 2])
    w.add("a", 5, 6)
    assert [log.tokens["a"] for log in w.steps(4)] == [1, 3, 1, 1]
    assert w.engine.unfinished == 0


def test_blocks_of_rejected_drafts_stay(world):
    """Blocks of 4: the prompt takes 2; 5 + 1 + 2 = 8 still 2; from 6, 9 tokens need a third."""
    w = world(speculation=drafting(), accepts=[0])
    w.add("a", 5, 8)
    used = []
    for _ in range(3):
        w.step()
        used.append(w.engine.kv_blocks_used)
    assert used == [2, 2, 3]


def test_a_budget_cuts_drafts_and_what_has_none_is_no_verification(world):
    """Budget 7 for three decodes of 3: 3 + 3 + 1. The third only samples: its first verification is still to come."""
    w = world(speculation=drafting(), accepts=[2, 0], max_batched_tokens=7)
    for name in "abc":
        w.add(name, 2, 20)
    assert w.step().scheduled == {"a": 2, "b": 2, "c": 2}
    first = w.step()
    assert (first.scheduled, first.tokens) == ({"a": 3, "b": 3, "c": 1}, {"a": 3, "b": 3, "c": 1})
    w.engine.abort(w.engine.running[0])
    second = w.step()
    assert (second.scheduled, second.tokens) == ({"b": 3, "c": 3}, {"b": 1, "c": 3})


def test_drafts_wait_for_their_turn(world):
    """Budget 4 for two decodes of 3: 3 + 1, and with a budget of 3 the second waits with its drafts."""
    w = world(speculation=drafting(), accepts=[0], max_batched_tokens=3)
    w.add("a", 1, 2)
    w.add("b", 2, 9)
    assert w.scheduled(3) == [{"a": 1, "b": 2}, {"a": 3}, {"b": 3}]


def test_drafts_stop_at_max_model_len(world):
    """8 tokens at most: with 6 known (5 computed), 2 may be computed, as the eighth is never."""
    w = world(speculation=drafting(tokens=4), accepts=[0], max_model_len=8)
    w.add("a", 5, 99)
    assert w.scheduled(3) == [{"a": 5}, {"a": 2}, {"a": 1}]
    assert w.engine.unfinished == 0


class TestPadding:
    """An admission of one token joins a batch of verifications as 1 + k, its dummy drafts rejected."""

    def test_beside_a_decode(self, world):
        w = world(speculation=drafting(), accepts=[2])
        w.add("a", 3, 20)
        w.step()
        late = w.add("one", 1, 20)
        log = w.step()
        assert (log.scheduled, log.tokens) == ({"a": 3, "one": 3}, {"a": 3, "one": 1})
        assert late.computed_tokens == 1
        assert w.step().tokens["one"] == 3, "padding uses up no acceptance"

    def test_not_alone(self, world):
        w = world(speculation=drafting(), accepts=[2])
        w.add("one", 1, 20)
        assert w.step().scheduled == {"one": 1}

    def test_not_beside_a_prompt_in_chunks(self, world):
        """Budget 8: the prompt of 10 takes 8, then 2, beside which the single token stays single."""
        w = world(speculation=drafting(), accepts=[2], max_batched_tokens=8)
        w.add("a", 10, 20)
        w.step()
        w.add("one", 1, 20)
        assert w.step().scheduled == {"a": 2, "one": 1}

    def test_with_all_but_one_token_cached(self, world):
        """The second prompt of 9 hits 8: with nothing running it is padded all the same."""
        w = world(speculation=drafting(), accepts=[2], prefix_caching=True)
        w.add("a", [("p", 9)], 1)
        w.step()
        w.add("b", [("p", 9)], 20)
        log = w.step()
        assert (log.cached, log.scheduled, log.tokens) == ({"b": 8}, {"b": 3}, {"b": 1})

    def test_admission_ends_where_it_does_not_fit(self, world):
        """Budget 5 after a decode of 3: 2 are left for 3."""
        w = world(speculation=drafting(), accepts=[2], max_batched_tokens=5)
        w.add("a", 3, 20)
        w.step()
        w.add("one", 1, 20)
        w.add("two", 2, 20)
        assert w.step().scheduled == {"a": 3}


class TestDraftModel:
    def test_every_request_takes_one_slot_of_the_budget_more(self, world):
        """Budget 8, k = 2: a prompt of 4 takes 5, which leaves 2 tokens and a slot; then 3 + 1 of 8 per decode."""
        w = world(speculation=drafting("draft-model"), accepts=[0], max_batched_tokens=8)
        for name in "abc":
            w.add(name, 4, 20)
        assert w.scheduled(3) == [{"a": 4, "b": 2}, {"a": 3, "b": 2}, {"a": 3, "b": 3}]

    def test_it_looks_ahead_k_slots(self, world):
        """Blocks of 4, k = 3: a prompt of 5 needs slots for 8, one of 6 for 9."""
        for prompt, blocks in ((5, 2), (6, 3)):
            w = world(speculation=drafting("draft-model", 3), accepts=[0])
            w.add("a", prompt, 20)
            w.step()
            assert w.engine.kv_blocks_used == blocks

    def test_it_looks_no_further_than_max_model_len(self, world):
        w = world(speculation=drafting("draft-model", 3), accepts=[0], max_model_len=8)
        w.add("a", 6, 20)
        w.step()
        assert w.engine.kv_blocks_used == 2

    def test_only_computed_blocks_are_cached(self, world):
        """A chunk of 6 with 2 slots ahead reaches block 2, of which nothing may be hit."""
        w = world(speculation=drafting("draft-model", 2), accepts=[0], prefix_caching=True, max_batched_tokens=7)
        first = w.add("a", [("p", 20)], 5)
        w.step()
        assert (first.block_count, first.registered_blocks) == (2, 1)


def test_mtp_computes_the_last_hit_block_again(world):
    """A prompt of 9 hits 2 blocks of 4, of which MTP drops one."""
    for method, hit in (("ngram", 8), ("mtp", 4)):
        w = world(speculation=drafting(method), accepts=[0], prefix_caching=True)
        w.add("a", [("p", 9)], 1)
        w.step()
        w.add("b", [("p", 9)], 1)
        assert w.step().cached == {"b": hit}


def test_work_of_a_verification(world):
    """Two decodes of 1 + 2 with contexts 8 and 9 beside a prompt of 6: 6 rows of them and 1 of it reach the head."""
    w = world(speculation=drafting(), accepts=[0], windows=(8,))
    w.add("a", 5, 20)
    w.add("b", 6, 20)
    w.step()
    w.add("c", 6, 20)
    w.step()
    work = w.plan.work
    assert (work.decode_sequences, work.draft_tokens, work.decode_tokens) == (2, 4, 6)
    assert (work.decode_context_tokens, work.decode_window_tokens) == (17, (16,))
    assert (work.chunks, work.sampled_sequences, work.tokens) == ((PrefillChunk(6, 0),), 7, 12)


def test_a_preempted_request_loses_its_drafts(world):
    """8 blocks of 4: both grow to 4 blocks (16 tokens); the next block of a takes b's, drafts and all."""
    w = world(speculation=drafting(), accepts=[2], usable=8, max_batched_tokens=64)
    w.add("a", 12, 17)
    w.add("b", 12, 17)
    log = w.step()
    while not log.preempted:
        log = w.step()
    b = w.engine.waiting.head()
    assert (log.preempted, b.request_id, b.draft_tokens, b.computed_tokens) == (["b"], "b", 0, 0)
    known = b.known_tokens
    while "b" not in log.cached:
        log = w.step()
    assert (log.scheduled["b"], log.tokens["b"]) == (known, 1), "it recomputes what it knows, without drafts"
    w.drain()


@pytest.mark.parametrize("acceptance", [(0.7, 0.7, 0.7), (0.8, 0.6, 0.5), (0.9,), (1.0, 0.0)])
def test_expected_tokens_of_a_verification(acceptance):
    """1 + a1 + a1 a2 + ...: the mean of 20,000 draws is within 4 standard errors of it."""
    count, total, squares = 20_000, 0, 0
    for accepted in islice(seeded_draws(acceptance, 1)(Request("r", 1, 1, order=0)), count):
        total += accepted
        squares += accepted**2
    mean = total / count
    error = ((squares / count - mean**2) / count) ** 0.5
    assert 1 + mean == pytest.approx(expected_tokens(acceptance), abs=4 * error + 1e-12)
    by_hand = {3: {0.7: 2.533, 0.8: 1 + 0.8 + 0.48 + 0.24}, 1: {0.9: 1.9}, 2: {1.0: 2.0}}
    assert expected_tokens(acceptance) == pytest.approx(by_hand[len(acceptance)][acceptance[0]])


def test_acceptance_does_not_depend_on_scheduling(world):
    """The same requests alone, together, and with little room: each gives the same tokens per verification."""

    def bursts(names, **changes):
        w = world(speculation=drafting(tokens=3, acceptance=(0.6,) * 3, seed=4), **changes)
        for name in names:
            w.add(name, 6, 40)
        found = {name: [] for name in names}
        for log in w.drain():
            for name, tokens in log.tokens.items():
                found[name].append(tokens)
        return found

    together = bursts("abc")
    assert together == {name: bursts(name)[name] for name in "abc"}
    assert together == bursts("abc", max_sequences=1)
    assert len({tuple(tokens) for tokens in together.values()}) == 3, "each request has its own stream"


ENGINES = st.fixed_dictionaries(
    {
        "version": st.sampled_from(["0.19", "0.32", "0.33"]),
        "usable": st.integers(20, 30),
        "max_batched_tokens": st.integers(6, 40),
        "max_sequences": st.integers(1, 6),
        "policy": st.sampled_from(["fcfs", "priority"]),
        "prefix_caching": st.booleans(),
        "reserve_full_prompt": st.booleans(),
        "long_prefill_threshold": st.sampled_from([0, 3]),
        "kv_groups": st.sampled_from([(None,), (8,), (None, 6)]),
        "speculation": st.builds(
            lambda method, tokens, chance, seed: drafting(method, tokens, (chance,) * tokens, seed),
            st.sampled_from(["ngram", "draft-model", "mtp"]),
            st.integers(1, 4),
            st.sampled_from([0.0, 0.5, 0.9, 1.0]),
            st.integers(0, 3),
        ),
    }
)


@given(ENGINES, loads(shared=8, private=18, output=20, more=0))
@settings(max_examples=300, deadline=None)
def test_invariants_of_every_step(world, engine, load):
    """Tokens and blocks are conserved, budgets kept, and every request ends with just its output."""
    w = world(**{**engine, "usable": engine["usable"] * len(engine["kv_groups"])}, max_model_len=64)
    chosen = engine["speculation"]

    def check(w, requests, before, log):
        plan, pool = w.plan, w.engine.cache.pool
        taken = sum(log.scheduled.values()) + chosen.extra_input_tokens * len(log.scheduled)
        assert taken <= engine["max_batched_tokens"]
        assert plan.work.tokens == sum(log.scheduled.values())
        assert 0 <= pool.free <= pool.usable
        verifying = {request.request_id: drafts for request, (drafts, _) in plan.drafts.items()}
        for name, tokens in log.tokens.items():
            assert 1 <= tokens <= 1 + verifying.get(name, 0) <= 1 + chosen.tokens
            assert requests[name].known_tokens == before[name].known_tokens + tokens
        for request in w.engine.running:
            assert request.computed_tokens < request.known_tokens
            assert request.draft_tokens in (0, chosen.tokens)

    logs, requests = play(w, load, check)
    for name, request in requests.items():
        got = sum(log.tokens.get(name, 0) for log in logs)
        assert (request.status, got) == (Status.FINISHED, request.output_tokens)
    assert w.engine.kv_blocks_used == 0
