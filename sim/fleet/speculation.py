"""Speculative decoding in a scenario: who drafts, what that takes, and what is assumed of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.cost import RooflineCost, SpeculativeCost
from sim.cost.memory import GIB
from sim.cost.speculation import LOOKUP_S
from sim.engine import EngineRules
from sim.engine.speculation import expected_tokens
from sim.fleet.assumptions import Assumption
from sim.hardware import HardwareProfile
from sim.models import ModelSpec, load_model
from sim.models.drafts import Draft, model_draft, mtp_draft
from sim.models.parallel import check_tensor_parallel
from sim.scenario import Loaded
from sim.scenario.specs import LinearCost
from sim.work import CostModel

RULES_VERSION = "0.32"
"""Whose recorded steps the scheduling of drafts reproduces."""


def draft_of(loaded: Loaded, target: ModelSpec) -> Draft | None:
    """What the scenario drafts with; None where no model does. Raises UnsupportedModel for one that cannot."""
    speculative = loaded.spec.engine.speculative
    if speculative is None:
        return None
    if speculative.method == "mtp":
        return mtp_draft(target)
    if speculative.draft_model is None:
        return None
    draft = load_model(speculative.draft_model, loaded.base_dir)
    check_tensor_parallel(draft, loaded.spec.deployment.tensor_parallel)
    return model_draft(draft, target)


def speculative_cost(
    loaded: Loaded, target: CostModel, draft: Draft | None, hardware: HardwareProfile, rules: EngineRules
) -> CostModel:
    """The target's cost and that of its drafts, on the same GPUs. A linear cost has its own term for them."""
    spec, speculative = loaded.spec, loaded.spec.engine.speculative
    if speculative is None or isinstance(spec.cost, LinearCost):
        return target
    ideal = spec.cost.efficiency == "ideal"
    if draft is None:
        host_s = 0.0 if ideal else LOOKUP_S * hardware.host.slowdown
        return SpeculativeCost(target, None, speculative.tokens, host_s)
    passes = RooflineCost(
        draft.model,
        hardware,
        parallel=replace(spec.deployment.parallel, pipeline=1),
        kv_dtype=spec.engine.kv_dtype,
        host=replace(rules.host, step_s=0.0, sequence_s=0.0),
        ideal=ideal,
        graph_sizes=() if spec.engine.cuda_graphs is False else rules.graph_sizes,
    )
    return SpeculativeCost(target, passes, speculative.tokens)


def speculation_assumptions(
    loaded: Loaded, target: ModelSpec, draft: Draft | None, rules: EngineRules
) -> Iterator[Assumption]:
    """What a run with speculation takes for granted."""
    speculative = loaded.spec.engine.speculative
    if speculative is None:
        return
    expected = expected_tokens(speculative.by_position)
    yield Assumption(
        "accepted drafts",
        f"{expected:.2f} tokens per verification on average",
        "each request draws from engine.speculative.acceptance, whatever its text and the load; real acceptance "
        "depends on both models and on the text",
    )
    yield Assumption(
        "scheduling of drafts",
        f"as vLLM {RULES_VERSION} does",
        "the version whose recorded steps are reproduced; others may pad and budget drafts otherwise",
    )
    if rules.async_scheduling:
        yield Assumption(
            "async scheduling", "off", "with speculation it is not built yet; vLLM overlaps the host where it can"
        )
    yield from _drafting(loaded, target, draft)


def _drafting(loaded: Loaded, target: ModelSpec, draft: Draft | None) -> Iterator[Assumption]:
    spec, tokens = loaded.spec, loaded.spec.engine.speculative.tokens  # type: ignore[union-attr]
    if isinstance(spec.cost, LinearCost):
        yield Assumption("drafting", f"{tokens} x draft_pass_s per step", "as the scenario says")
    elif draft is None:
        yield Assumption(
            "drafting", f"{LOOKUP_S * 1e3:g} ms of host time per step", "n-gram look-ups: an order of magnitude"
        )
    else:
        weights = draft.weight_bytes_per_gpu(spec.deployment.parallel) / GIB
        yield Assumption(
            "drafting",
            f"{tokens} passes of {draft.model.name} per step",
            "the first over the step's own tokens, the rest over one of each request, on the same GPUs; "
            f"{weights:.1f} GiB of its weights per GPU, and its KV in every block",
        )
        if draft.shares_embeddings and not target.mtp_layers:
            yield Assumption("MTP layer", "one like the model's last", "the config names none")
