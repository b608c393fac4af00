"""SGLang's KV pool: every page is free, cached in the radix tree, or private to one running request.

A request shares the prefix that it locked in the tree and owns the pages behind it. What it has computed goes to the
tree at the end of a prefill chunk and when it finishes, never before: requests of one batch do not share.
"""

from __future__ import annotations

from sim.engine.cache.radix_tree import Match, Node, RadixTree
from sim.engine.cache.rounding import blocks_for
from sim.engine.cache.token_runs import Runs, request_runs
from sim.engine.request import Request
from sim.engine.sglang.settings import SglangSettings


class Held:
    """What one running request holds."""

    __slots__ = ("node", "private_pages", "runs", "shared_tokens")

    def __init__(self, runs: Runs, prefix: Match) -> None:
        self.runs = runs
        self.node: Node = prefix.node
        """End of the prefix it has locked."""
        self.shared_tokens = prefix.tokens
        """Length of that prefix, in whole pages."""
        self.private_pages = 0


class RadixCache:
    """The pool of one engine. Without a limit (``kv_blocks`` None) nothing is cached."""

    def __init__(self, settings: SglangSettings) -> None:
        self.page_tokens = settings.block_tokens
        self.caching = settings.prefix_caching and settings.kv_blocks is not None
        self.total_pages = settings.kv_blocks
        self.free_pages = settings.kv_blocks if settings.kv_blocks is not None else 1 << 62
        self.tree = RadixTree(self.page_tokens)
        self.held: dict[Request, Held] = {}
        """By running request, in order of admission."""
        self._runs: dict[Request, Runs] = {}

    @property
    def available_tokens(self) -> int:
        """Free, or cached for nobody who runs."""
        return self.free_pages * self.page_tokens + self.tree.evictable_tokens

    @property
    def used_pages(self) -> int:
        """Held by running requests, shared ones counted once."""
        if self.total_pages is None:
            return 0
        return self.total_pages - self.free_pages - self.tree.evictable_tokens // self.page_tokens

    def capacity_tokens(self) -> int | None:
        """Of the whole pool; None: no limit."""
        return None if self.total_pages is None else self.total_pages * self.page_tokens

    def runs(self, request: Request) -> Runs:
        """A request's tokens; made once, until ``forget``."""
        runs = self._runs.get(request)
        if runs is None:
            runs = self._runs[request] = request_runs(request)
        return runs

    def forget(self, request: Request) -> None:
        """A request has ended."""
        self._runs.pop(request, None)

    def match(self, request: Request, tokens: int) -> Match:
        """The longest cached prefix of a request's first ``tokens``."""
        return self.tree.match(self.runs(request), tokens) if self.caching else Match(self.tree.root, 0)

    def hold(self, request: Request) -> int:
        """Lock a request's cached prefix; its last known token is always computed anew. Returns the prefix."""
        prefix = self.match(request, request.known_tokens - 1)
        self.tree.lock(prefix.node)
        self.held[request] = Held(self.runs(request), prefix)
        return prefix.tokens

    def missing_pages(self, request: Request, end: int) -> int:
        """Pages to take before a request has its first ``end`` tokens computed."""
        held = self.held[request]
        return blocks_for(end, self.page_tokens) - held.shared_tokens // self.page_tokens - held.private_pages

    def make_free(self, tokens: int) -> None:
        """Evict until so many tokens are free, or nothing is left to evict."""
        short = tokens - self.free_pages * self.page_tokens
        if short > 0:
            self.free_pages += self.tree.evict(short) // self.page_tokens

    def extend(self, request: Request, end: int) -> None:
        """Take the pages of a request's first ``end`` tokens; the caller knows that they are available."""
        missing = self.missing_pages(request, end)
        self.make_free(missing * self.page_tokens)
        assert missing <= self.free_pages, f"{request.request_id} needs {missing} pages, {self.free_pages} are free"
        self.held[request].private_pages += missing
        self.free_pages -= missing

    def pages_for_next_token(self, requests: list[Request]) -> int:
        """One for every request whose pages are full."""
        page = self.page_tokens
        return len(requests) if page == 1 else sum(request.computed_tokens % page == 0 for request in requests)

    def take_next_token(self, requests: list[Request]) -> None:
        """``extend`` each request by one token; the caller knows that the pages are free."""
        page, held, before = self.page_tokens, self.held, self.free_pages
        for request in requests:
            if request.computed_tokens % page == 0:
                held[request].private_pages += 1
                self.free_pages -= 1
        assert self.free_pages >= 0, f"{len(requests)} decodes need {before - self.free_pages} pages, {before} are free"

    def checkpoint(self, request: Request, tokens: int) -> None:
        """Cache the whole pages of a request's first ``tokens``, and share them from now on.

        Its own copies of what others have cached meanwhile are freed. The node is split where the prompt ends, so that
        eviction can take an answer and leave the prompt.
        """
        if not self.caching:
            return
        held = self.held[request]
        node, present = self.tree.insert(held.runs, tokens)
        if request.prompt_tokens < tokens:
            self.tree.match(held.runs, request.prompt_tokens)
        shared = tokens // self.page_tokens * self.page_tokens
        held.private_pages -= (shared - held.shared_tokens) // self.page_tokens
        self.free_pages += (present - held.shared_tokens) // self.page_tokens
        self.tree.lock(node)
        self.tree.unlock(held.node)
        held.node, held.shared_tokens = node, shared

    def release(self, request: Request) -> None:
        """A request stops running: its private pages are free, its prefix may be evicted."""
        held = self.held.pop(request)
        self.free_pages += held.private_pages
        self.tree.unlock(held.node)
