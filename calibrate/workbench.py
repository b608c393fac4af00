"""Kernels as torch calls, on operands that lie in memory and not in cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrate.bench import Call
from calibrate.device import GUESSED_CACHE_BYTES, TorchDevice
from calibrate.kernels import (
    ELEMENT_BYTES,
    HIDDEN,
    DecodeAttention,
    Elementwise,
    Gemm,
    Kernel,
    Launch,
    PrefillAttention,
    Stream,
)

SHARE_OF_FREE = 4
"""At most one part in this many of the free memory is used."""
COLD_CACHES = 4
"""Operands turn over in a pool of at least this many last-level caches."""
MOST_POOL_BYTES = 4 * 2**30
BLOCK_ELEMENTS = 2**18
"""Random numbers are drawn once and repeated: products take longer on random numbers than on zeros."""
BLOCK_BYTES = 4 * BLOCK_ELEMENTS
"""A pool is whole blocks, in the widest dtype too."""
TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn", "int8": "int8"}


class TooLargeError(Exception):
    """A kernel whose operands would take more memory than allowed."""


class Workbench:
    """Lends operands from one pool of random numbers per dtype; only one pool is held at a time."""

    def __init__(self, device: TorchDevice, *, most_pool_bytes: int = MOST_POOL_BYTES) -> None:
        self.torch = device.torch
        self.device = device
        self.limit_bytes = device.facts.free_bytes // SHARE_OF_FREE
        self.pool_bytes = min(self.limit_bytes // 2, most_pool_bytes) // BLOCK_BYTES * BLOCK_BYTES
        self.decode_by_products = False
        """Decode attention as two batched products and a softmax, where that is faster than torch's fused kernel."""
        self._pool: tuple[str, Any] | None = None

    @property
    def cold_bytes(self) -> int:
        """What must lie between two uses of an operand, so that it has left the cache."""
        return COLD_CACHES * (self.device.facts.cache_bytes or GUESSED_CACHE_BYTES)

    @property
    def stream_bytes(self) -> int:
        """Buffer of the bandwidth kernels: well above the cache, within what is allowed."""
        return min(max(2 * self.cold_bytes, 2**28), self.pool_bytes)

    def call(self, kernel: Kernel) -> Call:
        """The kernel, ready to run. Raises TooLargeError."""
        self._check(kernel)
        if isinstance(kernel, Gemm):
            return self._gemm(kernel)
        if isinstance(kernel, DecodeAttention):
            return self._decode(kernel)
        if isinstance(kernel, PrefillAttention):
            return self._prefill(kernel)
        if isinstance(kernel, Elementwise):
            return self._elementwise(kernel)
        return self._stream(kernel) if isinstance(kernel, Stream) else self._launch(kernel)

    def _check(self, kernel: Kernel) -> None:
        room = self.limit_bytes - self.pool_bytes
        if kernel.cold_bytes > self.pool_bytes or kernel.warm_bytes > room:
            needs = (kernel.cold_bytes + kernel.warm_bytes) / 2**30
            raise TooLargeError(
                f"needs {needs:.2f} GiB, a quarter of free memory is {self.limit_bytes / 2**30:.2f} GiB"
            )

    def _gemm(self, kernel: Gemm) -> Call:
        weights = self._windows(kernel.dtype, (kernel.columns, kernel.depth))
        x = self.operand(kernel.dtype, (kernel.tokens, kernel.depth))
        torch = self.torch
        if kernel.dtype == "int8":
            product = torch._int_mm  # noqa: SLF001 - torch has no public one
            return lambda turn: product(x, weights(turn).t())
        if kernel.dtype == "fp8":
            one = torch.ones((), device=x.device)
            scaled = torch._scaled_mm  # noqa: SLF001 - torch has no public one
            return lambda turn: scaled(x, weights(turn).t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        out = x.new_empty(kernel.tokens, kernel.columns)
        return lambda turn: torch.mm(x, weights(turn).t(), out=out)

    def _decode(self, kernel: DecodeAttention) -> Call:
        torch, group = self.torch, kernel.heads // kernel.kv_heads
        shape = (kernel.sequences, kernel.kv_heads, kernel.context_tokens, kernel.head_dim)
        pairs = self._windows(kernel.dtype, (2, *shape))
        q = self.operand(kernel.dtype, (kernel.sequences, kernel.kv_heads, group, kernel.head_dim))
        attention = torch.nn.functional.scaled_dot_product_attention
        scaled_q = q * kernel.head_dim**-0.5

        def fused(turn: int) -> object:
            keys, values = pairs(turn)
            return attention(q, keys, values)

        def by_products(turn: int) -> object:
            keys, values = pairs(turn)
            return torch.softmax(scaled_q @ keys.transpose(-1, -2), -1) @ values

        return by_products if self.decode_by_products else fused

    def _prefill(self, kernel: PrefillAttention) -> Call:
        shape = (kernel.sequences, kernel.heads, kernel.tokens, kernel.head_dim)
        q, k, v = (self.operand(kernel.dtype, shape) for _ in range(3))
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return lambda _turn: attention(q, k, v, is_causal=True)

    def _elementwise(self, kernel: Elementwise) -> Call:
        torch = self.torch
        rows = self._windows(kernel.dtype, (kernel.tokens, HIDDEN))
        if kernel.kind == "norm":
            weight = self.operand(kernel.dtype, (HIDDEN,))
            return lambda turn: torch.native_layer_norm(rows(turn), (HIDDEN,), weight, None, 1e-5)
        # 0 x the second operand: it is read all the same, and what is written into the pool stays random.
        return lambda turn: torch.add(rows(3 * turn), rows(3 * turn + 1), alpha=0, out=rows(3 * turn + 2))

    def _stream(self, kernel: Stream) -> Call:
        source = self._windows(kernel.dtype, (kernel.buffer_bytes // ELEMENT_BYTES[kernel.dtype],))(0)
        if kernel.kind == "read":
            return lambda _turn: source.sum()
        target = self.torch.empty_like(source)
        return lambda _turn: target.copy_(source)

    def _launch(self, kernel: Launch) -> Call:
        number = self.operand(kernel.dtype, (1,))
        return lambda _turn: number.add_(1)

    def _windows(self, dtype: str, shape: tuple[int, ...]) -> Callable[[int], Any]:
        """Operands of one shape, one after another through the pool."""
        pool, elements = self.pool(dtype), _elements(shape)
        views = [
            pool[start : start + elements].view(shape) for start in range(0, pool.numel() - elements + 1, elements)
        ][:1024]
        return lambda turn: views[turn % len(views)]

    def operand(self, dtype: str, shape: tuple[int, ...]) -> Any:
        """An operand of its own, random."""
        elements = _elements(shape)
        block = self.pool(dtype)[:BLOCK_ELEMENTS]
        return block.repeat(-(-elements // BLOCK_ELEMENTS))[:elements].view(shape)

    def pool(self, dtype: str) -> Any:
        """The pool in this dtype; the one before is let go."""
        if self._pool is None or self._pool[0] != dtype:
            self._pool = None
            self._pool = (dtype, self._filled(dtype))
        return self._pool[1]

    def _filled(self, dtype: str) -> Any:
        torch = self.torch
        generator = torch.Generator().manual_seed(0)
        if dtype == "int8":
            block = torch.randint(-127, 128, (BLOCK_ELEMENTS,), dtype=torch.int8, generator=generator)
        else:
            block = torch.randn(BLOCK_ELEMENTS, generator=generator).to(getattr(torch, TORCH_NAMES[dtype]))
        elements = self.pool_bytes // ELEMENT_BYTES[dtype]
        return block.to(self.device.kind).repeat(max(1, elements // BLOCK_ELEMENTS))


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
