"""Who drafts in speculative decoding: a smaller model, or the model's own multi-token-prediction layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.errors import UnsupportedModel
from sim.models.memory import kv_bytes_per_request, weight_bytes_per_gpu
from sim.models.spec import LinearAttention, ModelSpec
from sim.parallel import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What one drafting pass runs, and how much of it lies in memory."""

    model: ModelSpec
    """A pass computes all its layers and the LM head."""
    copies: int = 1
    """MTP layers of the checkpoint: each is held, and a pass runs one of them."""
    shares_embeddings: bool = False
    """Embedding and LM head are the target's (MTP): held once."""

    def weight_bytes_per_gpu(self, parallel: Parallelism) -> int:
        """Beside the target's own, on a GPU of the stage that drafts."""
        parallel = replace(parallel, pipeline=1)
        whole = weight_bytes_per_gpu(self.model, parallel)
        if not self.shares_embeddings:
            return whole
        return self.copies * (whole - weight_bytes_per_gpu(replace(self.model, layers=()), parallel))

    def kv_bytes_per_token(self, request_tokens: int, tensor_parallel: int, kv_dtype: str) -> float:
        """KV bytes on one GPU for a token of a request of ``request_tokens``."""
        return (
            self.copies * kv_bytes_per_request(self.model, request_tokens, tensor_parallel, kv_dtype) / request_tokens
        )


def mtp_draft(model: ModelSpec) -> Draft:
    """The model's multi-token-prediction layers (DeepSeek-V3, arXiv 2412.19437): each a decoder layer like its last.

    A model whose config names none is taken to have one. The projection that joins the hidden state and the embedding
    is left out (2 hidden^2 weights beside a whole layer).
    """
    if not model.layers:
        raise UnsupportedModel(
            "an abstract model has no layers to draft with", "use method: ngram or draft-model, or a real model"
        )
    attending = [layer for layer in model.layers if not isinstance(layer.attention, LinearAttention | None)]
    layer = (attending or list(model.layers))[-1]
    one = replace(model, name=f"{model.name} (MTP layer)", layers=(layer,), notes=())
    return Draft(model=one, copies=max(1, model.mtp_layers), shares_embeddings=True)


def model_draft(draft: ModelSpec, target: ModelSpec) -> Draft:
    """A model of its own. Raises UnsupportedModel where its tokens are not the target's, as vLLM does."""
    if target.abstract_parameters is None and draft.vocabulary != target.vocabulary:
        raise UnsupportedModel(
            f"{draft.name} has {draft.vocabulary:,} tokens in its vocabulary, {target.name} {target.vocabulary:,}",
            "use a draft model of the same family: drafts are compared token by token",
        )
    return Draft(model=draft)
