"""Fields as configs spell them, and what is missing or wrong: an error that names it and the cure, never a guess."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import UnsupportedModel
from sim.models import from_config, load_model, preset_names, presets
from sim.models.memory import kv_bytes_per_token, parameters, windows
from sim.models.spec import DenseFfn, MoeFfn

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
MOE = {**LLAMA, "model_type": "qwen3_moe", "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2} | {
    "moe_intermediate_size": 64
}


def read(config, **changes):
    changed = {**config, **changes}
    return from_config({key: value for key, value in changed.items() if value is not ...}, "made-up", "here")


def routed(spec):
    return [isinstance(layer.ffn, MoeFfn) for layer in spec.layers]


def layer_windows(spec):
    return [layer.attention.window_tokens for layer in spec.layers]


REQUIRED = ["hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "vocab_size"]


@pytest.mark.parametrize("field", REQUIRED)
def test_missing_field_is_named(field):
    with pytest.raises(UnsupportedModel, match=field) as caught:
        read(LLAMA, **{field: ...})
    assert "made-up" in caught.value.problem
    assert "config.json" in caught.value.cure


@pytest.mark.parametrize("value", [0, -4, 2.5, "32", True, 10**16])
def test_a_count_must_be_a_count(value):
    with pytest.raises(UnsupportedModel, match="num_hidden_layers is"):
        read(LLAMA, num_hidden_layers=value)


@pytest.mark.parametrize(
    ("model_type", "field"),
    [
        ("mistral", "num_key_value_heads"),
        ("qwen3", "head_dim"),
        ("gemma2", "head_dim"),
        ("gpt_oss", "head_dim"),
        ("gemma2", "sliding_window"),
        ("gpt_oss", "num_local_experts"),
        ("mixtral", "num_experts_per_tok"),
        ("qwen3_moe", "moe_intermediate_size"),
        ("deepseek_v3", "kv_lora_rank"),
        ("deepseek_v3", "v_head_dim"),
        ("qwen3_next", "linear_num_key_heads"),
        ("llama4", "attention_chunk_size"),
        ("gemma4", "global_head_dim"),
        ("mimo_v2_flash", "swa_head_dim"),
        ("nemotron_h", "hybrid_override_pattern"),
        ("nemotron-nas", "block_configs"),
    ],
)
def test_what_an_architecture_needs_is_never_guessed(model_type, field):
    whole = {
        **MOE,
        "sliding_window": 128,
        "num_local_experts": 8,
        "kv_lora_rank": 64,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "linear_num_key_heads": 4,
        "attention_chunk_size": 1024,
        "global_head_dim": 64,
        "swa_head_dim": 32,
        "swa_v_head_dim": 32,
        "swa_num_attention_heads": 8,
        "swa_num_key_value_heads": 4,
        "num_experts": 8,
    }
    if field == "num_local_experts":
        whole["num_experts"] = ...
    with pytest.raises(UnsupportedModel, match=field):
        read(whole, model_type=model_type, **{field: ...})


def test_unknown_architecture_names_those_that_are_known():
    with pytest.raises(UnsupportedModel, match="mamba3") as caught:
        read(LLAMA, model_type="mamba3")
    assert "llama" in caught.value.cure
    assert "abstract" in caught.value.cure


def test_no_model_type_at_all():
    with pytest.raises(UnsupportedModel, match="missing"):
        read(LLAMA, model_type=...)


def test_head_dim_is_explicit_or_derived():
    assert read(LLAMA).layers[0].attention.head_dim == 32
    assert read(LLAMA, head_dim=128).layers[0].attention.head_dim == 128


def test_head_dim_that_does_not_divide_is_asked_for():
    with pytest.raises(UnsupportedModel, match="not a multiple of 7 heads"):
        read(LLAMA, num_attention_heads=7, num_key_value_heads=7)


def test_kv_heads_default_to_query_heads_only_where_that_is_the_rule():
    assert read(LLAMA, num_key_value_heads=...).layers[0].attention.kv_heads == 8


def test_kv_heads_must_divide_query_heads():
    with pytest.raises(UnsupportedModel, match="divisor of the 8"):
        read(LLAMA, num_key_value_heads=3)


def test_tied_tables_count_once():
    untied, tied = read(LLAMA), read(LLAMA, tie_word_embeddings=True)
    assert parameters(untied) - parameters(tied) == 1000 * 256


def test_tied_by_the_architectures_default():
    assert load_model("gemma-2-9b").tied_embeddings
    assert not read(LLAMA).tied_embeddings


@pytest.mark.parametrize("dtype", ["bfloat16", "torch.bfloat16"])
def test_dtypes_as_configs_write_them(dtype):
    assert read(LLAMA, torch_dtype=dtype).activation_dtype == "bf16"
    assert read(LLAMA, torch_dtype=..., dtype="float16").activation_dtype == "fp16"


def test_unknown_dtype():
    with pytest.raises(UnsupportedModel, match="float8"):
        read(LLAMA, torch_dtype="float8")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 1024}, [1024] * 4),
        ({"model_type": "mistral", "sliding_window": None}, [None] * 4),
        ({"model_type": "mistral", "sliding_window": 4096}, [None] * 4),
        ({"model_type": "mistral", "sliding_window": 8192}, [None] * 4),
        ({"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": False}, [None] * 4),
        ({"model_type": "qwen2", "sliding_window": 1024}, [None] * 4),
        (
            {"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": True, "max_window_layers": 2},
            [None, None, 1024, 1024],
        ),
        ({"model_type": "gemma2", "head_dim": 32, "sliding_window": 512}, [512, None, 512, None]),
        (
            {"model_type": "gemma3_text", "head_dim": 32, "sliding_window": 512, "sliding_window_pattern": 3},
            [512, 512, None, 512],
        ),
        (
            {
                "sliding_window": 512,
                "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
            },
            [None, 512, None, None],
        ),
    ],
)
def test_windows_as_configs_spell_them(changes, expected):
    assert layer_windows(read(LLAMA, **changes)) == expected


def test_layer_kinds_an_architecture_has_not():
    with pytest.raises(UnsupportedModel, match="linear_attention"):
        read(LLAMA, sliding_window=512, layer_types=["linear_attention"] * 4)


def test_a_list_per_layer_must_reach_the_last():
    with pytest.raises(UnsupportedModel, match="list of 4 entries"):
        read(LLAMA, sliding_window=512, layer_types=["full_attention"] * 3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [True] * 4),
        ({"decoder_sparse_step": 2}, [False, True, False, True]),
        ({"mlp_only_layers": [0, 3]}, [False, True, True, False]),
        ({"first_k_dense_replace": 1}, [False, True, True, True]),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, [False, False, True, False]),
        ({"moe_layer_freq": [0, 1, 1, 0]}, [False, True, True, False]),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}, [False, True, True, True]),
    ],
)
def test_which_layers_route(changes, expected):
    assert routed(read(MOE, **changes)) == expected


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_expert_counts_by_any_name(name):
    assert read(MOE, **{"num_experts": ..., name: 8}).layers[0].ffn.experts == 8


@pytest.mark.parametrize("name", ["num_experts_per_tok", "experts_per_token", "top_k_experts"])
def test_experts_per_token_by_any_name(name):
    assert read(MOE, **{"num_experts_per_tok": ..., name: 3}).layers[0].ffn.experts_per_token == 3


def test_more_experts_per_token_than_experts():
    with pytest.raises(UnsupportedModel, match="at most the 8 experts"):
        read(MOE, num_experts_per_tok=9)


def test_expert_width_is_intermediate_size_where_the_architecture_says_so():
    spec = read(LLAMA, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
    assert spec.layers[0].ffn.expert_intermediate == 512


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"n_shared_experts": 2}, 128), ({"shared_expert_intermediate_size": 96}, 96), ({"n_shared_experts": None}, 0)],
)
def test_shared_experts(changes, expected):
    assert read(MOE, **changes).layers[0].ffn.shared_intermediate == expected


@pytest.mark.parametrize("wrapper", ["text_config", "llm_config", "language_config"])
def test_multimodal_wrappers(wrapper):
    inner = {**LLAMA, "torch_dtype": ...}
    config = {
        "model_type": "wrapper",
        "torch_dtype": "float16",
        wrapper: {key: value for key, value in inner.items() if value is not ...},
    }
    spec = from_config(config, "wrapped", "here")
    assert parameters(spec) == parameters(read(LLAMA))
    assert spec.activation_dtype == "fp16"
    assert any("towers" in note for note in spec.notes)


def test_defaults_an_architecture_relies_on_are_taken_and_said():
    """google/gemma-3-4b-it's own config leaves its heads and vocabulary to the architecture's defaults."""
    inner = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    config = {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {**inner, "sliding_window": 1024}}
    spec = from_config(config, "gemma-3-4b-it", "here")
    assert parameters(spec) == parameters(load_model("gemma-3-4b"))
    assert any("num_attention_heads" in note for note in spec.notes)


def test_a_pattern_of_mixers_must_spell_every_layer():
    with pytest.raises(UnsupportedModel, match="4 letters"):
        read(LLAMA, model_type="nemotron_h", hybrid_override_pattern="M*-")
    with pytest.raises(UnsupportedModel, match="4 letters"):
        read(LLAMA, model_type="nemotron_h", hybrid_override_pattern="MXM*")


def test_index_layers_from_a_step_and_an_offset():
    """GLM-5.2's list of indexers follows from its frequency of 4 and offset of 3."""
    spec = load_model("glm-5.2")
    own = [index for index, layer in enumerate(spec.layers) if layer.attention.index_heads]
    assert own == [0, 1, 2, *range(6, 78, 4)]
    assert all(layer.attention.index_topk_tokens == 2048 for layer in spec.layers)


def test_blocks_that_are_not_built_are_refused():
    block = {"attention": {"n_heads_in_group": 2, "replace_with_linear": True}, "ffn": {"ffn_mult": 2.0}}
    with pytest.raises(UnsupportedModel, match="replace_with_linear"):
        read(LLAMA, model_type="nemotron-nas", block_configs=[block] * 4)
    with pytest.raises(UnsupportedModel, match="n_heads_in_group"):
        read(LLAMA, model_type="nemotron-nas", block_configs=[{"attention": {}, "ffn": {}}] * 4)


@pytest.mark.parametrize("field", ["hidden_size_per_layer_input", "num_kv_shared_layers"])
def test_gemma_4_with_more_than_is_built_is_refused(field):
    with pytest.raises(UnsupportedModel, match=field):
        read(LLAMA, model_type="gemma4_text", **{field: 8})


def test_dense_and_biased_parts_are_counted():
    plain, biased = read(LLAMA), read(LLAMA, attention_bias=True, mlp_bias=True)
    per_layer = (256 + 128 + 128) + 256 + (512 + 512 + 256)
    assert parameters(biased) - parameters(plain) == 4 * per_layer
    assert isinstance(plain.layers[0].ffn, DenseFfn)


def test_parameters_of_a_small_llama_by_hand():
    attention = 256 * (256 + 128 + 128) + 256 * 256
    layer = attention + 3 * 256 * 512 + 2 * 256
    assert parameters(read(LLAMA)) == 4 * layer + 2 * 1000 * 256 + 256


def test_a_window_does_not_shrink_what_it_caches_per_token():
    spec = read(LLAMA, model_type="mistral", sliding_window=1024)
    assert windows(spec) == (1024,)
    assert kv_bytes_per_token(spec, 1, "auto", window=1024) == kv_bytes_per_token(read(LLAMA), 1, "auto", window=None)


def test_command_r_plus_normalises_each_head():
    """Its weights are one vector per head; Command R has none."""
    without, normed = (read(LLAMA, model_type="cohere", use_qk_norm=asked) for asked in (False, True))
    assert parameters(normed) - parameters(without) == 4 * (8 + 4) * 32


def test_cohere_2_sees_all_in_every_fourth_layer():
    spec = read(LLAMA, model_type="cohere2", sliding_window=512)
    assert layer_windows(spec) == [512, 512, 512, None]
    assert spec.tied_embeddings


def test_a_tower_beside_flat_fields_is_said():
    """Qwen2-VL keeps the language model's fields at the top, beside the vision tower's."""
    spec = read(LLAMA, model_type="qwen2_vl", vision_config={"depth": 32})
    assert any("vision" in note for note in spec.notes)
    assert any("vision" in note for note in load_model("gemma-3-4b").notes)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 300),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.lists(st.one_of(st.integers(-1, 9), st.text(max_size=2), st.none()), max_size=130),
    st.lists(st.lists(st.integers(), max_size=1), min_size=130, max_size=130),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
ANYWHERE = ["layer_types", "quantization_config", "mlp_only_layers", "mlp_layer_types", "torch_dtype", "text_config"]


def parameters_or_cure(config):
    try:
        return parameters(from_config(config, "made-up", "here"))
    except UnsupportedModel as error:
        return error.cure


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(preset_names()), st.data(), JUNK)
def test_whatever_a_config_holds_it_is_read_or_refused(name, data, junk):
    """No traceback: a model with parameters, or an UnsupportedModel with a cure."""
    config = presets.config_of(name)
    field = data.draw(st.sampled_from([*config, *ANYWHERE]))
    assert parameters_or_cure({**config, field: junk})
