"""Known models, digit by digit: parameters, active parameters, KV bytes, windows, weights."""

import pytest

from sim.models import load_model
from sim.models.memory import (
    active_parameters,
    kv_bytes_per_request,
    kv_bytes_per_token,
    parameters,
    state_bytes_per_request,
    weight_bytes,
    windows,
)

PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "codellama-34b": 33_743_970_304,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_248_023_552,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v3": 671_026_419_200,
    "deepseek-r1": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-4b": 3_880_263_168,
    "phi-4": 14_659_507_200,
    "phi-3.5-mini": 3_821_079_552,
    "command-r": 34_980_831_232,
}
BILLIONS = {
    "kimi-k2": 1026.4,
    "kimi-k2.5": 1026.4,
    "deepseek-v2-lite": 15.71,
    "deepseek-v3.2": 671.0,
    "glm-5": 743.2,
    "glm-5.2": 743.2,
    "glm-4.5": 352.8,
    "glm-4.7": 352.8,
    "minimax-m2.5": 228.7,
    "qwen3-next-80b-a3b": 79.7,
    "qwen3.5-27b": 26.9,
    "qwen3.5-35b-a3b": 34.7,
    "qwen3.5-397b-a17b": 396.3,
    "llama-4-scout": 107.8,
    "llama-4-maverick": 400.7,
    "gemma-3-27b": 27.0,
    "gemma-4-26b-a4b": 25.2,
    "nemotron-h-56b": 56.3,
    "nemotron-3-nano-30b-a3b": 31.6,
    "mimo-v2-flash": 308.8,
}
ACTIVE_BILLIONS = {
    "mixtral-8x22b": 39.15,
    "qwen3-30b-a3b": 3.35,
    "qwen3-235b-a22b": 22.19,
    "deepseek-v3": 37.55,
    "kimi-k2": 32.9,
    "deepseek-v2-lite": 2.66,
    "glm-5": 41.1,
    "gpt-oss-20b": 4.19,
    "gpt-oss-120b": 5.71,
    "glm-4.5": 33.6,
    "minimax-m2.5": 11.0,
    "llama-4-scout": 17.2,
    "llama-4-maverick": 17.2,
}
GROWING = {
    "llama-2-7b": 524_288,
    "llama-2-13b": 819_200,
    "llama-2-70b": 327_680,
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "mistral-7b": 131_072,
    "mistral-nemo-12b": 163_840,
    "mixtral-8x7b": 131_072,
    "mixtral-8x22b": 229_376,
    "qwen2.5-7b": 57_344,
    "qwen2.5-72b": 327_680,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "qwen3-next-80b-a3b": 24_576,
    "qwen3.5-27b": 65_536,
    "qwen3.5-35b-a3b": 20_480,
    "qwen3.5-397b-a17b": 30_720,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
    "deepseek-v3.2": 70_272,
    "kimi-k2": 70_272,
    "deepseek-v2-lite": 31_104,
    "glm-5": 89_856,
    "glm-5.2": 89_856,
    "gpt-oss-20b": 24_576,
    "gpt-oss-120b": 36_864,
    "gemma-2-9b": 172_032,
    "gemma-3-4b": 20_480,
    "gemma-3-27b": 81_920,
    "glm-4.5": 376_832,
    "glm-4.7": 376_832,
    "minimax-m2.5": 253_952,
    "phi-4": 204_800,
    "phi-3.5-mini": 393_216,
    "command-r": 1_310_720,
    "nemotron-3-nano-30b-a3b": 6_144,
    "nemotron-h-56b": 40_960,
    "llama-4-scout": 12 * 2 * 8 * 128 * 2,
    "mimo-v2-flash": 9 * 4 * (192 + 128) * 2,
    "gemma-4-26b-a4b": 5 * 2 * 2 * 512 * 2,
}
WINDOWED = {
    "gpt-oss-20b": (128, 24_576),
    "gpt-oss-120b": (128, 36_864),
    "gemma-2-9b": (4096, 172_032),
    "gemma-3-4b": (1024, 118_784),
    "gemma-3-27b": (1024, 425_984),
    "mistral-7b-v0.1": (4096, 131_072),
    "llama-4-scout": (8192, 36 * 2 * 8 * 128 * 2),
    "mimo-v2-flash": (128, 39 * 8 * (192 + 128) * 2),
    "gemma-4-26b-a4b": (1024, 25 * 2 * 8 * 256 * 2),
}


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameters_to_the_digit(name, count):
    assert parameters(load_model(name)) == count


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_parameters_agree_with_the_headline(name, billions):
    digits = len(str(billions).partition(".")[2])
    assert round(parameters(load_model(name)) / 1e9, digits) == billions


@pytest.mark.parametrize(("name", "billions"), ACTIVE_BILLIONS.items())
def test_active_parameters(name, billions):
    digits = len(str(billions).partition(".")[2])
    assert round(active_parameters(load_model(name)) / 1e9, digits) == billions


def test_active_parameters_of_mixtral_to_the_digit():
    assert active_parameters(load_model("mixtral-8x7b")) == 12_879_925_248


@pytest.mark.parametrize("name", ["llama-2-70b", "llama-3.1-405b", "qwen2.5-72b", "gemma-3-27b", "nemotron-h-56b"])
def test_dense_models_are_all_active(name):
    spec = load_model(name)
    assert active_parameters(spec) == parameters(spec)


def test_published_active_parameters_of_gpt_oss_leave_out_the_input_embedding():
    spec = load_model("gpt-oss-120b")
    assert round((active_parameters(spec) - spec.vocabulary * spec.hidden) / 1e9, 2) == 5.13


@pytest.mark.parametrize(("name", "expected"), GROWING.items())
def test_kv_bytes_per_token_that_grow(name, expected):
    assert kv_bytes_per_token(load_model(name), 1, "bf16", window=None) == expected


@pytest.mark.parametrize(("name", "expected"), WINDOWED.items())
def test_windows_and_their_bytes(name, expected):
    spec = load_model(name)
    window, per_token = expected
    assert windows(spec) == (window,)
    assert kv_bytes_per_token(spec, 1, "bf16", window=window) == per_token


@pytest.mark.parametrize("name", sorted(GROWING.keys() - WINDOWED.keys()))
def test_no_window_where_there_is_none(name):
    """A window switched off (Qwen2.5), or as long as the model's context (Phi-3.5), is none."""
    assert windows(load_model(name)) == ()


def test_gemma_3_4b_at_32768_tokens():
    assert kv_bytes_per_request(load_model("gemma-3-4b"), 32_768) == 792_723_456


def test_weights_of_gpt_oss_120b_to_the_byte():
    """MXFP4 experts at 4.25 bits, their biases and all the rest in 16 bits (alvarobartt/hf-mem#60)."""
    assert weight_bytes(load_model("gpt-oss-120b")) == 65_248_815_744


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nemotron-3-nano-30b-a3b", 23 * (36_864 + 1_048_576)),
        ("nemotron-h-56b", 54 * (3 * (16_384 + 2 * 8 * 256) + 16_384 * 256) * 2),
        ("qwen3-next-80b-a3b", 36 * (3 * (2 * 2048 + 4096) + 32 * 128 * 128) * 2),
        ("llama-3.1-8b", 0),
    ],
)
def test_fixed_state_per_request(name, expected):
    assert state_bytes_per_request(load_model(name)) == expected
