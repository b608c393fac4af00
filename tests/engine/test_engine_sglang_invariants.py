"""What must hold in every step of any load under SGLang's scheduler, page by page."""

from collections import Counter

from engine_loads import Arrival, by_arrival, check_computed, check_ends, play
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.request import Status

POLICIES = ["fcfs", "priority", "lpm", "dfs-weight", "lof", "random", "hrrn", "shortest-prefill-first"]


@st.composite
def loads(draw):
    """Prompts share beginnings, and some go on where an answer ended.

    The longest has 36 + 4 + 6 prompt tokens and a cap of 40.
    """
    load = []
    for number in range(draw(st.integers(1, 12))):
        shared, private = draw(st.sampled_from([0, 0, 3, 8, 36])), draw(st.integers(1, 6))
        answer = [(f"o:r{number - 1}", draw(st.integers(1, 4)))] if number and draw(st.booleans()) else []
        prompt = [(f"s{draw(st.integers(0, 1))}", shared)] * bool(shared) + answer + [(f"u{number}", private)]
        output = draw(st.integers(1, 30))
        cap = output + draw(st.sampled_from([0, 0, 2, 10]))
        load.append(Arrival(draw(st.integers(0, 25)), prompt, output, cap, draw(st.sampled_from([0, 1, 20]))))
    return by_arrival(load)


@st.composite
def engines(draw):
    """Settings of an engine whose pool holds the longest request alone, and little more."""
    page, policy = draw(st.sampled_from([1, 1, 4])), draw(st.sampled_from(POLICIES))
    return {
        "pool": draw(st.integers(94, 120)) // page,
        "block_tokens": page,
        "policy": policy,
        "priority_preemption": policy == "priority" and draw(st.booleans()),
        "prefix_caching": policy == "shortest-prefill-first" or draw(st.booleans()),
        "max_batched_tokens": draw(st.integers(4, 50)),
        "max_prefill_tokens": draw(st.sampled_from([20, 16384])),
        "max_sequences": draw(st.integers(1, 12)),
        "chunked_prefill": draw(st.booleans()),
        "mixed_chunk": draw(st.booleans()),
        "schedule_conservativeness": draw(st.sampled_from([0.01, 0.3, 1.0])),
        "async_scheduling": draw(st.booleans()),
        "ignore_eos": draw(st.booleans()),
        "recv_interval": draw(st.sampled_from([1, 3, 10])),
    }


def check_pool(w, requests, *_):
    """Free, cached and private pages make up the pool, and each is counted where it is."""
    cache = w.engine.cache
    page, tree = cache.page_tokens, cache.tree
    private = sum(held.private_pages for held in cache.held.values())
    assert cache.free_pages >= 0
    assert cache.free_pages + tree.tokens // page + private == cache.total_pages
    assert cache.used_pages == tree.locked_tokens // page + private
    assert set(cache.held) == {request for request in requests.values() if request.status is Status.RUNNING}
    locks = Counter()
    for request, held in cache.held.items():
        assert held.private_pages >= 0
        assert held.shared_tokens + held.private_pages * page == -(-request.computed_tokens // page) * page
        path, node = 0, held.node
        while node is not tree.root:
            locks[node] += 1
            path += node.tokens
            node = node.parent
        assert path == held.shared_tokens
    nodes = list(tree.root.children.values())
    for node in nodes:
        nodes += node.children.values()
        assert node.tokens == sum(run.tokens for run in node.runs)
        assert node.tokens > 0
        assert node.tokens % page == 0
        assert node.locks == locks[node]
    assert sum(node.tokens for node in nodes if node.locks) == tree.locked_tokens
    assert sum(node.tokens for node in nodes if not node.locks) == tree.evictable_tokens


def check_step(w, requests, before, log):
    """Prefill first, budgets, and who samples."""
    chosen, names = w.engine.settings, [request.request_id for request in w.plan.sampled]
    assert not set(log.preempted) & set(log.scheduled)
    assert all(requests[name].computed_tokens == 0 for name in log.preempted)
    assert w.engine.running_count <= chosen.max_sequences
    cut = set(log.scheduled) - set(names)
    assert len(cut) <= 1
    assert cut == ({w.engine.chunked.request_id} if w.engine.chunked and log.scheduled and cut else set())
    chunks, decodes = w.plan.work.chunks, w.plan.work.decode_sequences
    mixes = chosen.mixed_chunk and chosen.chunked_prefill
    assert mixes or not (chunks and decodes), "a step is prefill or decode"
    if chosen.chunked_prefill and chunks:
        assert sum(chunk.tokens for chunk in chunks) + decodes <= chosen.max_batched_tokens
    for name, hit in log.cached.items():
        assert hit % chosen.block_tokens == 0
        assert hit <= before[name].known_tokens - 1
        assert before[name].computed_tokens == 0
        assert (name in names) == (hit + log.scheduled[name] == before[name].known_tokens)


@given(engines(), loads())
@settings(max_examples=300, deadline=None)
def test_every_step_keeps_the_rules_and_every_request_ends(sglang, engine, load):
    check_ends(*play(sglang(**engine), load, check_step))


@given(engines(), loads())
@settings(max_examples=300, deadline=None)
def test_pages_are_conserved(sglang, engine, load):
    """In every step, and at the end: nothing is held, and all that is cached can be evicted."""
    w = sglang(**engine)
    play(w, load, check_pool)
    cache = w.engine.cache
    assert (cache.used_pages, cache.tree.locked_tokens) == (0, 0)
    cache.make_free(engine["pool"] * engine["block_tokens"])
    assert (cache.free_pages, cache.tree.tokens, cache.tree.root.children) == (engine["pool"], 0, {})


@given(engines(), loads())
@settings(max_examples=150, deadline=None)
def test_what_is_computed_is_what_was_asked_for(sglang, engine, load):
    check_computed(*play(sglang(**engine), load), overlapped=engine["async_scheduling"], least_again=1)


@given(engines(), loads())
@settings(max_examples=50, deadline=None)
def test_equal_loads_are_planned_equally(sglang, engine, load):
    assert play(sglang(**engine), load)[0] == play(sglang(**engine), load)[0]


@given(engines(), loads())
@settings(max_examples=100, deadline=None)
def test_a_load_may_be_aborted_at_any_time(sglang, engine, load):
    """Every third request is given up five steps after its arrival; the pool stays whole and the rest end."""
    w = sglang(**engine)
    for number in range(0, len(load), 3):
        load[number] = load[number]._replace(gives_up=load[number].step + 5)
    _, requests = play(w, load, check_pool)
    assert all(request.ended for request in requests.values())
    assert w.engine.kv_blocks_used == 0
