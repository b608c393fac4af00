"""The benchmarks as data: kernels by shape, with their work, and the list of what to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal

ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
HIDDEN = 4096
"""Row length of the elementwise kernels."""
INT8_LEAST_TOKENS = 32
"""torch's int8 product wants more than 16 rows on CUDA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Bandwidth: ``copy`` reads and writes a buffer well above the last-level cache, ``read`` sums it."""

    family: ClassVar[str] = "bandwidth"
    kind: Literal["copy", "read"]
    buffer_bytes: int
    dtype: str = "fp32"
    held_out: bool = False
    curve: ClassVar[str] = "bandwidth"
    flops: ClassVar[int] = 0

    @property
    def traffic_bytes(self) -> int:
        """Bytes the kernel must move at the least."""
        return self.buffer_bytes * (2 if self.kind == "copy" else 1)

    @property
    def cold_bytes(self) -> int:
        """Operands that come from memory."""
        return self.buffer_bytes

    @property
    def warm_bytes(self) -> int:
        """Operands beside those, which may be in cache."""
        return self.buffer_bytes if self.kind == "copy" else 0

    @property
    def label(self) -> str:
        """What the progress bar shows."""
        return f"{self.kind} {self.buffer_bytes / 2**20:.0f} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """``norm``: a layer norm over rows of 4096 (one fused kernel in every torch, as RMS norm is in an engine);
    ``add``: a residual addition.
    """

    family: ClassVar[str] = "elementwise"
    kind: Literal["norm", "add"]
    dtype: str
    tokens: int
    held_out: bool = False
    curve: ClassVar[str] = "elementwise"
    flops: ClassVar[int] = 0

    @property
    def row_bytes(self) -> int:
        """One operand."""
        return self.tokens * HIDDEN * ELEMENT_BYTES[self.dtype]

    @property
    def traffic_bytes(self) -> int:
        """Bytes the kernel must move at the least."""
        return self.row_bytes * (3 if self.kind == "add" else 2)

    @property
    def cold_bytes(self) -> int:
        """Operands that come from memory."""
        return self.row_bytes

    @property
    def warm_bytes(self) -> int:
        """Operands beside those, which may be in cache."""
        return self.traffic_bytes - self.row_bytes

    @property
    def label(self) -> str:
        """What the progress bar shows."""
        return f"{self.kind} {self.dtype} {self.tokens} x {HIDDEN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """An addition to one number: nothing but the overhead of a kernel."""

    family: ClassVar[str] = "launch"
    dtype: str = "fp32"
    held_out: bool = False
    flops: ClassVar[int] = 0
    traffic_bytes: ClassVar[int] = 8
    cold_bytes: ClassVar[int] = 4
    warm_bytes: ClassVar[int] = 4
    label: ClassVar[str] = "kernel launch"
    curve: ClassVar[str] = "launch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Activations (tokens x depth) by weights (depth x columns); weights come from memory, not from cache."""

    family: ClassVar[str] = "gemm"
    dtype: str
    tokens: int
    depth: int
    columns: int
    held_out: bool = False

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.tokens * self.depth * self.columns

    @property
    def cold_bytes(self) -> int:
        """Operands that come from memory."""
        return self.depth * self.columns * ELEMENT_BYTES[self.dtype]

    @property
    def warm_bytes(self) -> int:
        """Operands beside those, which may be in cache."""
        size = ELEMENT_BYTES[self.dtype]
        return self.tokens * (self.depth * size + self.columns * (4 if self.dtype == "int8" else max(2, size)))

    @property
    def traffic_bytes(self) -> int:
        """Bytes the kernel must move at the least."""
        return self.cold_bytes + self.warm_bytes

    @property
    def curve(self) -> str:
        """The curve it is a sample of."""
        return f"gemm.{self.dtype}"

    @property
    def label(self) -> str:
        """What the progress bar shows."""
        return f"gemm {self.dtype} {self.tokens} x {self.depth} x {self.columns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """One query token per sequence over its context, query heads of one KV head together."""

    family: ClassVar[str] = "decode_attention"
    dtype: str
    sequences: int
    heads: int
    kv_heads: int
    head_dim: int
    context_tokens: int
    held_out: bool = False

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 4 * self.sequences * self.heads * self.head_dim * self.context_tokens

    @property
    def cold_bytes(self) -> int:
        """Keys and values."""
        width = self.kv_heads * self.head_dim * ELEMENT_BYTES[self.dtype]
        return 2 * self.sequences * self.context_tokens * width

    @property
    def warm_bytes(self) -> int:
        """Queries and output, and scores where a kernel writes them."""
        per_head = 2 * self.head_dim + 2 * self.context_tokens
        return self.sequences * self.heads * per_head * ELEMENT_BYTES[self.dtype]

    @property
    def traffic_bytes(self) -> int:
        """Bytes the kernel must move at the least."""
        return self.cold_bytes

    @property
    def curve(self) -> str:
        """The curve it is a sample of."""
        return f"decode_attention.{self.head_dim}"

    @property
    def label(self) -> str:
        """What the progress bar shows."""
        heads = f"{self.heads}/{self.kv_heads} heads of {self.head_dim}"
        return f"decode attention {self.dtype} {self.sequences} x {self.context_tokens}, {heads}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillAttention:
    """Causal attention of whole prompts over themselves."""

    family: ClassVar[str] = "prefill_attention"
    dtype: str
    sequences: int
    heads: int
    head_dim: int
    tokens: int
    held_out: bool = False

    @property
    def flops(self) -> int:
        """The causal half alone: each token attends to itself and those before it."""
        return 4 * self.sequences * self.heads * self.head_dim * (self.tokens * (self.tokens + 1) // 2)

    @property
    def traffic_bytes(self) -> int:
        """Queries, keys, values, output."""
        return 4 * self.sequences * self.heads * self.tokens * self.head_dim * ELEMENT_BYTES[self.dtype]

    @property
    def cold_bytes(self) -> int:
        """Operands that come from memory."""
        return self.traffic_bytes // 4

    @property
    def warm_bytes(self) -> int:
        """Operands beside those, which may be in cache."""
        return self.traffic_bytes - self.cold_bytes

    @property
    def curve(self) -> str:
        """The curve it is a sample of."""
        return f"prefill_attention.{self.head_dim}"

    @property
    def label(self) -> str:
        """What the progress bar shows."""
        return f"prefill attention {self.dtype} {self.sequences} x {self.tokens}, {self.heads} heads of {self.head_dim}"


Kernel = Stream | Elementwise | Launch | Gemm | DecodeAttention | PrefillAttention


@dataclass(frozen=True, slots=True)
class Sample:
    """A kernel and how long it took."""

    kernel: Kernel
    seconds: float
    spread: float = 0.0
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Shapes to fit, and shapes between them that the fits never see."""

    tokens: Sequence[int]
    weights: Sequence[tuple[int, int]]
    held_out_tokens: Sequence[int]
    held_out_weights: Sequence[tuple[int, int]]
    sequences: Sequence[int]
    contexts: Sequence[int]
    heads: Sequence[tuple[int, int]]
    head_dims: Sequence[int]
    prompts: Sequence[int]
    prompt_heads: Sequence[int]
    elementwise_tokens: Sequence[int]


QUICK = Grid(
    tokens=(1, 8, 32, 128, 512, 2048),
    weights=((1024, 1024), (2048, 2048), (4096, 1024), (1024, 4096), (4096, 4096)),
    held_out_tokens=(3, 24, 192),
    held_out_weights=((1536, 3072), (3072, 2048)),
    sequences=(1, 4, 16, 64),
    contexts=(512, 2048, 8192),
    heads=((8, 8), (32, 8)),
    head_dims=(128,),
    prompts=(64, 128, 256, 512, 1024, 2048),
    prompt_heads=(4, 16),
    elementwise_tokens=(256, 2048),
)
FULL = Grid(
    tokens=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    weights=(
        (1024, 1024),
        (2048, 2048),
        (4096, 1024),
        (1024, 4096),
        (4096, 4096),
        (4096, 14336),
        (14336, 4096),
        (8192, 8192),
    ),
    held_out_tokens=(3, 24, 192, 1536),
    held_out_weights=((1536, 3072), (3072, 2048), (5120, 6912)),
    sequences=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    contexts=(256, 1024, 4096, 16384),
    heads=((8, 1), (8, 8), (32, 8)),
    head_dims=(64, 128),
    prompts=(64, 128, 256, 512, 1024, 2048, 4096, 8192),
    prompt_heads=(4, 8, 32),
    elementwise_tokens=(256, 1024, 4096, 8192),
)


def plan(grid: Grid, dtypes: Sequence[str], stream_bytes: int) -> tuple[Kernel, ...]:
    """What to run, small work first within a family, so that each tells how long the next will take.

    Attention and elementwise kernels run in the first 16-bit dtype there is. Bandwidth is measured first and last: what
    disturbs one may spare the other.
    """
    half = next((dtype for dtype in ("bf16", "fp16") if dtype in dtypes), dtypes[0])
    rows = [Elementwise(kind=kind, dtype=half, tokens=t) for t in grid.elementwise_tokens for kind in ("norm", "add")]
    return (
        *_streams(stream_bytes),
        Launch(),
        *rows,
        *(kernel for dtype in dtypes for kernel in _by_work(_gemms(grid, dtype))),
        *(kernel for head_dim in grid.head_dims for kernel in _by_work(_decodes(grid, half, head_dim))),
        *(kernel for head_dim in grid.head_dims for kernel in _by_work(_prefills(grid, half, head_dim))),
        *_streams(stream_bytes // 2),
    )


def _streams(buffer_bytes: int) -> tuple[Stream, Stream]:
    return Stream(kind="copy", buffer_bytes=buffer_bytes), Stream(kind="read", buffer_bytes=buffer_bytes)


def _by_work(kernels: Iterable[Kernel]) -> list[Kernel]:
    return sorted(kernels, key=lambda kernel: (kernel.flops, kernel.traffic_bytes))


def _gemms(grid: Grid, dtype: str) -> Iterable[Gemm]:
    least = INT8_LEAST_TOKENS if dtype == "int8" else 1
    fitted = product(grid.tokens, grid.weights, [False])
    held_out = product(grid.held_out_tokens, grid.held_out_weights, [True])
    for tokens, (depth, columns), apart in (*fitted, *held_out):
        if tokens >= least:
            yield Gemm(dtype=dtype, tokens=tokens, depth=depth, columns=columns, held_out=apart)


def _decodes(grid: Grid, dtype: str, head_dim: int) -> Iterable[DecodeAttention]:
    fitted = product(grid.sequences, grid.contexts, grid.heads, [False])
    held_out = product(
        [s * 3 for s in grid.sequences[1:3]], [c * 3 // 2 for c in grid.contexts[:2]], grid.heads, [True]
    )
    for sequences, context, (heads, kv_heads), apart in (*fitted, *held_out):
        yield DecodeAttention(
            dtype=dtype,
            sequences=sequences,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            context_tokens=context,
            held_out=apart,
        )


def _prefills(grid: Grid, dtype: str, head_dim: int) -> Iterable[PrefillAttention]:
    fitted = product([1], grid.prompts, grid.prompt_heads, [False])
    held_out = product([2], [p * 3 // 2 for p in grid.prompts[1:-2]], grid.prompt_heads[:2], [True])
    for sequences, tokens, heads, apart in (*fitted, *held_out):
        yield PrefillAttention(
            dtype=dtype, sequences=sequences, heads=heads, head_dim=head_dim, tokens=tokens, held_out=apart
        )
