"""What must hold in every step of any load, for vLLM V0, Sarathi-Serve and llama.cpp."""

from collections import Counter

import pytest
from engine_loads import Arrival, check_pool_is_whole, even_load, loads, play
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.llama_cpp import LlamaCpp
from sim.engine.prompt_blocks import prefilling
from sim.engine.request import Status
from sim.engine.sarathi import Sarathi, SarathiSettings
from sim.engine.settings import EngineSettings
from sim.engine.vllm_v0 import VllmV0, VllmV0Settings

BLOCK_TOKENS = 4
LONGEST = 40
LOADS = loads(shared=12, private=12, output=14, more=0, gives_up=True)


@st.composite
def paged_engines(draw, kinds=("default", "chunked", "sarathi")):
    """An engine with blocks to run out of, and what it is."""
    kind = draw(st.sampled_from(kinds))
    caching = draw(st.booleans())
    chosen = {
        "max_batched_tokens": LONGEST if kind == "default" else BLOCK_TOKENS * draw(st.integers(2, 10)),
        "max_sequences": draw(st.integers(1, 8)),
        "max_model_len": LONGEST,
        "block_tokens": BLOCK_TOKENS,
        "kv_blocks": draw(st.integers(11, 20)),
        "watermark": draw(st.sampled_from([0.0, 0.01, 0.1])),
        "prefix_caching": caching,
        "chunked_prefill": kind != "default",
    }
    if kind == "sarathi":
        return kind, Sarathi(SarathiSettings(**chosen))
    return kind, VllmV0(VllmV0Settings(**chosen))


@st.composite
def slot_engines(draw):
    slots = draw(st.integers(1, 4))
    chosen = EngineSettings(
        max_batched_tokens=draw(st.integers(1, 30)),
        max_sequences=slots,
        max_model_len=LONGEST,
        block_tokens=BLOCK_TOKENS,
        kv_blocks=draw(st.sampled_from([None, slots * 10])),
        prefix_caching=draw(st.booleans()),
    )
    return "slots", LlamaCpp(chosen)


def run(world, engine, load, check=lambda *_: None):
    """Run a load to its end, checking each planned step; returns all requests by name and the steps' tokens."""
    w, before = world.of(engine), []

    def look(_, requests):
        known = {r: (r.known_tokens, r.computed_tokens, prefilling(r)) for r in requests.values()}
        before[:] = [list(engine.running), known]

    w.planned = lambda plan: check(engine, plan, *before)
    logs, requests = play(w, load, look=look)
    return requests, [log.scheduled for log in logs]


def check_tokens(engine, plan, known):
    """The budget, the number of sequences, and who samples."""
    assert engine.running_count <= engine.settings.max_sequences
    hits = {request: hit for request, hit, _ in plan.admitted}
    for request, tokens in plan.scheduled:
        total, computed, _ = known[request]
        computed = hits.get(request, computed)
        assert 0 < tokens <= total - computed
        assert request.computed_tokens == computed + tokens
        assert (request in plan.sampled) == (request.computed_tokens == total)
    for request, hit in hits.items():
        assert hit < known[request][0]
    assert plan.work.tokens == sum(tokens for _, tokens in plan.scheduled)
    assert len({request for request, _ in plan.scheduled}) == len(plan.scheduled)


def check_blocks(engine, plan, before):
    """Blocks held are blocks used, and enough; victims are the last that ran, and stand first in the queue."""
    pool, running = engine.blocks.pool, engine.running
    if engine.blocks.caching:
        assert pool.used == len({block for request in running for block in request.blocks})
        assert all(len(request.blocks) == request.block_count for request in running)
    else:
        assert pool.used == sum(request.block_count for request in running)
    assert all(request.block_count * BLOCK_TOKENS >= request.computed_tokens for request in running)
    assert plan.preempted == before[::-1][: len(plan.preempted)]
    assert list(engine.waiting)[: len(plan.preempted)] == plan.preempted[::-1]
    assert all(request.computed_tokens == request.block_count == 0 for request in plan.preempted)


@given(paged_engines(), LOADS)
@settings(max_examples=300, deadline=None)
def test_invariants_of_every_step_with_blocks(world, chosen, load):
    kind, engine = chosen

    def check(engine, plan, running, known):
        check_tokens(engine, plan, known)
        check_blocks(engine, plan, running)
        budget = engine.settings.max_batched_tokens
        decodes_only = kind == "default" and not plan.admitted
        assert decodes_only or plan.work.tokens <= budget
        if kind == "default" and plan.admitted:
            assert len(plan.admitted) == len(plan.scheduled), "prompts are alone in their step"
            assert plan.sampled == [request for request, _ in plan.scheduled], "and whole"
            assert engine.blocks.pool.free >= engine.blocks.watermark_blocks
        if kind == "sarathi":
            decoding = {request for request in running if not known[request][2]}
            assert decoding <= {request for request, _ in plan.scheduled} | set(plan.preempted), "decodes never wait"

    requests, _ = run(world, engine, load, check)
    for request in requests.values():
        assert request.status is Status.ABORTED or request.emitted_tokens == request.output_tokens


@given(slot_engines(), LOADS)
@settings(max_examples=200, deadline=None)
def test_invariants_of_every_step_with_slots(world, chosen, load):
    engine = chosen[1]

    def check(engine, plan, running, known):
        check_tokens(engine, plan, known)
        assert plan.work.tokens <= engine.settings.max_batched_tokens
        held = [slot.request for slot in engine.slots if slot.request is not None]
        assert sorted(held, key=id) == sorted(engine.running, key=id)
        generating = {request for request in running if request.emitted_tokens}
        assert generating <= {request for request, _ in plan.scheduled}, "who generates never waits"
        assert not len(engine.waiting) or len(held) == len(engine.slots), "nobody waits beside a free slot"

    requests, tokens = run(world, engine, load, check)
    for name, request in requests.items():
        computed = sum(step.get(name, 0) for step in tokens)
        needed = request.prompt_tokens + request.output_tokens - 1
        if request.status is not Status.ABORTED:
            assert request.emitted_tokens == request.output_tokens
            assert computed == needed if not engine.settings.prefix_caching else computed <= needed


@given(paged_engines(), LOADS)
@settings(max_examples=200, deadline=None)
def test_blocks_are_conserved(world, chosen, load):
    engine = chosen[1]
    run(world, engine, load)
    check_pool_is_whole(engine.blocks.pool)


@given(paged_engines(), LOADS)
@settings(max_examples=100, deadline=None)
def test_what_is_computed_is_what_was_asked_for(world, chosen, load):
    """A request computes prompt + output - 1 tokens less its hits, and more only if it was preempted:
    what it has then may come from another's prefix."""
    engine = chosen[1]
    hits, preempted = Counter(), set()

    def note(engine, plan, running, known):
        hits.update({request: hit for request, hit, _ in plan.admitted})
        preempted.update(plan.preempted)

    requests, tokens = run(world, engine, load, note)
    for name, request in requests.items():
        computed = sum(step.get(name, 0) for step in tokens) + hits[request]
        needed = request.prompt_tokens + request.output_tokens - 1
        if request.status is Status.FINISHED:
            assert computed >= needed if request in preempted else computed == needed


@given(paged_engines(), st.integers(1, LONGEST), st.data())
@settings(max_examples=200, deadline=None)
def test_the_longest_request_alone_always_ends(world, chosen, prompt, data):
    """Whatever its share of prompt, a request of longest_request_tokens runs to its end in the pool for itself."""
    engine = chosen[1]
    longest = min(engine.longest_request_tokens(), LONGEST)
    prompt = min(prompt, longest - 1)
    requests, _ = run(world, engine, [Arrival(0, [("u", prompt)], longest - prompt, longest - prompt)])
    assert requests["r0"].emitted_tokens == longest - prompt


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("kind", ["default", "chunked", "sarathi", "slots"])
def test_equal_loads_are_planned_equally(world, kind, caching):
    load = even_load(every=4)

    def engine():
        sizes = {"max_batched_tokens": 40, "max_sequences": 4, "max_model_len": 40, "block_tokens": 4}
        chosen = {**sizes, "kv_blocks": 14, "prefix_caching": caching, "chunked_prefill": kind == "chunked"}
        if kind == "slots":
            return LlamaCpp(EngineSettings(**{**chosen, "kv_blocks": 40}))
        if kind == "sarathi":
            return Sarathi(SarathiSettings(**chosen))
        return VllmV0(VllmV0Settings(**chosen))

    assert run(world, engine(), load)[1] == run(world, engine(), load)[1]
