"""How the GPUs of one replica share the work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """GPUs of one replica = tensor x pipeline x data.

    ``expert`` divides tensor x data: experts are split ``expert`` ways, and each expert's matrices over
    ``tensor x data / expert`` GPUs. Attention is split over ``tensor`` GPUs of each of the ``data`` ranks, which have a
    scheduler, a KV pool and limits of their own; the layers are split into ``pipeline`` stages.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def expert_tensor(self) -> int:
        """GPUs over which one expert's matrices are split."""
        return self.tensor * self.data // self.expert
