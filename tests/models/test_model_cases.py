"""Public reports of wrong numbers about models, each with the figure that is right."""

import pytest

from sim.models import abstract_model, from_config, load_model, with_weight_dtype
from sim.models.memory import (
    active_parameters,
    index_bytes_per_token,
    kv_bytes_per_request,
    kv_bytes_per_token,
    layer_kv_bytes_per_token,
    parameters,
    stage_layers,
    state_bytes_per_request,
    weight_bytes,
)

GIB = 2**30
MIB = 2**20


def growing(name, tensor_parallel=1, kv_dtype="bf16"):
    return kv_bytes_per_token(load_model(name), tensor_parallel, kv_dtype, window=None)


def all_layers(name):
    return kv_bytes_per_token(load_model(name), 1, "bf16")


def request_gib(name, tokens, kv_dtype="bf16"):
    return kv_bytes_per_request(load_model(name), tokens, 1, kv_dtype) / GIB


def worst_stage(name, stages, tokens):
    spec = load_model(name)
    return max(
        kv_bytes_per_request(spec, tokens, 1, "bf16", layers=stage_layers(spec, stages, stage))
        for stage in range(stages)
    )


def heads_per_rank(kv_heads, ranks):
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 1,
        "intermediate_size": 64,
        "num_attention_heads": 32,
        "num_key_value_heads": kv_heads,
        "vocab_size": 64,
    }
    attention = from_config(config, "made up", "here").layers[0].attention
    return layer_kv_bytes_per_token(attention, ranks, 2) / (2 * 128 * 2)


def awq_parameters():
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    }
    return parameters(from_config(config, "awq", "here"))


def kv_of_requantised():
    """FP8 weights leave the KV cache in 16 bits."""
    return kv_bytes_per_token(with_weight_dtype(load_model("llama-3.1-8b"), "fp8"), 1, "auto")


CASES = [
    ("LMCache#688-qwen3-32b-head-dim", lambda: growing("qwen3-32b"), 262_144),
    ("LMCache#688-qwen3-4b-head-dim", lambda: growing("qwen3-4b"), 147_456),
    ("TensorRT-LLM#5912-qwen3-14b-had-no-bug", lambda: growing("qwen3-14b"), 163_840),
    ("Model-Optimizer#2482-gpt-oss-20b-all-layers", lambda: all_layers("gpt-oss-20b"), 49_152),
    ("Model-Optimizer#2482-mistral-small-24b", lambda: growing("mistral-small-24b"), 163_840),
    ("vllm-fit#2-llama-3.1-8b-gqa", lambda: growing("llama-3.1-8b"), 131_072),
    ("vllm#10517-3.81-gib-hold-1952-blocks", lambda: request_gib("llama-3.1-8b", 1952 * 16), 3.8125),
    ("LMCache#694-deepseek-v3-latent", lambda: growing("deepseek-v3"), 70_272),
    ("inference-sim#1527-glm-5.2-tp1", lambda: growing("glm-5.2", 1), 89_856),
    ("inference-sim#1527-glm-5.2-tp8", lambda: growing("glm-5.2", 8), 89_856),
    ("inference-sim#1712-glm-5.2-per-layer", lambda: growing("glm-5.2", 64) / 78, 1_152),
    ("shallowsim#4-deepseek-v3-tp8", lambda: growing("deepseek-v3", 8), 70_272),
    ("tenstorrent-vllm#50-qwen3-235b-tp4", lambda: growing("qwen3-235b-a22b", 4), 48_128),
    ("tenstorrent-vllm#50-qwen3-235b-tp8", lambda: growing("qwen3-235b-a22b", 8), 48_128),
    ("FastDeploy#3717-2-kv-heads-on-4", lambda: heads_per_rank(2, 4), 1),
    ("transformers#48307-8-kv-heads-on-32", lambda: heads_per_rank(8, 32), 1),
    ("vllm#32105-glm-4.7-whole", lambda: round(request_gib("glm-4.7", 202_752), 3), 71.156),
    ("vllm#32105-glm-4.7-pp8-worst", lambda: round(worst_stage("glm-4.7", 8, 202_752) / GIB, 3), 9.281),
    ("aiconfigurator#1537-gpt-oss-120b-fp8", lambda: round(request_gib("gpt-oss-120b", 65_936, "fp8"), 4), 1.1341),
    ("hf-mem#60-gpt-oss-120b-one-token", lambda: kv_bytes_per_request(load_model("gpt-oss-120b"), 1), 73_728),
    ("hf-mem#61-gpt-oss-120b-growth", lambda: growing("gpt-oss-120b"), 36_864),
    ("llmfit#951-qwen3.5-27b-block-of-64", lambda: 64 * growing("qwen3.5-27b") / MIB, 4.0),
    ("TensorRT-LLM#9072-qwen3-next", lambda: growing("qwen3-next-80b-a3b"), 24_576),
    ("inference-sim#1552-nemotron-3-nano", lambda: growing("nemotron-3-nano-30b-a3b"), 6_144),
    ("inference-sim#1558-nemotron-h-56b", lambda: growing("nemotron-h-56b"), 40_960),
    (
        "TensorRT-LLM#5371-mamba-state",
        lambda: state_bytes_per_request(load_model("nemotron-3-nano-30b-a3b")),
        23 * (36_864 + 1_048_576),
    ),
    ("llmfit#474-memory-is-all-experts", lambda: weight_bytes(load_model("qwen3-30b-a3b")), 2 * 30_532_122_624),
    ("llmfit#1045-packed-integers-are-not-parameters", awq_parameters, 8_030_261_248),
    ("hf-mem#60-gpt-oss-120b-bytes", lambda: weight_bytes(load_model("gpt-oss-120b")), 65_248_815_744),
    ("garagegeekblog-70b-nvfp4-gb", lambda: round(weight_bytes(abstract_model(70e9, "nvfp4")) / 1e9, 1), 39.4),
    ("garagegeekblog-70b-mxfp4-gb", lambda: round(weight_bytes(abstract_model(70e9, "mxfp4")) / 1e9, 1), 37.2),
    ("vllm#25350-fp8-kv", lambda: growing("llama-3.1-8b", kv_dtype="fp8"), 65_536),
    ("inference-sim#1646-kv-dtype-is-its-own", kv_of_requantised, 131_072),
    ("vidur-param-counter-llama-3-8b", lambda: parameters(load_model("llama-3-8b")), 8_030_261_248),
]


@pytest.mark.parametrize(("figure", "right"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_case(figure, right):
    assert figure() == right


def test_index_keys_are_apart_from_keys_and_values():
    """DeepSeek-V3.2's indexer: 128 FP8 numbers and a scale per layer, beside the 70,272 bytes of the latents."""
    assert index_bytes_per_token(load_model("deepseek-v3.2")) == 61 * (128 + 4)
    assert index_bytes_per_token(load_model("deepseek-v3")) == 0


def test_layers_that_share_an_indexer_cache_no_index_keys():
    """GLM-5.2 indexes in 21 of its 78 layers; GLM-5 in all."""
    assert index_bytes_per_token(load_model("glm-5.2")) == 21 * (128 + 4)
    assert index_bytes_per_token(load_model("glm-5")) == 78 * (128 + 4)


def test_index_keys_count_in_a_request():
    spec = load_model("glm-5")
    assert kv_bytes_per_request(spec, 1000) == 1000 * (89_856 + 78 * 132)


def test_active_parameters_never_stand_for_memory():
    spec = load_model("qwen3-30b-a3b")
    assert weight_bytes(spec) > 9 * 2 * active_parameters(spec)
