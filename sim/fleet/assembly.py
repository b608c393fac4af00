"""From what the user wrote to what runs: profile, model, settings, cost model, KV capacity, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from sim.cost import KvCapacity, LinearCost, RooflineCost, kv_capacity, longest_request_tokens
from sim.engine import EngineRules, EngineSettings, Resolved, build_engine, rules_for, settings_for
from sim.engine.protocol import Engine
from sim.errors import DoesNotFit, Problem, RidgelineError, ScenarioError, TraceError, UnsupportedModel
from sim.fleet.assumptions import Assumption, assumptions, mean_request_tokens
from sim.fleet.effects import impossible_budgets, unfit_for_engine, without_effect
from sim.fleet.links import link_assumptions
from sim.fleet.parallel_engines import parallel_assumptions, parallel_settings, unfit_for_parallelism
from sim.fleet.speculation import draft_of, speculation_assumptions, speculative_cost
from sim.hardware import HardwareProfile, load_profile, with_overrides
from sim.models import ModelSpec, abstract_model, load_model, with_weight_dtype
from sim.models.drafts import Draft
from sim.models.memory import windows
from sim.models.parallel import PARALLELISM_CHECKS
from sim.parallel import Parallelism
from sim.scenario import Loaded
from sim.scenario.specs import AbstractModel, DeploymentSpec, EngineSpec, HardwareOverride
from sim.scenario.specs import LinearCost as LinearSpec
from sim.traffic import Traffic, open_traffic
from sim.traffic.patience import GiveUp, patience
from sim.traffic.stages import Stages, stages
from sim.work import CostModel

UNBOUNDED_TOKENS = 10_000_000
"""max_model_len of a model that states none: as long as any request a scenario may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A scenario with every default resolved."""

    loaded: Loaded
    model: ModelSpec
    hardware: HardwareProfile
    rules: EngineRules
    settings: EngineSettings
    deployment: DeploymentSpec
    capacity: KvCapacity | None
    """None: the model has no KV cache to run out of."""
    cost: CostModel
    assumed: tuple[Assumption, ...]

    @property
    def longest_prompt_tokens(self) -> int | None:
        """Of prompts that the engine takes in, where it bounds them by more than max_model_len."""
        refuses = self.rules.refuses_long_prompts and not self.settings.chunked_prefill
        return self.settings.max_batched_tokens if refuses else None

    @property
    def drain(self) -> bool:
        return self.loaded.spec.measure.drain

    @property
    def overheads(self) -> bool:
        """Whether host overheads are part of the world: not in an ideal or a linear one."""
        cost = self.loaded.spec.cost
        return cost.model == "roofline" and cost.efficiency == "calibrated"

    @property
    def request_latency_s(self) -> float:
        return self.rules.host.request_latency_s * self.hardware.host.slowdown if self.overheads else 0.0

    @property
    def request_serial_s(self) -> float:
        return self.rules.host.request_serial_s * self.hardware.host.slowdown if self.overheads else 0.0

    def engine(self, *, plain: bool = False) -> Engine:
        """A fresh engine of one replica; ``plain``: without short cuts."""
        return build_engine(self.rules, self.settings, windows(self.model), plain=plain)

    @property
    def draft_tokens(self) -> int:
        """Drafted per step and request."""
        return 0 if self.settings.speculation is None else self.settings.speculation.tokens

    def traffic(self) -> Traffic:
        """The load, from its start."""
        return open_traffic(self.loaded.spec.traffic, self.loaded.base_dir, self.loaded.spec.seed)

    def stages(self) -> Stages | None:
        """What lies between clients and server, from its start; None: nothing."""
        return stages(self.loaded.spec.traffic, self.loaded.spec.seed)

    def patience(self) -> Iterator[GiveUp] | None:
        """When clients give up their requests, in the order of sending; None: they never do."""
        return patience(self.loaded.spec.traffic, self.loaded.spec.seed)

    def generator(self, stream: str) -> np.random.Generator:
        """The random stream of that name: independent of every other, the same for the same seed."""
        return np.random.default_rng([self.loaded.spec.seed, *stream.encode()])


def assemble(loaded: Loaded) -> Setup:
    """Resolve a scenario. Raises ScenarioError with file and line where what the user wrote cannot be."""
    spec = loaded.spec
    _refuse(without_effect(loaded))
    with _placed(loaded, "hardware"):
        hardware = _hardware(loaded)
    with _placed(loaded, "model"):
        model = _model(loaded)
    with _placed(loaded, "engine.version"):
        rules = _on_host(rules_for(spec.engine.name, spec.engine.version), hardware)
    parallel = spec.deployment.parallel
    _refuse(_illegal(loaded, model, parallel))
    _refuse(unfit_for_parallelism(loaded, rules))
    _refuse(unfit_for_engine(loaded, rules))
    with _placed(loaded, "engine"):
        resolved = settings_for(
            rules,
            spec.engine,
            memory_bytes=hardware.memory_bytes,
            device_name=hardware.name,
            max_model_len=model.max_positions or UNBOUNDED_TOKENS,
            tensor_parallel=parallel.tensor * parallel.data,
            seed=spec.seed,
        )
    resolved = parallel_settings(parallel, rules, spec.engine, resolved)
    with _placed(loaded, _drafter(spec.engine)):
        draft = draft_of(loaded, model)
    with _placed(loaded, _widest(parallel)):
        cost = _cost(loaded, model, hardware, rules, resolved)
        if spec.engine.speculative is not None:
            cost = speculative_cost(loaded, cost, draft, hardware, rules)
    with _placed(loaded, "traffic"):
        request_tokens = mean_request_tokens(loaded)
    with _placed(loaded, "model"):
        capacity = _capacity(loaded, model, hardware, rules, resolved, request_tokens, draft)
    settings, fitted = _fit_length(loaded, model, rules, resolved.settings, capacity)
    _refuse(impossible_budgets(loaded, rules, settings))
    return Setup(
        loaded=loaded,
        model=model,
        hardware=hardware,
        rules=rules,
        settings=settings,
        deployment=spec.deployment,
        capacity=capacity,
        cost=cost,
        assumed=(
            *assumptions(loaded, model, hardware, rules, resolved, settings, capacity, fitted=fitted),
            *_link_assumptions(loaded, model, hardware),
            *parallel_assumptions(parallel, rules),
            *speculation_assumptions(loaded, model, draft, rules),
        ),
    )


def _link_assumptions(loaded: Loaded, model: ModelSpec, hardware: HardwareProfile) -> Iterator[Assumption]:
    cost = loaded.spec.cost
    if cost.model == "roofline" and cost.efficiency == "calibrated":
        yield from link_assumptions(model, hardware, loaded.spec.deployment.parallel)


def _on_host(rules: EngineRules, hardware: HardwareProfile) -> EngineRules:
    """The engine's rules with the overheads that were fitted on this host, where there are any."""
    fitted = hardware.host.overheads.get(rules.engine)
    return rules if fitted is None else replace(rules, host=fitted)


def _drafter(engine: EngineSpec) -> str:
    """The key that says which model drafts."""
    named = engine.speculative is not None and engine.speculative.draft_model is not None
    return "engine.speculative.draft_model" if named else "engine.speculative"


def _illegal(loaded: Loaded, model: ModelSpec, parallel: Parallelism) -> list[Problem]:
    """What the model cannot have, each at its own key."""
    problems = []
    for key, check in PARALLELISM_CHECKS.items():
        try:
            check(model, parallel)
        except UnsupportedModel as error:
            problems.append(loaded.problem(f"deployment.{key}", error.problem, error.cure))
    if loaded.spec.engine.speculative is not None and parallel.pipeline * parallel.data > 1:
        problem = "speculation under pipeline or data parallelism is not built yet"
        cure = "leave it out, or use deployment.tensor_parallel and expert_parallel alone"
        problems.append(loaded.problem("engine.speculative", problem, cure))
    return problems


def _widest(parallel: Parallelism) -> str:
    """The key that needs most of the links."""
    degrees = {
        "tensor_parallel": parallel.tensor,
        "pipeline_parallel": parallel.pipeline,
        "data_parallel": parallel.data,
    }
    return f"deployment.{max(degrees, key=lambda key: degrees[key])}"


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ScenarioError(problems)


@contextmanager
def _placed(loaded: Loaded, path: str) -> Iterator[None]:
    """Give an error of a lower room its file, line and key."""
    try:
        yield
    except (DoesNotFit, UnsupportedModel) as error:
        raise ScenarioError([loaded.problem(path, error.problem, error.cure)]) from error
    except TraceError:
        raise
    except ScenarioError as error:
        problems = [
            loaded.problem(problem.path, problem.problem, problem.cure) if problem.file == "scenario" else problem
            for problem in error.problems
        ]
        raise ScenarioError(problems) from error
    except RidgelineError as error:
        problem, _, cure = str(error).partition("\n  cure: ")
        raise ScenarioError([loaded.problem(path, problem, cure)]) from error


def _hardware(loaded: Loaded) -> HardwareProfile:
    wanted = loaded.spec.hardware
    if not isinstance(wanted, HardwareOverride):
        return load_profile(wanted, loaded.base_dir)
    profile = load_profile(wanted.profile, loaded.base_dir)
    try:
        return _overridden(profile, wanted)
    except ScenarioError as error:
        problems = [
            loaded.problem(f"hardware.{problem.path}", problem.problem, problem.cure) for problem in error.problems
        ]
        raise ScenarioError(problems) from error


def _overridden(profile: HardwareProfile, wanted: HardwareOverride) -> HardwareProfile:
    return with_overrides(
        profile,
        peak_flops_per_s={str(dtype): peak for dtype, peak in wanted.peak_flops_per_s.items()} or None,
        hbm_bytes_per_s=wanted.hbm_bytes_per_s,
        memory_bytes=None if wanted.memory_bytes is None else int(wanted.memory_bytes),
        host_slowdown=wanted.host_slowdown,
    )


def _model(loaded: Loaded) -> ModelSpec:
    spec = loaded.spec
    if isinstance(spec.model, AbstractModel):
        return abstract_model(spec.model.parameters, spec.model.weight_dtype)
    model = load_model(spec.model, loaded.base_dir)
    return model if spec.engine.weight_dtype is None else with_weight_dtype(model, spec.engine.weight_dtype)


def _cost(
    loaded: Loaded, model: ModelSpec, hardware: HardwareProfile, rules: EngineRules, resolved: Resolved
) -> CostModel:
    spec = loaded.spec
    if isinstance(spec.cost, LinearSpec):
        passes = 0 if spec.engine.speculative is None else spec.engine.speculative.tokens
        stages = spec.deployment.pipeline_parallel
        return LinearCost(**spec.cost.model_dump(exclude={"model"}), draft_passes=passes, stages=stages)
    return RooflineCost(
        model,
        hardware,
        parallel=spec.deployment.parallel,
        kv_dtype=spec.engine.kv_dtype,
        host=rules.host,
        ideal=spec.cost.efficiency == "ideal",
        graph_sizes=resolved.graph_sizes if _graphs(spec.engine) else (),
        factors=rules.kernel_factors,
        shares=rules.bandwidth_shares,
    )


def _graphs(engine: EngineSpec) -> bool:
    return engine.cuda_graphs is not False


def _capacity(
    loaded: Loaded,
    model: ModelSpec,
    hardware: HardwareProfile,
    rules: EngineRules,
    resolved: Resolved,
    request_tokens: int,
    draft: Draft | None,
) -> KvCapacity | None:
    engine = loaded.spec.engine
    return kv_capacity(
        model,
        hardware,
        parallel=loaded.spec.deployment.parallel,
        kv_dtype=engine.kv_dtype,
        block_tokens=resolved.settings.block_tokens,
        request_tokens=request_tokens,
        gpu_memory_utilization=resolved.gpu_memory_utilization,
        max_batched_tokens=resolved.settings.max_batched_tokens,
        max_sequences=resolved.settings.max_sequences,
        graphs_counted=rules.graphs_counted_in_memory and _graphs(engine),
        share=rules.memory_share,
        reserved_blocks=rules.reserved_blocks,
        window_groups=rules.shares_pool_between_windows,
        kv_blocks=engine.kv_blocks,
        most_blocks=resolved.most_kv_blocks,
        draft=draft,
    )


def _fit_length(
    loaded: Loaded, model: ModelSpec, rules: EngineRules, settings: EngineSettings, capacity: KvCapacity | None
) -> tuple[EngineSettings, bool]:
    """The pool must hold one request of max_model_len, as the engine demands at start-up.

    A length the user did not set is shortened to what fits; returns whether it was.
    """
    if capacity is None:
        return settings, False
    engine = loaded.spec.engine
    settings = replace(settings, kv_blocks=capacity.blocks, kv_groups=capacity.groups)
    if capacity.groups == (None,) and not rules.divides_pool:
        longest = longest_request_tokens(model, capacity, loaded.spec.deployment.parallel, engine.kv_dtype)
        if rules.scheduler == "static":
            # Windows make a long request cheap, but every request of a batch is given all blocks of that length.
            longest = min(longest, capacity.tokens)
    else:
        longest = build_engine(rules, settings).longest_request_tokens() or 0
    if longest >= settings.max_model_len:
        return settings, False
    if engine.max_model_len is not None:
        problem = (
            f"{settings.max_model_len:,} tokens of one request need more than the KV pool, which holds {longest:,}"
        )
        raise ScenarioError(
            [
                loaded.problem(
                    "engine.max_model_len", problem, f"use at most {longest}, or leave it out to take what fits"
                )
            ]
        )
    if longest < 2:
        raise ScenarioError([loaded.problem("engine.kv_blocks", *_too_small(rules, settings))])
    return replace(settings, max_model_len=longest), True


def _too_small(rules: EngineRules, settings: EngineSettings) -> tuple[str, str]:
    """A pool without room for a prompt of one token and its answer: problem and cure."""
    pool, cure = f"the KV pool of {settings.kv_blocks:,} x {settings.block_tokens:,} tokens", "use more KV blocks"
    if rules.divides_pool:
        pool, cure = f"{pool}, divided among {settings.max_sequences:,} slots,", f"{cure}, or fewer max_sequences"
    return f"{pool} holds no request at all", cure
