"""What quantisation configs say of dtypes, scales and modules that stay in 16 bits."""

import pytest

from sim.errors import UnsupportedModel
from sim.models import abstract_model, from_config, load_model, with_weight_dtype
from sim.models.dtypes import bytes_per_element, stored_bytes
from sim.models.memory import kv_dtype_bytes, parameters, weight_bytes, weight_bytes_per_gpu
from sim.parallel import Parallelism

BASE = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 512}
LINEAR = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}
ATTENTION = 4 * 1024 * 1024
DENSE = 3 * 1024 * 2048


def read(model_type="llama", quantization=None, **more):
    config = {**BASE, **more, "model_type": model_type, "quantization_config": quantization}
    return from_config(config, "made-up", "here")


def compressed(kind, bits, **more):
    weights = {"type": kind, "num_bits": bits, "symmetric": True, **more}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


@pytest.mark.parametrize(
    ("quantization", "dtype", "block", "zero_points"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 128, False),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", None, False),
        ({"quant_method": "fbgemm_fp8"}, "fp8", None, False),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4", 64, True),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "int4", 128, True),
        ({"quant_method": "awq", "bits": 4}, "int4", 128, True),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", None, True),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", None, False),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", None, False),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", None, False),
        ({"quant_algo": "NVFP4"}, "nvfp4", None, False),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8", 128, False),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}, "int4", 128, False),
        (compressed("float", 8), "fp8", None, False),
        (compressed("float", 8, block_structure=[128, 128]), "fp8", 128, False),
        (compressed("float", 4, group_size=16), "nvfp4", None, False),
        (compressed("float", 4, group_size=32), "mxfp4", None, False),
        (compressed("int", 4, group_size=32), "int4", 32, False),
        (compressed("int", 4, group_size=128, symmetric=False), "int4", 128, True),
        (compressed("int", 8), "int8", None, False),
    ],
)
def test_formats(quantization, dtype, block, zero_points):
    weights = read(quantization=quantization).weights
    assert (weights.attention, weights.dense_ffn, weights.attention_out) == (dtype, dtype, None)
    assert (weights.scale_block, weights.zero_points) == (block, zero_points)
    assert (weights.embedding, weights.lm_head, weights.norms, weights.router) == ("bf16",) * 4


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "awq", "bits": 3},
        {"quant_method": "modelopt", "quant_algo": "MXFP8"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"bits": 4},
        {"quant_method": "compressed-tensors", "config_groups": ["x"]},
        {"quant_method": "fp8", "ignore": 5},
        "fp8",
        compressed("float", 6),
    ],
)
def test_unknown_formats_are_refused_with_a_cure(quantization):
    with pytest.raises(UnsupportedModel, match="quantization_config") as caught:
        read(quantization=quantization)
    assert caught.value.cure


def test_an_expression_that_cannot_be_read():
    with pytest.raises(UnsupportedModel, match="expression"):
        read(quantization={"quant_method": "fp8", "ignored_layers": ["re:(unclosed"]})


@pytest.mark.parametrize(
    ("patterns", "attention", "dense"),
    [
        (["model.layers.*.self_attn"], "bf16", "fp8"),
        (["re:.*self_attn.*"], "bf16", "fp8"),
        (["self_attn"], "bf16", "fp8"),
        (["*mlp*"], "fp8", "bf16"),
        (["re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], "fp8", "bf16"),
        (["gate", "lm_head"], "fp8", "fp8"),
        ([f"model.layers.{index}.mlp" for index in range(12)], "fp8", "bf16"),
        ([f"model.layers.{index}.input_layernorm" for index in range(12)], "fp8", "fp8"),
        (["model.layers.12*", "model.vision_tower*"], "fp8", "fp8"),
    ],
)
@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignore", "exclude_modules"])
def test_modules_that_stay_in_16_bits(key, patterns, attention, dense):
    spec = read(quantization={"quant_method": "fp8", key: patterns})
    assert (spec.weights.attention, spec.weights.dense_ffn) == (attention, dense)
    assert all(layer.weights is None for layer in spec.layers)


def test_first_and_last_layers_in_16_bits():
    """Layers that depart from the rest carry their own format, and their bytes."""
    kept = ["model.layers.0", "model.layers.11"]
    spec = read(quantization={"quant_method": "fp8", "modules_to_not_convert": kept})
    assert [layer.weights is not None for layer in spec.layers] == [True, *[False] * 10, True]
    assert spec.layers[0].weights.attention == "bf16"
    all_fp8 = read(quantization={"quant_method": "fp8"})
    assert weight_bytes(spec) - weight_bytes(all_fp8) == 2 * (ATTENTION + DENSE)


def test_output_projections_alone_quantised():
    kept = ["re:.*q_proj", "re:.*k_proj", "re:.*v_proj"]
    spec = read(quantization={"quant_method": "fp8", "ignore": kept})
    assert (spec.weights.attention, spec.weights.attention_out) == ("bf16", "fp8")
    all_fp8 = read(quantization={"quant_method": "fp8"})
    assert weight_bytes(spec) - weight_bytes(all_fp8) == 12 * 3 * 1024 * 1024


def test_linear_attention_kept_while_full_attention_is_quantised():
    quantization = {"quant_method": "fp8", "modules_to_not_convert": ["re:.*linear_attn.*"]}
    spec = read("qwen3_5", quantization, **LINEAR)
    own = [layer.weights.attention if layer.weights else spec.weights.attention for layer in spec.layers]
    assert own == ["bf16", "bf16", "bf16", "fp8"] * 3


def test_experts_quantised_alone():
    spec = read("qwen3_moe", {"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn"]}, **EXPERTS)
    assert (spec.weights.experts, spec.weights.attention) == ("mxfp4", "bf16")


def test_groups_with_targets_by_name():
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"type": "float", "num_bits": 8}},
            "group_1": {"targets": ["Linear"], "weights": {"type": "float", "num_bits": 4, "group_size": 16}},
        },
    }
    weights = read(quantization=quantization).weights
    assert (weights.attention, weights.dense_ffn) == ("fp8", "nvfp4")


def test_mixed_precision_by_module():
    layers = {f"model.layers.{index}.mlp.gate_proj": {"quant_algo": "NVFP4"} for index in range(12)}
    layers |= {f"model.layers.{index}.self_attn.o_proj": {"quant_algo": "FP8"} for index in range(12)}
    quantization = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    weights = read(quantization=quantization).weights
    assert (weights.dense_ffn, weights.attention, weights.attention_out) == ("nvfp4", "bf16", "fp8")


def test_gptq_rules_that_skip_modules():
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}}
    weights = read(quantization=quantization).weights
    assert (weights.attention, weights.dense_ffn) == ("bf16", "int4")


def test_a_head_that_is_quantised():
    assert read(quantization={"quant_method": "gptq", "bits": 4, "lm_head": True}).weights.lm_head == "int4"


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 1.0),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, 2.0),
        ({"quant_method": "fp8"}, 2.0),
        (compressed("float", 8) | {"kv_cache_scheme": {"type": "float", "num_bits": 8}}, 1.0),
        (compressed("float", 8) | {"kv_cache_scheme": None}, 2.0),
        (None, 2.0),
    ],
)
def test_kv_cache_dtype_of_the_checkpoint(quantization, expected):
    """``auto`` is the checkpoint's KV dtype where it has scales for one, else the activation's; a named one rules."""
    spec = read(quantization=quantization)
    assert kv_dtype_bytes("auto", spec) == expected
    assert kv_dtype_bytes("bf16", spec) == 2.0
    assert kv_dtype_bytes("fp8", spec) == 1.0


@pytest.mark.parametrize(
    ("dtype", "block", "bits"),
    [
        ("fp32", None, 32),
        ("bf16", None, 16),
        ("fp8", None, 8),
        ("fp8", 128, 8 + 32 / 128**2),
        ("int8", None, 8),
        ("int4", None, 4),
        ("int4", 128, 4.125),
        ("int4", 32, 4.5),
        ("mxfp4", None, 4.25),
        ("nvfp4", None, 4.5),
    ],
)
def test_stored_bits_with_scales(dtype, block, bits):
    assert stored_bytes(8_000_000, dtype, block) == bits * 1_000_000


def test_zero_points_cost_four_bits_per_group():
    assert stored_bytes(8_000_000, "int4", 128, zero_points=True) == (4 + 20 / 128) * 1_000_000


def test_numbers_alone():
    assert [bytes_per_element(dtype) for dtype in ("fp32", "bf16", "fp8", "int4")] == [4, 2, 1, 0.5]


def test_requantising_keeps_router_tables_and_norms_in_16_bits():
    spec = load_model("qwen3-30b-a3b")
    quantised = with_weight_dtype(spec, "fp8")
    experts = 48 * 128 * 3 * 2048 * 768
    attention = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128)
    assert weight_bytes(spec) - weight_bytes(quantised) == experts + attention
    assert parameters(quantised) == parameters(spec)


def test_requantising_a_mixed_checkpoint_makes_it_uniform():
    spec = read(quantization={"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0"]})
    back = with_weight_dtype(spec, "bf16")
    assert all(layer.weights is None for layer in back.layers)
    assert weight_bytes(back) == 2 * parameters(back)


def test_requantising_to_fp16_changes_what_the_model_computes_in():
    assert with_weight_dtype(load_model("llama-3.1-8b"), "fp16").activation_dtype == "fp16"
    assert with_weight_dtype(load_model("llama-3.1-8b"), "int4").activation_dtype == "bf16"


def test_unknown_weight_dtype():
    with pytest.raises(UnsupportedModel, match="fp3") as caught:
        with_weight_dtype(load_model("llama-3.1-8b"), "fp3")
    assert "nvfp4" in caught.value.cure


@pytest.mark.parametrize(
    ("dtype", "gb"), [("fp32", 32.0), ("fp16", 16.0), ("fp8", 8.0), ("int8", 8.0), ("int4", 4.0), ("nvfp4", 4.5)]
)
def test_abstract_models_are_their_weights(dtype, gb):
    spec = abstract_model(8e9, dtype)
    assert weight_bytes(spec) == gb * 1e9
    assert weight_bytes_per_gpu(spec, Parallelism(tensor=4)) == gb * 1e9 / 4
    assert parameters(spec) == 8_000_000_000


@pytest.mark.parametrize(("count", "dtype"), [(8e9, "fp5"), (0, "fp16"), (-8e9, "fp16"), (1e30, "fp16")])
def test_abstract_models_that_cannot_be(count, dtype):
    with pytest.raises(UnsupportedModel, match="cannot be"):
        abstract_model(count, dtype)


def test_int4_by_flag_counts_scales_in_groups_of_128():
    spec = load_model("llama-3.1-8b")
    linear = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert weight_bytes(with_weight_dtype(spec, "int4")) == weight_bytes(spec) - 2 * linear + linear * 4.125 / 8


def test_kv_dtypes_no_cache_is_kept_in():
    with pytest.raises(UnsupportedModel, match="kv_dtype int3") as caught:
        kv_dtype_bytes("int3", load_model("llama-3.1-8b"))
    assert "fp8" in caught.value.cure
