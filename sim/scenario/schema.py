"""The JSON Schema of scenarios, and a starter."""

from __future__ import annotations

from typing import Any

from sim.scenario.document import FLAGGED
from sim.scenario.keys import ALIASES, NEGATED
from sim.scenario.quantities import TIME
from sim.scenario.specs import Scenario
from sim.scenario.speculation import OWN_METHODS, OWN_NAMES

STARTER = """\
# A chat assistant on one GPU. Run it:  sim run scenario.yaml
# Quantities may carry units (50 ms, 10 min, 80 GiB); bare numbers are SI base units. Unknown keys are errors.

model: llama-3.1-8b                 # `sim models` lists the presets; or a path to a Hugging Face config.json
hardware: h100-sxm                  # `sim hardware` lists the devices; or a path to a profile

engine:
  name: vllm                        # sglang, trtllm, llama.cpp; sarathi, orca, static (papers, without version)
  version: "0.33"                   # in quotes; defaults below follow it
  # max_batched_tokens: 8192        # tokens one step may process
  # max_sequences: 1024             # requests that run at once
  # max_model_len: 32768
  # gpu_memory_utilization: 0.92
  # prefix_caching: true
  # weight_dtype: fp8               # what if the weights were quantised?
  # kv_dtype: fp8

deployment:
  replicas: 1
  tensor_parallel: 1                # GPUs of one replica
  # router: round-robin             # random, least-outstanding, power-of-two, session, prefix, weighted

traffic:
  arrivals: {process: poisson, rate: 8}         # requests per second; gamma (cv), constant, burst, closed, trace
  requests: 1000                                # or duration: 10 min
  prompt_tokens: {distribution: lognormal, mean: 1024, p99: 8000}    # a bare number is a fixed length
  output_tokens: {distribution: lognormal, mean: 256, p99: 1500}
  # shared_prefix: {tokens: 512, groups: 10}    # system prompts that requests share
  # sessions: {turns: 5, think_time: 10 s}      # chats: the rate is then theirs, prompt_tokens are new ones per turn
  # client: {timeout: 60 s}                     # clients give up what has not ended by then

slo: {ttft: 1 s, tpot: 50 ms, attainment: 0.99}
# cost: {model: roofline, efficiency: ideal}    # datasheet peaks and no overheads
# measure: {warmup: 100, drain: true}           # requests left out at the start
seed: 0
"""


_TIME = {"type": "string", "pattern": rf"^\s*[-+.\d][-+.\deE]*\s*({'|'.join(TIME)})?\s*$"}
SHORT_FORMS: dict[str, list[dict[str, Any]]] = {
    "normal": [{"type": "integer", "minimum": 1, "description": "a fixed length"}],
    "exponential": [{"type": "number", "minimum": 0, "description": "a fixed time in seconds"}, _TIME],
    "zipf": [{"type": "string", "enum": ["uniform", "zipf"]}],
}
"""By one of the choices of a distribution: what may stand in its place."""


def starter_yaml() -> str:
    """A commented scenario that runs."""
    return STARTER


def scenario_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario for editors: units, short forms and an engine's own flags included."""
    schema = Scenario.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Ridgeline scenario"
    rooms = {room: schema["$defs"][spec.__name__]["properties"] for room, spec in FLAGGED.items()}
    own = {f"{room}.{name}": dict(described) for room, keys in rooms.items() for name, described in keys.items()}
    for target, described in own.items():
        room, name = target.split(".")
        spellings = {alias for alias, meant in ALIASES.items() if meant == target}
        for flag in spellings | {alias.replace("_", "-") for alias in spellings}:
            says = "The opposite of" if flag.replace("-", "_") in NEGATED else "The same as"
            for keys in rooms.values():
                keys[flag] = _alias(described, f"{says} {target}")
        if "_" in name:
            rooms[room][name.replace("_", "-")] = _alias(described, f"The same as {target}")
    _vllm_names(schema["$defs"]["SpeculativeSpec"])
    for name, field in Scenario.model_fields.items():
        if not field.is_required() and name != "seed":
            schema["properties"][name] = {"anyOf": [schema["properties"][name], {"type": "null"}]}
    for spec in schema["$defs"].values():
        _short_forms(spec.get("properties", {}))
    return schema


def _short_forms(properties: dict[str, Any]) -> None:
    """Where a distribution may be given, so may its short form."""
    for name, described in properties.items():
        unions = described.get("anyOf", [described])
        for union in unions:
            choices = union.get("discriminator", {}).get("mapping", {})
            short = next((SHORT_FORMS[choice] for choice in choices if choice in SHORT_FORMS), None)
            if short is not None and union is described:
                rest = {key: described[key] for key in ("description", "default") if key in described}
                properties[name] = {"anyOf": [described, *short], **rest}
            elif short is not None:
                unions += short


def _vllm_names(speculative: dict[str, Any]) -> None:
    """A speculative config may be written in vLLM's keys."""
    keys = speculative["properties"]
    for alias, own in OWN_NAMES.items():
        for flag in {alias, alias.replace("_", "-")}:
            keys[flag] = _alias(keys[own], f"The same as {own}")
    keys["method"] = {**keys["method"], "enum": [*keys["method"]["enum"], *OWN_METHODS]}
    speculative["required"].remove("tokens")


def _alias(described: dict[str, Any], says: str) -> dict[str, Any]:
    taken = {key: value for key, value in described.items() if key not in {"default", "title"}}
    return {**taken, "description": says}
