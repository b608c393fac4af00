"""What must hold in every step of any load, for vLLM V0, Sarathi-Serve and llama.cpp."""

import pytest
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


@st.composite
def loads(draw):
    """(step, prompt, output, step at which the client gives up): prompts share beginnings."""
    load = []
    for number in range(draw(st.integers(1, 12))):
        shared, private = draw(st.integers(0, 12)), draw(st.integers(1, 12))
        prompt = [(f"s{draw(st.integers(0, 1))}", shared)] * bool(shared) + [(f"u{number}", private)]
        gives_up = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(0, 40)))
        load.append((draw(st.integers(0, 15)), prompt, draw(st.integers(1, 14)), gives_up))
    return sorted(load, key=lambda request: request[0])


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


def play(world, engine, load, check=lambda *_: None):
    """Run a load to its end, checking each planned step; returns all requests by name and the steps' tokens."""
    w = world.of(engine)
    requests, waiting, gives_up, tokens, step = {}, list(load), [], [], 0
    while waiting or engine.unfinished:
        while waiting and waiting[0][0] <= step:
            _, prompt, output, until = waiting.pop(0)
            request = w.add(f"r{len(requests)}", prompt, output)
            requests[request.request_id] = request
            if until is not None:
                gives_up.append((until, request))
        for until, request in gives_up:
            if until == step:
                engine.abort(request)
        before = list(engine.running)
        known = {r: (r.known_tokens, r.computed_tokens, prefilling(r)) for r in requests.values()}
        plan = engine.schedule()
        check(engine, plan, before, known)
        outcome = engine.complete(plan)
        assert set(outcome.finished) <= set(outcome.emitted)
        tokens.append({request.request_id: count for request, count in plan.scheduled})
        step += 1
        assert step < 2000, "the engine does not come to an end"
    return requests, tokens


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


@given(paged_engines(), loads())
@settings(max_examples=300, deadline=None)
def test_invariants_of_every_step_with_blocks(world, chosen, load):
    kind, engine = chosen

    def check(engine, plan, before, known):
        check_tokens(engine, plan, known)
        check_blocks(engine, plan, before)
        budget = engine.settings.max_batched_tokens
        decodes_only = kind == "default" and not plan.admitted
        assert decodes_only or plan.work.tokens <= budget
        if kind == "default" and plan.admitted:
            assert len(plan.admitted) == len(plan.scheduled), "prompts are alone in their step"
            assert plan.sampled == [request for request, _ in plan.scheduled], "and whole"
            assert engine.blocks.pool.free >= engine.blocks.watermark_blocks
        if kind == "sarathi":
            decoding = {request for request in before if not known[request][2]}
            assert decoding <= {request for request, _ in plan.scheduled} | set(plan.preempted), "decodes never wait"

    requests, _ = play(world, engine, load, check)
    for request in requests.values():
        assert request.status is Status.ABORTED or request.emitted_tokens == request.output_tokens


@given(slot_engines(), loads())
@settings(max_examples=200, deadline=None)
def test_invariants_of_every_step_with_slots(world, chosen, load):
    engine = chosen[1]

    def check(engine, plan, before, known):
        check_tokens(engine, plan, known)
        assert plan.work.tokens <= engine.settings.max_batched_tokens
        held = [slot.request for slot in engine.slots if slot.request is not None]
        assert sorted(held, key=id) == sorted(engine.running, key=id)
        generating = {request for request in before if request.emitted_tokens}
        assert generating <= {request for request, _ in plan.scheduled}, "who generates never waits"
        assert not len(engine.waiting) or len(held) == len(engine.slots), "nobody waits beside a free slot"

    requests, tokens = play(world, engine, load, check)
    for name, request in requests.items():
        computed = sum(step.get(name, 0) for step in tokens)
        needed = request.prompt_tokens + request.output_tokens - 1
        if request.status is not Status.ABORTED:
            assert request.emitted_tokens == request.output_tokens
            assert computed == needed if not engine.settings.prefix_caching else computed <= needed


@given(paged_engines(), loads())
@settings(max_examples=200, deadline=None)
def test_blocks_are_conserved(world, chosen, load):
    """When all is done every block is free, one request could take the pool, and then nothing is cached."""
    engine = chosen[1]
    play(world, engine, load)
    pool = engine.blocks.pool
    assert (pool.used, pool.free) == (0, pool.usable)
    assert len(pool.take(pool.usable)) == pool.usable
    assert (pool._oldest, pool._later) == ({}, {})


@given(paged_engines(), loads())
@settings(max_examples=100, deadline=None)
def test_what_is_computed_is_what_was_asked_for(world, chosen, load):
    """A request computes prompt + output - 1 tokens less its hits, and more only if it was preempted."""
    engine = chosen[1]
    hits, preempted = {}, set()

    def note(engine, plan, before, known):
        hits.update({request: hit for request, hit, resumed in plan.admitted if not resumed})
        preempted.update(plan.preempted)

    requests, tokens = play(world, engine, load, note)
    for name, request in requests.items():
        computed = sum(step.get(name, 0) for step in tokens) + hits.get(request, 0)
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
    requests, _ = play(world, engine, [(0, [("u", prompt)], longest - prompt, None)])
    assert requests["r0"].emitted_tokens == longest - prompt


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("kind", ["default", "chunked", "sarathi", "slots"])
def test_equal_loads_are_planned_equally(world, kind, caching):
    load = [(i // 4, [("s", 9), (f"u{i}", 3 + i % 5)], 3 + i % 7, None) for i in range(20)]

    def engine():
        sizes = {"max_batched_tokens": 40, "max_sequences": 4, "max_model_len": 40, "block_tokens": 4}
        chosen = {**sizes, "kv_blocks": 14, "prefix_caching": caching, "chunked_prefill": kind == "chunked"}
        if kind == "slots":
            return LlamaCpp(EngineSettings(**{**chosen, "kv_blocks": 40}))
        if kind == "sarathi":
            return Sarathi(SarathiSettings(**chosen))
        return VllmV0(VllmV0Settings(**chosen))

    assert play(world, engine(), load)[1] == play(world, engine(), load)[1]
