"""SGLang's radix tree and pool: what is matched, split, locked and evicted, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.cache.radix_cache import RadixCache
from sim.engine.cache.radix_tree import RadixTree
from sim.engine.cache.token_runs import Cursor, Run, request_runs
from sim.engine.request import Request
from sim.engine.sglang.scheduler import SglangSettings


def runs(*pieces):
    """Runs of a prompt of (segment, tokens) pieces, and of the answer behind it."""
    prompt = sum(tokens for _, tokens in pieces)
    return request_runs(Request("x", prompt, 1, order=0, prompt=pieces))


def sizes(tree):
    """Tokens of every node, parents before children, siblings in order of creation."""

    def below(node):
        return [(child.tokens, below(child)) for child in node.children.values()]

    return below(tree.root)


def test_a_cursor_reads_across_pieces():
    cursor = Cursor(runs(("a", 3), ("b", 2)))
    cursor.skip(2)
    assert cursor.peek(4) == (Run("a", 2, 1), Run("b", 0, 2), Run("o:x", 0, 1))
    cursor.skip(1)
    assert cursor.peek(1) == (Run("b", 0, 1),)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ((("a", 3), ("b", 2)), 5),
        ((("a", 3), ("b", 1), ("c", 1)), 4),
        ((("a", 4),), 3),
        ((("a", 2), ("b", 2)), 2),
        ((("b", 2),), 0),
    ],
)
def test_what_two_token_sequences_have_in_common(other, same):
    """Against aaabb: a fourth token of segment a is another token than the first of b."""
    assert Cursor(runs(("a", 3), ("b", 2))).common(Cursor(runs(*other)).peek(sum(n for _, n in other)), 5) == same


def test_a_match_is_the_longest_cached_prefix():
    tree = RadixTree()
    tree.insert(runs(("s", 10), ("u", 5)), 15)
    assert tree.match(runs(("s", 10), ("u", 5)), 15).tokens == 15
    assert tree.match(runs(("s", 10), ("u", 5)), 12).tokens == 12
    assert tree.match(runs(("s", 10), ("v", 5)), 15).tokens == 10
    assert (
        tree.match(
            runs(
                ("s", 20),
            ),
            20,
        ).tokens
        == 10
    )
    assert tree.match(runs(("v", 5)), 5) == (tree.root, 0)


def test_where_two_prompts_part_a_node_is_split():
    """15 tokens are one node; a second prompt shares 10: 10 with the children 5 and 3."""
    tree = RadixTree()
    tree.insert(runs(("s", 10), ("u", 5)), 15)
    assert sizes(tree) == [(15, [])]
    assert tree.insert(runs(("s", 10), ("v", 3)), 13).tokens == 10
    assert sizes(tree) == [(10, [(5, []), (3, [])])]
    assert (tree.evictable_tokens, tree.locked_tokens) == (18, 0)


def test_only_whole_pages_are_cached_and_matched():
    """Pages of 4: of 15 tokens 12 are cached; a prompt that shares 10 shares 8."""
    tree = RadixTree(4)
    tree.insert(runs(("s", 10), ("u", 5)), 15)
    assert tree.tokens == 12
    assert tree.match(runs(("s", 10), ("v", 5)), 15).tokens == 8
    assert tree.match(runs(("s", 3), ("v", 5)), 8).tokens == 0
    assert sizes(tree) == [(8, [(4, [])])]


def test_eviction_takes_the_least_recently_used_leaf_whole():
    """Leaves of 6, 5 and 4; the 6 is used again, so to free 3 the 5 goes, and to free 5 more the 4 and the 6."""
    tree = RadixTree()
    for segment, tokens in (("a", 6), ("b", 5), ("c", 4)):
        tree.insert(runs((segment, tokens)), tokens)
    tree.match(runs(("a", 6)), 6)
    assert tree.evict(3) == 5
    assert sizes(tree) == [(6, []), (4, [])]
    assert tree.evict(5) == 10
    assert (tree.evict(1), tree.tokens, sizes(tree)) == (0, 0, [])


def test_a_parent_goes_after_its_children():
    tree = RadixTree()
    tree.insert(runs(("s", 10), ("u", 5)), 15)
    tree.insert(runs(("s", 10), ("v", 3)), 13)
    assert [tree.evict(1) for _ in range(4)] == [5, 3, 10, 0]


def test_locks_keep_a_whole_path():
    """The path of 10 + 5 is locked: 3 can be evicted, the rest only when it is unlocked."""
    tree = RadixTree()
    end = tree.insert(runs(("s", 10), ("u", 5)), 15).node
    tree.lock(end)
    tree.insert(runs(("s", 10), ("v", 3)), 13)
    assert (tree.evictable_tokens, tree.locked_tokens) == (3, 15)
    assert tree.evict(100) == 3
    tree.unlock(end)
    assert (tree.evictable_tokens, tree.locked_tokens) == (15, 0)
    assert tree.evict(1) == 5


def test_a_locked_node_that_is_split_stays_locked_on_both_sides():
    tree = RadixTree()
    end = tree.insert(runs(("s", 10)), 10).node
    tree.lock(end)
    head = tree.match(runs(("s", 4)), 4).node
    assert (head.tokens, head.locks, end.tokens, end.locks) == (4, 1, 6, 1)
    tree.unlock(end)
    assert (head.locks, tree.evictable_tokens) == (0, 10)


def test_the_order_of_eviction_is_kept_through_many_uses():
    """Out-of-date entries of the heap are dropped without loss: after 2000 uses the order is that of the last ones."""
    tree = RadixTree()
    names = [f"s{i}" for i in range(10)]
    for use in range(2000):
        tree.insert(runs((names[use * 7 % 10], 2)), 2)
    assert len(tree._leaves) < 200
    order = []
    while tree.tokens:
        before = {key[0].segment for key in tree.root.children}
        tree.evict(1)
        order += before - {key[0].segment for key in tree.root.children}
    assert order == [names[use * 7 % 10] for use in range(1990, 2000)]


PROMPTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6)), min_size=1, max_size=4)


@given(st.sampled_from([1, 3]), st.lists(PROMPTS, min_size=1, max_size=8), PROMPTS)
def test_a_match_is_what_comparing_token_by_token_gives(page, cached, wanted):
    def tokens(pieces):
        return [(segment, k) for segment, length in pieces for k in range(length)]

    tree = RadixTree(page)
    for pieces in cached:
        tree.insert(runs(*pieces), len(tokens(pieces)))
    best, target = 0, tokens(wanted)
    for pieces in cached:
        whole = tokens(pieces)[: len(tokens(pieces)) // page * page]
        same = next(
            (i for i, (a, b) in enumerate(zip(whole, target, strict=False)) if a != b), min(len(whole), len(target))
        )
        best = max(best, same // page * page)
    assert tree.match(runs(*wanted), len(target)).tokens == best
    pages = {tuple(tokens(p)[:end]) for p in cached for end in range(page, len(tokens(p)) + 1, page)}
    assert tree.tokens == len(pages) * page, "every page is cached once"


def pool(pages, **settings):
    small = {"max_batched_tokens": 64, "max_sequences": 8, "max_model_len": 256}
    return RadixCache(SglangSettings(**small, kv_blocks=pages, **settings))


def started(cache, name, *pieces, output=5):
    """A request with all its prompt computed; (request, hit)."""
    prompt = sum(tokens for _, tokens in pieces)
    request = Request(name, prompt, output, order=0, prompt=pieces)
    hit = cache.hold(request)
    cache.extend(request, prompt)
    return request, hit


def counts(cache):
    """(free, cached, private) pages."""
    private = sum(held.private_pages for held in cache.held.values())
    return cache.free_pages, cache.tree.tokens // cache.page_tokens, private


def test_pages_are_private_until_a_checkpoint():
    cache = pool(30)
    a, _ = started(cache, "a", ("s", 10))
    assert counts(cache) == (20, 0, 10)
    cache.checkpoint(a, 10)
    assert counts(cache) == (20, 10, 0)
    assert (cache.used_pages, cache.available_tokens) == (10, 20)
    cache.release(a)
    assert (counts(cache), cache.used_pages, cache.available_tokens) == ((20, 10, 0), 0, 30)


def test_the_last_token_of_a_cached_prompt_is_computed_anew():
    cache = pool(30)
    a, _ = started(cache, "a", ("s", 10))
    cache.checkpoint(a, 10)
    assert started(cache, "b", ("s", 10))[1] == 9


def test_copies_of_what_is_cached_already_are_freed():
    """a and b compute the same 10 tokens, 20 pages; b's ten are free after its checkpoint, and it shares a's."""
    cache = pool(30)
    a, _ = started(cache, "a", ("s", 10))
    b, _ = started(cache, "b", ("s", 10))
    cache.checkpoint(a, 10)
    assert counts(cache) == (10, 10, 10)
    cache.checkpoint(b, 10)
    assert counts(cache) == (20, 10, 0)
    cache.release(a)
    assert cache.available_tokens == 20, "b still holds them"


def test_a_page_that_is_not_full_stays_private():
    """Pages of 4: ten tokens take 3 pages, of which 2 are cached; the third is free after the end."""
    cache = pool(10, block_tokens=4)
    a, _ = started(cache, "a", ("s", 10))
    cache.checkpoint(a, 10)
    assert counts(cache) == (7, 2, 1)
    cache.extend(a, 12)
    assert counts(cache) == (7, 2, 1)
    cache.extend(a, 13)
    assert counts(cache) == (6, 2, 2)
    cache.release(a)
    assert counts(cache) == (8, 2, 0)


def test_an_answer_can_be_evicted_without_its_prompt():
    """10 + 4 tokens are cached in two nodes: to free one page of a full pool the 4 of the answer go."""
    cache = pool(14)
    a, _ = started(cache, "a", ("s", 10))
    cache.extend(a, 14)
    cache.checkpoint(a, 14)
    cache.release(a)
    assert sizes(cache.tree) == [(10, [(4, [])])]
    cache.make_free(1)
    assert counts(cache) == (4, 10, 0)


def test_what_is_evicted_is_no_more_than_needed():
    """Of 4 + 6 cached and 2 free pages, three are wanted: the older node of 4 goes."""
    cache = pool(12)
    for segment, tokens in (("a", 4), ("b", 6)):
        request, _ = started(cache, segment, (segment, tokens))
        cache.checkpoint(request, tokens)
        cache.release(request)
    cache.make_free(2)
    assert counts(cache) == (2, 10, 0)
    started(cache, "c", ("c", 3))
    assert counts(cache) == (3, 6, 3)


def test_without_prefix_caching_nothing_is_kept():
    cache = pool(30, prefix_caching=False)
    a, _ = started(cache, "a", ("s", 10))
    cache.checkpoint(a, 10)
    assert counts(cache) == (20, 0, 10)
    cache.release(a)
    assert counts(cache) == (30, 0, 0)
