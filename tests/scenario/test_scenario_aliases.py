"""An engine's own flags as other names of keys."""

from __future__ import annotations

import pytest

from sim.scenario.keys import ALIASES, NEGATED
from sim.scenario.specs import DeploymentSpec, EngineSpec

VALUES = {
    "engine.weight_dtype": "fp8",
    "engine.kv_dtype": "fp8",
    "engine.policy": "priority",
    "engine.prefix_caching": True,
    "engine.chunked_prefill": True,
    "engine.cuda_graphs": True,
    "engine.async_scheduling": True,
    "engine.reserve_full_prompt": True,
    "engine.speculative": None,
    "engine.gpu_memory_utilization": 0.8,
    "engine.mixed_chunk": True,
    "engine.priority_preemption": True,
    "engine.capacity_policy": "max-utilization",
    "engine.chunking_policy": "equal-progress",
    "deployment.pipeline_parallel": 1,
    "deployment.data_parallel": 1,
}


def yaml(value):
    return "null" if value is None else str(value).lower()


@pytest.mark.parametrize("dashed", [False, True])
@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_own_name(alias, dashed, base, load):
    """With underscores or dashes; what an alias negates is negated."""
    target = ALIASES[alias]
    room, name = target.split(".")
    value = VALUES.get(target, 7)
    written = yaml(not value if alias in NEGATED else value)
    spelled = alias.replace("_", "-") if dashed else alias
    spec = load(base.replace("engine: {", f"engine: {{{spelled}: {written}, ")).spec
    assert getattr(getattr(spec, room), name) == value


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_errs_like_its_own_name(alias, base, complaint):
    """The same words, at the alias's line under the alias's name."""
    room, name = ALIASES[alias].split(".")
    by_alias = complaint(base + f"deployment:\n  {alias}: [wrong]\n")
    own = base.replace('engine: {version: "0.33"}\n', "") + f"{room}:\n\n  {name}: [wrong]\n"
    assert by_alias.startswith(f"w.yaml:11: deployment.{alias}: ")
    assert by_alias.replace(f"deployment.{alias}", f"{room}.{name}") == complaint(own)


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_and_its_own_name_together_are_an_error(alias, base, complaint):
    target = ALIASES[alias]
    room, name = target.split(".")
    text = base.replace('engine: {version: "0.33"}\n', "") + f"engine:\n  {alias}: 1\n"
    text += f"  {name}: 1\n" if room == "engine" else f"{room}:\n  {name}: 1\n"
    assert complaint(text).startswith(
        f"w.yaml:10: engine.{alias}: says the same as {target}\n  cure: keep one of the two"
    )


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("name: sglang, chunked-prefill-size: 4096", "max_batched_tokens", 4096),
        ("name: sglang, disable-radix-cache: true", "prefix_caching", False),
        ("name: sglang, schedule-policy: lpm", "policy", "lpm"),
        ("name: trtllm, free_gpu_memory_fraction: 0.8", "gpu_memory_utilization", 0.8),
        ("name: trtllm, disable_overlap_scheduler: true", "async_scheduling", False),
        ("name: llama.cpp, ctx-size: 32768", "kv_blocks", 32768),
    ],
)
def test_an_engine_is_set_by_its_own_flags(flags, key, value, base, load):
    """llama.cpp's context is counted in blocks of one token."""
    assert getattr(load(base.replace('{version: "0.33"}', f"{{{flags}}}")).spec.engine, key) == value


def test_a_constant_in_capitals_is_told_its_name_here(base, complaint):
    text = base.replace('version: "0.33"', "name: trtllm, capacity_scheduler_policy: MAX_UTILIZATION")
    assert "did you mean max-utilization?" in complaint(text)


def test_two_aliases_of_one_key_are_an_error(base, complaint):
    text = base + "deployment:\n  max_num_seqs: 4\n  max-num-seqs: 4\n"
    assert "w.yaml:12: deployment.max-num-seqs: says the same as deployment.max_num_seqs" in complaint(text)


@pytest.mark.parametrize(("spec", "room"), [(EngineSpec, "engine"), (DeploymentSpec, "deployment")])
def test_own_names_may_have_dashes(spec, room, base, complaint):
    """Flags that are spelled as a key is (gpu-memory-utilization): known, whatever is wrong with the value."""
    text = base.replace('engine: {version: "0.33"}\n', "")
    for name in spec.model_fields:
        dashed = name.replace("_", "-")
        assert complaint(text + f"{room}: {{{dashed}: [wrong]}}\n").startswith(
            f"w.yaml:9: {room}.{dashed}: ['wrong'] is "
        )


def test_a_misspelt_flag_is_told_the_flag(base, complaint):
    assert "did you mean max_num_batched_tokens?" in complaint(base.replace("version", "max_num_batch_tokens"))


def test_a_flag_under_a_blank_section(base, load):
    """``deployment:`` with nothing below it, while the engine's flag writes there."""
    loaded = load(base.replace("engine: {", "engine: {tensor_parallel_size: 2, ") + "deployment:\n")
    assert loaded.spec.deployment.tensor_parallel == 2
