"""SGLang's waiting queue and its schedule policies: who is looked at first for the next prefill batch."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from sim.engine.cache.radix_cache import RadixCache
from sim.engine.cache.radix_tree import Match, Node, RadixTree
from sim.engine.cache.rounding import blocks_for
from sim.engine.request import Request
from sim.engine.sglang.settings import SglangSettings

MOST_MATCHED = 128
"""A longer queue is not sorted under lpm and hrrn: matching every request costs more than it gains."""
SHARED_TOKENS = 32
"""In-batch rule: who finds no more than this cached, and at least this in another waiting request, comes last."""


class Entered(NamedTuple):
    """When a request joined the queue, as far as an engine without a clock can tell."""

    rank: int
    prefill_tokens: int
    """Prefill tokens that the engine had scheduled by then: what hrrn counts as time."""


class Waiting:
    """The queue, in the order of the last sort; who comes later, or comes back, is appended."""

    def __init__(self, settings: SglangSettings, cache: RadixCache) -> None:
        self.requests: list[Request] = []
        self.prefill_tokens = 0
        """Prefill tokens scheduled so far."""
        self._policy = settings.policy
        self._cache = cache
        self._random = random.Random(settings.seed)
        self._entered: dict[Request, Entered] = {}
        self._joined = 0

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: Request) -> None:
        """A new or retracted request; both go to the end."""
        self.requests.append(request)
        self._entered[request] = Entered(self._joined, self.prefill_tokens)
        self._joined += 1

    def remove(self, request: Request) -> None:
        """A waiting request is admitted, or its client gave up."""
        self.requests.remove(request)
        del self._entered[request]

    def sort(self) -> None:
        """Put the queue into the order of the policy; what compares equal keeps its order."""
        requests, policy = self.requests, self._policy
        if policy == "priority":
            requests.sort(key=lambda request: (request.priority, self._entered[request].rank))
        elif policy == "lof":
            requests.sort(key=lambda request: -max_new_tokens(request))
        elif policy == "random":
            self._random.shuffle(requests)
        elif policy != "fcfs" and self._cache.caching:
            self._sort_by_prefix()

    def shortest_first_chunk(self, chunked: Request, budget: int) -> int | None:
        """Under shortest-prefill-first, the most a chunked request may take: shorter ones behind it go along."""
        page, reserved = self._cache.page_tokens, 0
        if self._policy != "shortest-prefill-first" or not self._cache.caching or budget < 2 * page:
            return None
        for request in self.requests:
            tokens = max(1, request.known_tokens - self._cached(request, self._match(request)))
            charge = blocks_for(tokens, page) * page
            if tokens >= chunked.known_tokens - chunked.computed_tokens or reserved + charge > budget - page:
                break
            reserved += charge
        return (budget - reserved) // page * page if reserved else None

    def _sort_by_prefix(self) -> None:
        """The policies that know what is cached."""
        requests, policy, entered = self.requests, self._policy, self._entered
        if policy in {"lpm", "hrrn"} and len(requests) > MOST_MATCHED:
            return
        matches, last = self._matches()
        cached = {request: self._cached(request, match) for request, match in matches.items()}
        if policy == "dfs-weight":
            self.requests = _depth_first(self._cache.tree.root, {r: match.node for r, match in matches.items()})
        elif policy == "lpm":
            requests.sort(key=lambda r: math.inf if r in last else -cached[r])
        elif policy == "shortest-prefill-first":
            requests.sort(key=lambda r: (r in last, max(1, r.known_tokens - cached[r]), entered[r].rank))
        else:
            requests.sort(key=lambda r: (r in last, -self._response_ratio(r, cached[r]), r.order))

    def _response_ratio(self, request: Request, cached_tokens: int) -> float:
        """Tokens prefilled while it waited, per token it still has to prefill."""
        uncached = request.prompt_tokens - cached_tokens
        if uncached <= 0:
            return math.inf
        return (self.prefill_tokens - self._entered[request].prefill_tokens) / uncached

    def _matches(self) -> tuple[dict[Request, Match], set[Request]]:
        """What each finds cached, and who comes last because a request before it will fill the cache for it."""
        matches: dict[Request, Match] = {}
        last: set[Request] = set()
        others = RadixTree()
        for request in self.requests:
            matches[request] = self._match(request)
            if matches[request].tokens <= SHARED_TOKENS:
                runs = self._cache.runs(request)
                if others.match(runs, request.known_tokens).tokens >= SHARED_TOKENS:
                    last.add(request)
                else:
                    others.insert(runs, request.known_tokens)
        return matches, last

    def _match(self, request: Request) -> Match:
        return self._cache.match(request, request.known_tokens)

    def _cached(self, request: Request, match: Match) -> int:
        return min(match.tokens, request.known_tokens - 1)


def max_new_tokens(request: Request) -> int:
    """What the engine lets a request generate (max_new_tokens)."""
    return request.most_tokens - request.prompt_tokens


def _depth_first(root: Node, ends: dict[Request, Node]) -> list[Request]:
    """Requests by where their cached prefix ends: subtrees with more requests first, below a node before at it."""
    at: dict[Node, list[Request]] = {}
    for request, node in ends.items():
        at.setdefault(node, []).append(request)
    preorder: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        preorder.append(node)
        stack.extend(node.children.values())
    weights: dict[Node, int] = {}
    for node in reversed(preorder):
        weights[node] = len(at.get(node, ())) + sum(weights[child] for child in node.children.values())
    order: list[Request] = []
    visits = [(root, False)]
    while visits:
        node, below_done = visits.pop()
        if below_done:
            order += at.get(node, ())
            continue
        visits.append((node, True))
        heaviest_first = sorted(node.children.values(), key=lambda child: -weights[child])
        visits.extend((child, False) for child in reversed(heaviest_first))
    return order
