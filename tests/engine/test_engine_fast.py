"""The scheduler that keeps decodes as sums decides as the plain one does, step by step, whatever prompts share."""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine import EngineSettings, rules_for
from sim.engine.cache.run_cache import RunCache
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.schedulers import build_vllm
from sim.engine.trtllm.fast import FastTrtLlm
from sim.engine.trtllm.scheduler import TrtLlm, TrtLlmSettings

SEGMENTS = ["s", "t", "o:0", "o:1"]
pieces = st.lists(
    st.tuples(st.sampled_from(SEGMENTS), st.sampled_from([1, 3, 4, 7, 8, 12, 16, 20])), min_size=1, max_size=4
)
requests = st.lists(
    st.tuples(st.integers(0, 25), pieces, st.integers(1, 14), st.integers(0, 6), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=14,
)
worlds = st.fixed_dictionaries(
    {
        "kv_blocks": st.sampled_from([22, 26, 40, 90]),
        "max_batched_tokens": st.sampled_from([8, 24, 60, 200]),
        "max_sequences": st.sampled_from([2, 4, 8]),
        "policy": st.sampled_from(["fcfs", "priority"]),
        "async_scheduling": st.booleans(),
        "reserve_full_prompt": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.1]),
        "prefix_caching": st.sampled_from([True, True, False]),
        "long_prefill_threshold": st.sampled_from([0, 0, 6]),
    }
)
trtllm_worlds = st.fixed_dictionaries(
    {
        "kv_blocks": st.sampled_from([22, 26, 40, 90]),
        "max_batched_tokens": st.sampled_from([4, 24, 60, 200]),
        "max_sequences": st.sampled_from([1, 2, 4, 8]),
        "async_scheduling": st.booleans(),
        "prefix_caching": st.booleans(),
        "chunked_prefill": st.booleans(),
        "chunking_policy": st.sampled_from(["fcfs", "equal-progress"]),
        "batch_wait_timeout_iters": st.sampled_from([0, 0, 3]),
        "batch_wait_max_tokens_ratio": st.sampled_from([0.3, 1.0]),
    }
)
groups = st.sampled_from([(None, 8), (None, 5, 5), (None, 18, 7), (11,), (None, None, 30)])


def decisions(version: str, chosen: dict[str, Any], load: list[Any], *, plain: bool) -> list[Any]:
    """As ``followed``, of vLLM V1."""
    tables = chosen.get("kv_groups", ())
    windows = tuple({window for window in tables if window is not None})
    own = EngineSettings(max_model_len=80, block_tokens=4, **chosen)
    return followed(build_vllm(rules_for("vllm", version), own, windows, plain=plain), load)


def trtllm_decisions(chosen: dict[str, Any], load: list[Any], *, plain: bool) -> list[Any]:
    """As ``followed``, of TensorRT-LLM."""
    own = TrtLlmSettings(max_model_len=80, block_tokens=4, **chosen)
    return followed(TrtLlm(own, (9,)) if plain else FastTrtLlm(own, (9,)), load)


def followed(engine: Any, load: list[Any]) -> list[Any]:
    """Everything that can be seen of each step; some requests are aborted on their way."""
    arrivals = deque(sorted(enumerate(load), key=lambda entry: (entry[1][0], entry[0])))
    in_flight: deque[Plan] = deque()
    aborts: dict[int, Request] = {}
    seen: list[Any] = []
    for step in range(1500):
        while arrivals and arrivals[0][1][0] <= step:
            order, (_, prompt, output, spare, priority, aborted) = arrivals.popleft()
            tokens = sum(length for _, length in prompt)
            if tokens + output >= 76:
                continue
            request = Request(
                order, tokens, output, order=order, priority=priority, max_output_tokens=output + spare,
                prompt=tuple(prompt),
            )  # fmt: skip
            engine.add(request)
            if aborted:
                aborts[step + 3 + order] = request
        if step in aborts and not aborts[step].ended:
            engine.abort(aborts[step])
        if not engine.unfinished and not arrivals and not in_flight:
            break
        plan = engine.schedule()
        seen.append(
            (
                step,
                listed(engine, plan),
                [(request.order, hit, resumed) for request, hit, resumed in plan.admitted],
                [request.order for request in plan.preempted],
                (sorted(plan.work.chunks), *plan.work[1:]),
                engine.cache.pool.free,
            )
        )
        if not plan.empty:
            in_flight.append(plan)
        if in_flight and (plan.empty or len(in_flight) == engine.steps_in_flight):
            outcome = engine.complete(in_flight.popleft())
            ended = [request.order for request in outcome.finished]
            emitted = len(outcome.emitted) + outcome.steady
            seen.append((step, ended, emitted, engine.running_count, engine.waiting_count, engine.cache.pool.free))
    seen.append((engine.prefix_queries, engine.prefix_hits, engine.unfinished))
    return seen


def listed(engine: Any, plan: Plan) -> list[tuple[int, int, int]]:
    """Who gets how many tokens, and what is computed of it then."""
    if type(engine) is TrtLlm:
        return [(request.order, tokens, request.computed_tokens) for request, tokens in plan.scheduled]
    return [(request.order, tokens, engine.computed_tokens(request)) for request, tokens in engine.listed(plan)]


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(["0.9", "0.19", "0.25", "0.32", "0.33"]), worlds, groups, requests)
def test_sums_decide_as_lists_do_with_windows(
    version: str, chosen: dict[str, Any], kv_groups: tuple[int | None, ...], load: list[Any]
) -> None:
    """Without prefix caching; what falls out of a window is freed in the very same step."""
    blocks = chosen["kv_blocks"] * len(kv_groups)
    chosen = chosen | {"prefix_caching": False, "kv_groups": kv_groups, "kv_blocks": blocks}
    assert decisions(version, chosen, load, plain=False) == decisions(version, chosen, load, plain=True)


@settings(deadline=None, max_examples=500)
@given(trtllm_worlds, requests)
def test_sums_decide_as_lists_do_in_trtllm(chosen: dict[str, Any], load: list[Any]) -> None:
    assert trtllm_decisions(chosen, load, plain=False) == trtllm_decisions(chosen, load, plain=True)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(["0.9", "0.19", "0.25", "0.32", "0.33"]), worlds, requests)
def test_sums_decide_as_lists_do(version: str, chosen: dict[str, Any], load: list[Any]) -> None:
    assert decisions(version, chosen, load, plain=False) == decisions(version, chosen, load, plain=True)


def test_a_prompt_hit_over_and_over_leaves_nothing_behind_in_the_queue() -> None:
    """Each time its blocks leave the free queue and return to its end; the places they left are cleared away."""
    engine = build_vllm(
        rules_for("vllm", "0.33"), EngineSettings(kv_blocks=50, max_batched_tokens=64, max_sequences=4,
                                                  max_model_len=80, block_tokens=4)
    )  # fmt: skip
    for order in range(200):
        engine.add(Request(order, 17, 1, order=order, prompt=(("s", 17),)))
        engine.complete(engine.schedule())
    assert isinstance(engine.cache, RunCache)
    assert len(engine.cache.pool._queue) == 1
    assert engine.prefix_hits == 199 * 16
