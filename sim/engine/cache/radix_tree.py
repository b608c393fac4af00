"""A radix tree over what requests have computed: which prefixes are cached, which are locked, which goes next.

Mirrors SGLang's ``RadixCache`` (0.5.23): a node holds one or more whole pages and is split where two requests part;
locking a node locks its path; eviction takes whole unlocked leaves, least recently used first.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from sim.engine.cache.token_runs import Cursor, Runs


class Node:
    """Tokens that follow the parent's; ``locks``: how many running requests have them in their prefix."""

    __slots__ = ("children", "last_used", "locks", "parent", "runs", "tokens")

    def __init__(self, parent: Node | None, runs: Runs, tokens: int) -> None:
        self.parent = parent
        self.runs = runs
        self.tokens = tokens
        self.children: dict[Runs, Node] = {}
        """By the first page of each."""
        self.locks = 0
        self.last_used = 0


class Match(NamedTuple):
    """A cached prefix: the node it ends with, and its length."""

    node: Node
    tokens: int


class RadixTree:
    """Cached prefixes at page granularity. Sizes are in tokens, always whole pages."""

    def __init__(self, page_tokens: int = 1) -> None:
        self.page_tokens = page_tokens
        self.root = Node(None, (), 0)
        self.evictable_tokens = 0
        """In nodes that no running request has locked."""
        self.locked_tokens = 0
        self._nodes = 0
        self._clock = 0
        self._leaves: list[tuple[int, int, Node]] = []
        """Heap of unlocked leaves by (last use, offer); entries that are out of date are skipped."""
        self._offers = 0

    @property
    def tokens(self) -> int:
        """All that is cached."""
        return self.evictable_tokens + self.locked_tokens

    def match(self, runs: Runs, tokens: int) -> Match:
        """The longest cached prefix of the first ``tokens`` tokens, in whole pages.

        The whole path counts as used now, and a node that is matched in part is split there.
        """
        return self._walk(Cursor(runs), self._whole_pages(tokens))

    def cached_tokens(self, runs: Runs, tokens: int) -> int:
        """Length of what ``match`` would find; nothing counts as used, and nothing is split."""
        cursor, node, matched, tokens = Cursor(runs), self.root, 0, self._whole_pages(tokens)
        while matched < tokens:
            child = node.children.get(cursor.peek(self.page_tokens))
            if child is None:
                break
            common = self._whole_pages(cursor.common(child.runs, tokens - matched))
            cursor.skip(common)
            matched += common
            if common < child.tokens:
                break
            node = child
        return matched

    def insert(self, runs: Runs, tokens: int) -> Match:
        """Cache the whole pages of the first ``tokens`` tokens; returns their last node, and what was there before."""
        cursor = Cursor(runs)
        tokens = self._whole_pages(tokens)
        node, present = self._walk(cursor, tokens)
        if present < tokens:
            added = cursor.peek(tokens - present)
            leaf = Node(node, added, tokens - present)
            self._nodes += 1
            node.children[cursor.peek(self.page_tokens)] = leaf
            leaf.last_used = self._clock
            self.evictable_tokens += leaf.tokens
            self._offer(leaf)
            node = leaf
        return Match(node, present)

    def lock(self, node: Node) -> None:
        """A running request needs this node and its path."""
        at: Node | None = node
        while at is not None and at is not self.root:
            if not at.locks:
                self.evictable_tokens -= at.tokens
                self.locked_tokens += at.tokens
            at.locks += 1
            at = at.parent

    def unlock(self, node: Node) -> None:
        """A running request needs this node and its path no more."""
        at: Node | None = node
        while at is not None and at is not self.root:
            at.locks -= 1
            if not at.locks:
                self.evictable_tokens += at.tokens
                self.locked_tokens -= at.tokens
                self._offer(at)
            at = at.parent

    def evict(self, tokens: int) -> int:
        """Drop unlocked leaves until at least ``tokens`` are gone, or none is left; returns what is gone."""
        gone = 0
        while gone < tokens and self._leaves:
            last_used, _, node = heapq.heappop(self._leaves)
            parent = node.parent
            if parent is None or node.locks or node.children or node.last_used != last_used:
                continue
            del parent.children[Cursor(node.runs).peek(self.page_tokens)]
            node.parent = None
            self._nodes -= 1
            gone += node.tokens
            self.evictable_tokens -= node.tokens
            self._offer(parent)
        return gone

    def _whole_pages(self, tokens: int) -> int:
        return tokens // self.page_tokens * self.page_tokens

    def _walk(self, cursor: Cursor, tokens: int) -> Match:
        """Follow the tree as far as it agrees with what follows the cursor."""
        self._clock += 1
        node, matched = self.root, 0
        while matched < tokens:
            child = node.children.get(cursor.peek(self.page_tokens))
            if child is None:
                break
            child.last_used = self._clock
            self._offer(child)
            common = self._whole_pages(cursor.common(child.runs, tokens - matched))
            cursor.skip(common)
            matched += common
            if common < child.tokens:
                node = self._split(child, common)
                break
            node = child
        return Match(node, matched)

    def _split(self, child: Node, tokens: int) -> Node:
        """A new node takes the first ``tokens`` of a child, with its locks, and becomes its parent."""
        parent, cursor = child.parent, Cursor(child.runs)
        assert parent is not None, "only nodes below the root are split"
        head = Node(parent, cursor.peek(tokens), tokens)
        self._nodes += 1
        head.locks, head.last_used = child.locks, child.last_used
        parent.children[cursor.peek(self.page_tokens)] = head
        cursor.skip(tokens)
        head.children[cursor.peek(self.page_tokens)] = child
        child.parent = head
        child.tokens -= tokens
        child.runs = cursor.peek(child.tokens)
        return head

    def _offer(self, node: Node) -> None:
        """If it is an unlocked leaf it may be evicted, in the order of its last use."""
        if node.locks or node.children or node is self.root:
            return
        self._offers += 1
        heapq.heappush(self._leaves, (node.last_used, self._offers, node))
        if len(self._leaves) > 4 * self._nodes + 64:
            self._leaves = [entry for entry in self._leaves if entry[2].parent and entry[2].last_used == entry[0]]
            heapq.heapify(self._leaves)
