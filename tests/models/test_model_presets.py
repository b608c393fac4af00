"""Models by name, and what `sim models` tells of them."""

import json

import pytest

from sim.errors import UnsupportedModel
from sim.models import abstract_model, describe, is_preset, load_model, model_summary, preset_names
from sim.parallel import Parallelism

WANTED = """
llama-2-7b llama-2-13b llama-2-70b codellama-34b llama-3-8b llama-3-70b llama-3.1-8b llama-3.1-70b llama-3.1-405b
llama-3.2-1b llama-3.2-3b llama-3.3-70b llama-4-scout llama-4-maverick
mistral-7b mistral-nemo-12b mistral-small-24b mixtral-8x7b mixtral-8x22b
qwen2-7b qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b qwen2.5-7b qwen2.5-14b qwen2.5-32b qwen2.5-72b
qwen3-0.6b qwen3-4b qwen3-8b qwen3-14b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b qwen3-next-80b-a3b
qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b
deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-r1 kimi-k2 glm-4.5 glm-5 glm-5.2 minimax-m2.5
gpt-oss-20b gpt-oss-120b gemma-2-9b gemma-3-4b gemma-3-27b gemma-4-26b-a4b phi-3.5-mini phi-4 command-r
nemotron-h-56b nemotron-3-nano-30b-a3b
"""


GIB = 2**30


def test_presets_that_users_name():
    assert set(WANTED.split()) <= set(preset_names())
    assert preset_names() == sorted(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_says_where_it_is_from(name):
    spec = load_model(name)
    assert spec.name == name
    assert spec.source
    assert spec.max_positions
    assert json.loads(json.dumps(model_summary(spec)))["name"] == name


@pytest.mark.parametrize(
    "given", ["llama-3.1-8b", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "META-LLAMA/LLAMA-3.1-8B-INSTRUCT"]
)
def test_names_in_any_case_and_hub_ids(given):
    assert is_preset(given)
    assert load_model(given).name == "llama-3.1-8b"


def test_unknown_names_suggest_the_nearest():
    assert not is_preset("lama-3.1-8b")
    with pytest.raises(UnsupportedModel, match=r"lama-3\.1-8b") as caught:
        load_model("lama-3.1-8b")
    assert "llama-3.1-8b" in caught.value.cure


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\x00", "12"])
def test_files_that_are_no_config(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UnsupportedModel, match=r"config\.json"):
        load_model(str(path))


def test_files_too_large_to_be_a_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(" " * (8 * 2**20 + 1))
    with pytest.raises(UnsupportedModel, match="more than a config"):
        load_model(str(path))


def test_summary_has_what_the_command_promises():
    summary = describe("gpt-oss-120b", context_tokens=65_936, kv_dtype="fp8")
    assert summary["parameters"] == 116_829_156_672
    assert summary["weight_bytes"] == 65_248_815_744
    assert summary["kv"] == {
        "growing_bytes_per_token": 18_432,
        "windows": [{"window_tokens": 128, "bytes_per_token": 18_432}],
        "index_bytes_per_token": 0,
        "state_bytes_per_request": 0,
    }
    assert summary["per_gpu"]["kv_bytes_per_request"] / GIB == pytest.approx(1.1341, abs=5e-5)
    assert summary["weight_dtypes"] == {"attention": "bf16", "experts": "mxfp4"}


@pytest.mark.parametrize(("context", "expected"), [(1, 73_728), (127, 73_728), (128, 36_864), (None, 36_864)])
def test_one_more_token_adds_nothing_to_a_full_window(context, expected):
    assert describe("gpt-oss-120b", context_tokens=context)["per_gpu"]["kv_bytes_per_token"] == expected


def test_index_keys_are_told_apart_and_counted_in_requests():
    per_gpu = describe("glm-5", parallel=Parallelism(tensor=8), context_tokens=1000)["per_gpu"]
    assert (per_gpu["kv_bytes_per_token"], per_gpu["index_bytes_per_token"]) == (89_856, 78 * 132)
    assert per_gpu["kv_bytes_per_request"] == 1000 * (89_856 + 78 * 132)


def test_worst_stage_of_a_pipeline():
    per_gpu = describe("glm-4.7", parallel=Parallelism(pipeline=8), context_tokens=202_752)["per_gpu"]
    assert round(per_gpu["kv_bytes_per_request"] / GIB, 3) == 9.281
    assert per_gpu["kv_bytes_per_token"] == 12 * 4096


def test_worst_rank_of_a_tensor_parallel_group():
    per_gpu = describe("qwen3-235b-a22b", parallel=Parallelism(tensor=8))["per_gpu"]
    assert per_gpu["kv_bytes_per_token"] == 48_128


def test_a_context_is_the_longest_where_none_is_given():
    assert describe("llama-3.1-8b")["per_gpu"]["kv_bytes_per_request"] == 131_072 * 131_072


def test_weights_in_another_dtype():
    summary = describe("llama-3.1-8b", weight_dtype="fp8")
    linear = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert summary["weight_bytes"] == 16_060_522_496 - linear
    assert summary["kv"]["growing_bytes_per_token"] == 131_072


def test_parallelism_a_model_cannot_have():
    with pytest.raises(UnsupportedModel, match="tensor_parallel 5"):
        describe("llama-3.1-8b", parallel=Parallelism(tensor=5))
    with pytest.raises(UnsupportedModel, match="pipeline_parallel 40"):
        describe("llama-3.1-8b", parallel=Parallelism(pipeline=40))


def test_an_abstract_model_has_a_summary():
    summary = model_summary(abstract_model(8e9, "fp16"))
    assert (summary["parameters"], summary["weight_bytes"]) == (8_000_000_000, 16_000_000_000)
    assert summary["per_gpu"]["kv_bytes_per_request"] == 0
    assert summary["weight_dtypes"] == {"all": "fp16"}
