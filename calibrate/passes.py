"""Whole forward passes of a small real decoder, against what the fitted profile says they take.

The last word on a calibration: a decoder of random weights is built from a ModelSpec and run as a model is, prompt by
prompt and token by token, at sizes no fit has seen; the same cost model that simulations use predicts each pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.bench import Call, Timer
from calibrate.drift import Reference, steady
from calibrate.probing import REFUSALS
from calibrate.workbench import Workbench
from sim.cost import RooflineCost
from sim.hardware import ForwardPass, HardwareProfile
from sim.models.config import from_config
from sim.models.spec import ModelSpec
from sim.work import PrefillChunk, StepWork

HEADS, KV_HEADS, HEAD_DIM = 8, 4, 128
HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY = 1024, 2816, 6, 8192
SHARE_OF_FREE = 4
"""At most one part in this many of the free memory is used."""
REPEATS = 7
MOST_SECONDS = 3.0
"""A pass that takes longer is repeated less, down to LEAST_REPEATS."""
LEAST_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Pass:
    """``tokens`` of each of ``sequences`` prompts, or with ``context_tokens`` one token of each."""

    sequences: int
    tokens: int
    context_tokens: int = 0

    @property
    def prefills(self) -> bool:
        return not self.context_tokens

    @property
    def work(self) -> StepWork:
        """What the cost model is asked."""
        if self.prefills:
            chunks = (PrefillChunk(self.tokens, 0),) * self.sequences
            return StepWork(chunks, 0, 0, sampled_sequences=self.sequences)
        contexts = self.sequences * self.context_tokens
        return StepWork((), self.sequences, contexts, sampled_sequences=self.sequences)


QUICK = (Pass(1, 96), Pass(1, 384), Pass(2, 224), Pass(1, 1, 700), Pass(6, 1, 700), Pass(24, 1, 300))
FULL = (*QUICK, Pass(1, 48), Pass(1, 1536), Pass(2, 1, 3000), Pass(12, 1, 3000), Pass(48, 1, 700), Pass(96, 1, 300))


def small_decoder(dtype: str) -> ModelSpec:
    """Six layers of a Llama, wide enough that weights come from memory."""
    return from_config(
        {
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY,
            "torch_dtype": {"bf16": "bfloat16", "fp16": "float16"}[dtype],
            "tie_word_embeddings": False,
            "max_position_embeddings": 8192,
        },
        "small decoder",
        "calibrate",
    )


def check_passes(
    bench: Workbench,
    timer: Timer,
    profile: HardwareProfile,
    dtype: str,
    wanted: Sequence[Pass],
    reference: Reference | None,
    usual_s: float,
) -> tuple[tuple[ForwardPass, ...], list[str]]:
    """Each pass, predicted and measured, and what had to be left out.

    With a ``reference`` the device's drift is taken out: times are those at the speed at which it takes ``usual_s``.
    """
    model = small_decoder(dtype)
    cost = RooflineCost(model, profile)
    decoder = Decoder(bench, dtype)
    found, left_out = [], []
    for one in wanted:
        try:
            call = decoder.call(one)
            measured_s = _measured(timer, call, reference, usual_s)
        except REFUSALS as error:
            left_out.append(f"forward pass {one}: {str(error).splitlines()[0][:100]}")
            continue
        predicted_s = cost.step_time(one.work).device_s
        found.append(
            ForwardPass(
                phase="prefill" if one.prefills else "decode",
                sequences=one.sequences,
                tokens=one.tokens,
                context_tokens=one.context_tokens,
                measured_s=float(f"{measured_s:.4g}"),
                predicted_s=float(f"{predicted_s:.4g}"),
            )
        )
    return tuple(found), left_out


def _measured(timer: Timer, call: Call, reference: Reference | None, usual_s: float) -> float:
    batch = timer.prepare(call, 1)
    batch()
    once_s = batch()
    repeats = max(LEAST_REPEATS, min(REPEATS, math.floor(MOST_SECONDS / max(once_s, 1e-6))))
    times_s = []
    for _ in range(repeats):
        if reference is None:
            times_s.append(batch())
            continue
        before_s = reference.seconds()
        seconds = batch()
        times_s.append(steady(seconds, before_s, reference.seconds(), usual_s))
    return float(np.median(times_s))


class Decoder:
    """The decoder's weights and caches in torch, and its passes as calls."""

    def __init__(self, bench: Workbench, dtype: str) -> None:
        self._torch = bench.torch
        self._bench = bench
        self._dtype = dtype

        def tensor(*shape: int) -> Any:
            return bench.operand(dtype, shape)

        width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        self.layers = [
            {
                "norm": tensor(HIDDEN),
                "qkv": tensor(width + 2 * kv_width, HIDDEN),
                "out": tensor(HIDDEN, width),
                "gate_up": tensor(2 * INTERMEDIATE, HIDDEN),
                "down": tensor(HIDDEN, INTERMEDIATE),
            }
            for _ in range(LAYERS)
        ]
        self.embedding, self.head = tensor(VOCABULARY, HIDDEN), tensor(VOCABULARY, HIDDEN)

    def call(self, one: Pass) -> Call:
        """A pass, ready to run."""
        tokens = self._torch.arange(one.sequences * one.tokens, device=self.embedding.device) % VOCABULARY
        attend = self._prefill(one) if one.prefills else self._decode(one)
        last = self._torch.arange(one.sequences, device=tokens.device) * one.tokens + one.tokens - 1

        def run(_: int) -> object:
            with self._torch.no_grad():
                return self._forward(tokens, attend, last)

        return run

    def _forward(self, tokens: Any, attend: Callable[[int, Any, Any, Any], Any], last: Any) -> Any:
        torch, functional = self._torch, self._torch.nn.functional
        hidden = functional.embedding(tokens, self.embedding)
        for index, layer in enumerate(self.layers):
            normed = self._norm(hidden, layer["norm"])
            qkv = normed @ layer["qkv"].t()
            q, k, v = qkv.split([HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM], dim=-1)
            hidden = hidden + attend(index, self._rotated(q), self._rotated(k), v) @ layer["out"].t()
            gate, up = (self._norm(hidden, layer["norm"]) @ layer["gate_up"].t()).chunk(2, dim=-1)
            hidden = hidden + (functional.silu(gate) * up) @ layer["down"].t()
        logits = self._norm(hidden[last], self.layers[0]["norm"]) @ self.head.t()
        return torch.argmax(logits.float(), dim=-1)

    def _norm(self, hidden: Any, weight: Any) -> Any:
        return self._torch.native_layer_norm(hidden, (HIDDEN,), weight, None, 1e-5)[0]

    def _rotated(self, x: Any) -> Any:
        """As costly as a rotary embedding: each half times one factor plus the other half times another."""
        first, second = x.chunk(2, dim=-1)
        return self._torch.cat((first * 0.8 - second * 0.6, second * 0.8 + first * 0.6), dim=-1)

    def _prefill(self, one: Pass) -> Callable[[int, Any, Any, Any], Any]:
        attention = self._torch.nn.functional.scaled_dot_product_attention
        group = HEADS // KV_HEADS

        def attend(_: int, q: Any, k: Any, v: Any) -> Any:
            q, k, v = (self._by_head(x, one) for x in (q, k, v))
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            seen = attention(q, k, v, is_causal=True)
            return seen.transpose(1, 2).reshape(one.sequences * one.tokens, HEADS * HEAD_DIM)

        return attend

    def _by_head(self, x: Any, one: Pass) -> Any:
        return x.view(one.sequences, one.tokens, -1, HEAD_DIM).transpose(1, 2)

    def _decode(self, one: Pass) -> Callable[[int, Any, Any, Any], Any]:
        shape = (one.sequences, KV_HEADS, one.context_tokens, HEAD_DIM)
        caches = [
            (self._bench.operand(self._dtype, shape), self._bench.operand(self._dtype, shape)) for _ in self.layers
        ]
        torch, group = self._torch, HEADS // KV_HEADS
        attention = torch.nn.functional.scaled_dot_product_attention

        def attend(index: int, q: Any, k: Any, v: Any) -> Any:
            keys, values = caches[index]
            keys[:, :, -1], values[:, :, -1] = (x.view(one.sequences, KV_HEADS, HEAD_DIM) for x in (k, v))
            q = q.view(one.sequences, KV_HEADS, group, HEAD_DIM)
            if self._bench.decode_by_products:
                seen = torch.softmax((q * HEAD_DIM**-0.5) @ keys.transpose(-1, -2), -1) @ values
            else:
                seen = attention(q, keys, values)
            return seen.reshape(one.sequences, HEADS * HEAD_DIM)

        return attend
