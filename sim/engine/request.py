"""One request as its engine sees it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.engine.cache.blocks import Block
    from sim.engine.cache.window_cache import Held


class Status(Enum):
    """Where a request stands in the engine."""

    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED = auto()
    ABORTED = auto()


Piece = tuple[str, int]
"""``(segment_id, tokens)``: the k-th token of the piece is the token ``(segment_id, k)``. Two pieces with the same
segment share their common length; the output of request ``r`` is the segment ``o:<r>``."""


class Request:
    """Mutable state of one request in one engine.

    ``known_tokens`` = prompt + sampled so far; a step computes tokens until ``computed_tokens`` reaches it, and a token
    is sampled in the step where it does. There is no prefill or decode status: vLLM V1 has none.
    """

    __slots__ = (
        "acceptances",
        "block_count",
        "blocks",
        "computed_tokens",
        "counted",
        "draft_tokens",
        "ends_at",
        "final_tokens",
        "held",
        "held_pieces",
        "in_flight_tokens",
        "joined_at",
        "key_source",
        "keys",
        "known_tokens",
        "leaves_at",
        "max_output_tokens",
        "most_computed_tokens",
        "order",
        "output_tokens",
        "placeholders",
        "priority",
        "prompt",
        "prompt_tokens",
        "rank",
        "register_at",
        "registered_blocks",
        "request_id",
        "run_index",
        "runs",
        "sent_tokens",
        "serial",
        "status",
        "visit_at",
    )

    def __init__(
        self,
        request_id: int | str,
        prompt_tokens: int,
        output_tokens: int,
        *,
        order: int,
        priority: int = 0,
        max_output_tokens: int | None = None,
        prompt: tuple[Piece, ...] | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        """Tokens it generates before it stops by itself."""
        self.max_output_tokens = output_tokens if max_output_tokens is None else max_output_tokens
        """The cap known to the engine in advance; at least ``output_tokens``."""
        self.order = order
        """Rank of arrival: strict, breaks every tie."""
        self.priority = priority
        """Lower is more important."""
        self.prompt = prompt
        """Pieces the prompt is made of, for prefix caching; None is one private segment."""
        self.status = Status.WAITING
        self.known_tokens = prompt_tokens
        self.sent_tokens = 0
        """Tokens its client knows, where its engine has dropped some of them and samples them anew."""
        self.computed_tokens = 0
        self.placeholders = 0
        """Tokens scheduled whose value is still in flight (asynchronous scheduling)."""
        self.draft_tokens = 0
        """Drafts that its next step verifies (speculation)."""
        self.acceptances: Iterator[int] | None = None
        """Yields how many drafts each of its verifications accepts at most."""
        self.in_flight_tokens = 0
        """Tokens of steps that are not completed; followed only where windows wait for them."""
        self.final_tokens = prompt_tokens + output_tokens
        """It ends when it knows this many; its engine lowers it to ``max_model_len``."""
        self.most_computed_tokens = prompt_tokens + self.max_output_tokens - 1
        """No step goes further: the last token it may sample is never computed. Lowered by its engine too."""
        self.block_count = 0
        self.blocks: list[Block] = []
        """Held blocks in order, with prefix caching; without, ``block_count`` is all there is."""
        self.held: list[Held] = []
        """Held blocks per group of layers, where the model has windows."""
        self.held_pieces: list[Any] = []
        """What it holds in a ``RunCache``: cached pieces, each up to where."""
        self.registered_blocks = 0
        """Leading blocks that others may hit."""
        self.register_at = 0
        """Tokens at which the next block is full."""
        self.visit_at = 0
        """A step that ends below this many tokens changes nothing about its blocks."""
        self.rank = 0
        """Among all admissions of its engine, resumptions included: the order of the running list."""
        self.serial = 0
        """Of its stay in the steady batch; 0 while it is not in. There the tokens above are those it joined with."""
        self.joined_at = 0
        """The step that was scheduled last when it joined."""
        self.leaves_at = 0
        """The last step that gives it a token."""
        self.ends_at = 0
        """The step whose completion ends it."""
        self.counted = False
        """In the sums of the steady batch's next step."""
        self.keys: list[int] = []
        self.runs: list[tuple[int, int, int]] = []
        """Its full blocks as runs of consecutive keys: (first block, key, blocks)."""
        self.run_index = 0
        """The run that its next full block belongs to."""
        self.key_source: Iterator[int] | None = None
        """Yields the keys of further full blocks."""

    @property
    def most_tokens(self) -> int:
        """Prompt and the longest answer it may give."""
        return self.most_computed_tokens + 1

    @property
    def emitted_tokens(self) -> int:
        """Output tokens sampled so far, each counted once."""
        return max(self.known_tokens, self.sent_tokens) - self.prompt_tokens

    @property
    def ended(self) -> bool:
        """Finished or aborted: whatever is in flight for it is dropped."""
        return self.status in {Status.FINISHED, Status.ABORTED}
