"""Halves of layers put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.models.fields import Fields
from sim.models.spec import Attention, DenseFfn, LatentAttention, Layer, LinearAttention, MoeFfn

Layers = tuple[Layer, ...]
Family = Callable[[Fields], Layers]
"""From a config's fields to layers, in order of depth."""


def stack(
    attentions: Sequence[Attention | LatentAttention | LinearAttention],
    ffns: Sequence[DenseFfn | MoeFfn],
    norm_parameters: int,
) -> Layers:
    """One layer per attention and feed-forward block, all with the same norms."""
    pairs = zip(attentions, ffns, strict=True)
    return tuple(Layer(attention=attention, ffn=ffn, norm_parameters=norm_parameters) for attention, ffn in pairs)
