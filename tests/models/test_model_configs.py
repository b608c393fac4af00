"""Real config.json files: each loads, and means what its preset says."""

import json
from dataclasses import replace

import pytest

from sim.errors import UnsupportedModel
from sim.models import load_model
from sim.models.memory import kv_bytes_per_token, parameters, weight_bytes, windows
from sim.models.spec import Attention, LatentAttention, LinearAttention, MoeFfn

PRESET_OF = {
    "DeepSeek-R1": "deepseek-r1",
    "DeepSeek-V2-Lite": "deepseek-v2-lite",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-V3.2": "deepseek-v3.2",
    "GLM-5": "glm-5",
    "GLM-5.2": "glm-5.2",
    "Kimi-K2-Instruct": "kimi-k2",
    "Kimi-K2.5": "kimi-k2.5",
    "Llama-2-7b-hf": "llama-2-7b",
    "Llama-2-13b-hf": "llama-2-13b",
    "Llama-2-70b-hf": "llama-2-70b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "nvidia-Llama-3.1-70B-Instruct-FP8": "llama-3.3-70b",
    "Llama-3.1-405B": "llama-3.1-405b",
    "Llama-4-Maverick-17B-128E-Instruct": "llama-4-maverick",
    "Llama-4-Scout-17B-16E-Instruct": "llama-4-scout",
    "MiMo-V2-Flash": "mimo-v2-flash",
    "MiniMax-M2.5": "minimax-m2.5",
    "Mistral-7B-Instruct-v0.3": "mistral-7b",
    "Mistral-Nemo-Instruct-2407": "mistral-nemo-12b",
    "Mixtral-8x22B-v0.1": "mixtral-8x22b",
    "Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3-nano-30b-a3b",
    "Nemotron-H-56B-Base-8K": "nemotron-h-56b",
    "Phi-3.5-mini-instruct.abridged": "phi-3.5-mini",
    "Qwen2.5-72B": "qwen2.5-72b",
    "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b-fp8",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-8B": "qwen3-8b",
    "Qwen3-Next-80B-A3B-Thinking": "qwen3-next-80b-a3b",
    "Qwen3.5-27B": "qwen3.5-27b",
    "Qwen3.5-35B-A3B": "qwen3.5-35b-a3b",
    "Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "gemma-2-9b.printed": "gemma-2-9b",
    "gemma-3-4b-it.printed": "gemma-3-4b",
    "gemma-4-26B-A4B": "gemma-4-26b-a4b",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b": "gpt-oss-20b",
    "phi-4": "phi-4",
}
ALONE = {
    "GLM-4.7-FP8": 352_796_486_560,
    "Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
    "command-r-v01.transformers-defaults": 34_980_831_232,
    "nvidia-Gemma-4-31B-IT-NVFP4": 30_697_345_340,
}
NO_CONFIG = "nvidia-DeepSeek-V3.1-NVFP4.hf_quant_config"


@pytest.fixture(scope="module")
def folder(shared):
    path = shared / "data" / "hf_configs"
    if not path.is_dir():
        pytest.skip("no config files here")
    return path


def test_every_file_is_accounted_for(folder):
    assert {path.stem for path in folder.glob("*.json")} == {*PRESET_OF, *ALONE, NO_CONFIG}


@pytest.mark.parametrize(("file", "preset"), PRESET_OF.items())
def test_preset_is_the_published_config(folder, file, preset):
    """Layer for layer and dtype for dtype; only what a model is called and told of may differ."""
    read = load_model(f"{file}.json", folder)
    shipped = load_model(preset)
    anonymous = {"name": "", "source": "", "notes": (), "architecture": ""}
    assert replace(read, **anonymous) == replace(shipped, **anonymous)


@pytest.mark.parametrize(("file", "count"), ALONE.items())
def test_files_without_a_preset(folder, file, count):
    assert parameters(load_model(f"{file}.json", folder)) == count


def test_maxtext_file_has_the_shape_of_gemma_3_27b(folder):
    text = (folder / "gemma-3-27b.maxtext.yml").read_text()
    spec = load_model("gemma-3-27b")
    attention = spec.layers[0].attention
    stated = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and not line.startswith("#"))
    assert int(stated["base_num_decoder_layers"]) == len(spec.layers)
    assert int(stated["base_emb_dim"]) == spec.hidden
    assert int(stated["base_mlp_dim"]) == spec.layers[0].ffn.intermediate
    heads = (int(stated["base_num_query_heads"]), int(stated["base_num_kv_heads"]), int(stated["head_dim"]))
    assert heads == (attention.query_heads, attention.kv_heads, attention.head_dim)
    assert int(stated["sliding_window_size"]) == attention.window_tokens


def test_a_quantisation_file_alone_is_no_model(folder):
    with pytest.raises(UnsupportedModel, match="model_type"):
        load_model(f"{NO_CONFIG}.json", folder)


def test_quantisation_file_beside_the_config_counts(folder, tmp_path):
    """DeepSeek-V3.1-NVFP4 keeps q and kv projections in 16 bits and stores the output projection in NVFP4."""
    config = json.loads((folder / "DeepSeek-V3.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "hf_quant_config.json").write_text((folder / f"{NO_CONFIG}.json").read_text())
    spec = load_model(str(tmp_path))
    weights = spec.weights
    assert (weights.attention, weights.attention_out) == ("bf16", "nvfp4")
    assert (weights.experts, weights.shared_experts, weights.dense_ffn) == ("nvfp4", "nvfp4", "nvfp4")
    assert (weights.lm_head, weights.router, spec.kv_dtype) == ("bf16", "bf16", "fp8")
    assert kv_bytes_per_token(spec, 1, "auto") == 70_272 // 2


def test_nvfp4_gemma_keeps_attention_in_16_bits(folder):
    spec = load_model("nvidia-Gemma-4-31B-IT-NVFP4.json", folder)
    assert (spec.weights.attention, spec.weights.dense_ffn, spec.kv_dtype) == ("bf16", "nvfp4", "fp8")
    assert all(layer.weights is None for layer in spec.layers)


def test_kimi_k2_5_is_the_published_size(folder):
    """595 GB on the hub: int4 experts in symmetric groups of 32, everything else in 16 bits."""
    spec = load_model("Kimi-K2.5.json", folder)
    assert (spec.weights.experts, spec.weights.attention, spec.weights.shared_experts) == ("int4", "bf16", "bf16")
    assert weight_bytes(spec) / 1e9 == pytest.approx(594.2, abs=0.1)


def test_super_49b_has_layers_without_attention(folder):
    spec = load_model("Llama-3_3-Nemotron-Super-49B-v1.json", folder)
    assert sum(layer.attention is None for layer in spec.layers) == 31
    assert kv_bytes_per_token(spec, 1, "bf16") == 49 * 2 * 8 * 128 * 2
    assert len({layer.ffn.intermediate for layer in spec.layers}) > 1


def test_config_json_is_named_after_its_folder(folder, tmp_path):
    model = tmp_path / "my-model"
    model.mkdir()
    (model / "config.json").write_text((folder / "Llama-3.1-8B.json").read_text())
    for given in (str(model), str(model / "config.json")):
        assert load_model(given).name == "my-model"
    assert load_model("my-model", tmp_path).source.endswith("config.json")


def test_llama_4_routes_every_layer_or_every_other(folder):
    scout = load_model("Llama-4-Scout-17B-16E-Instruct.json", folder)
    maverick = load_model("Llama-4-Maverick-17B-128E-Instruct.json", folder)
    assert [isinstance(layer.ffn, MoeFfn) for layer in scout.layers] == [True] * 48
    assert [isinstance(layer.ffn, MoeFfn) for layer in maverick.layers] == [False, True] * 24
    assert maverick.layers[0].ffn.intermediate == 16384
    assert windows(scout) == (8192,)


def test_mla_ignores_num_key_value_heads(folder):
    attention = load_model("DeepSeek-V3.json", folder).layers[0].attention
    assert isinstance(attention, LatentAttention)
    assert (attention.kv_lora_rank, attention.rope_head_dim) == (512, 64)


def test_gemma_4_has_two_kinds_of_heads(folder):
    spec = load_model("gemma-4-26B-A4B.json", folder)
    kinds = {(a.kv_heads, a.head_dim, a.window_tokens) for a in (layer.attention for layer in spec.layers)}
    assert kinds == {(8, 256, 1024), (2, 512, None)}


def test_hybrids_mix_attention_and_fixed_states(folder):
    spec = load_model("Qwen3.5-27B.json", folder)
    kinds = [type(layer.attention) for layer in spec.layers]
    assert kinds == [LinearAttention, LinearAttention, LinearAttention, Attention] * 16
    nano = load_model("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json", folder)
    assert sum(isinstance(layer.ffn, MoeFfn) for layer in nano.layers) == 23
    assert any("FP32" in note for note in nano.notes)


def test_what_is_left_out_is_said(folder):
    assert any("vision" in note for note in load_model("gemma-3-4b-it.printed.json", folder).notes)
    assert any("multi-token" in note for note in load_model("DeepSeek-V3.json", folder).notes)
    assert not load_model("Kimi-K2-Instruct.json", folder).notes
