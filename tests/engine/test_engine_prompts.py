"""Keys of KV blocks: equal exactly where all tokens up to the block's end are."""

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.cache.prompts import full_block_keys
from sim.engine.request import Request


def keys(prompt, blocks, block_tokens=4, name="r"):
    pieces = prompt if prompt is None else tuple(prompt)
    tokens = 8 if pieces is None else sum(length for _, length in pieces)
    return full_block_keys(Request(name, tokens, 1, order=0, prompt=pieces), block_tokens, blocks)[:blocks]


def test_equal_prefixes_have_equal_keys():
    a, b = keys([("s", 8), ("t", 4)], 3), keys([("s", 8), ("u", 4)], 3, name="other")
    assert a[:2] == b[:2]
    assert a[2] != b[2]


def test_the_length_of_a_segment_does_not_matter_inside_it():
    assert keys([("s", 8)], 2) == keys([("s", 400)], 2)


def test_keys_are_chained():
    """Equal blocks behind different ones have different keys, and so have equal blocks in another order."""
    assert keys([("s", 4), ("t", 4)], 2)[1] != keys([("u", 4), ("t", 4)], 2)[1]
    assert keys([("s", 4), ("t", 4)], 2)[0] != keys([("t", 4), ("s", 4)], 2)[0]


def test_a_mixed_block_is_chained_too():
    behind_s, behind_v = (keys([(first, 4), ("t", 2), ("u", 2)], 2) for first in "sv")
    assert behind_s[1] != behind_v[1]


def test_a_block_may_mix_pieces():
    """3 + 5 tokens: the first block holds (s: 3, t: 1), the second t's tokens 1 to 4."""
    base = keys([("s", 3), ("t", 5)], 2)
    assert base == keys([("s", 3), ("t", 9)], 2)
    assert base[0] != keys([("s", 3), ("u", 5)], 1)[0]
    assert base[0] != keys([("s", 2), ("t", 6)], 1)[0]


def test_a_block_of_many_small_pieces():
    pieces = [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    assert keys(pieces, 1) == keys([*pieces, ("e", 7)], 1)
    assert keys(pieces, 1) != keys(pieces[::-1], 1)


def test_an_empty_piece_holds_no_tokens():
    assert keys([("s", 3), ("none", 0), ("t", 5)], 2) == keys([("s", 3), ("t", 5)], 2)


def test_a_prompt_without_pieces_is_private():
    assert keys(None, 2, name="a") == keys(None, 2, name="a")
    assert set(keys(None, 2, name="a")).isdisjoint(keys(None, 2, name="b"))


def test_behind_the_prompt_comes_the_requests_own_output():
    """6 prompt tokens: what the next turn repeats of the answer has the same keys, another request's answer has not."""
    turn = keys([("s", 6)], 3, name="a")
    assert turn == keys([("s", 6), ("o:a", 6)], 3, name="next")
    assert turn[0] == keys([("s", 6)], 3, name="b")[0]
    assert turn[1:] != keys([("s", 6)], 3, name="b")[1:]


def test_keys_already_made_stay_when_more_are_asked_for():
    request = Request("a", 6, 20, order=0, prompt=(("s", 6),))
    first = list(full_block_keys(request, 4, 1))
    more = full_block_keys(request, 4, 5)
    assert more[:1] == first
    assert more[:5] == keys([("s", 6), ("o:a", 20)], 5, name="b")


PIECES = st.lists(st.tuples(st.sampled_from("st"), st.integers(1, 9)), min_size=1, max_size=5)


def tokens_of(pieces, count):
    return [(segment, index) for segment, length in pieces for index in range(length)][:count]


@given(PIECES, PIECES, st.integers(1, 5))
def test_keys_are_equal_exactly_where_tokens_are(a, b, block_tokens):
    """Against the tokens themselves, written out."""
    blocks = min(sum(length for _, length in pieces) for pieces in (a, b)) // block_tokens
    ends = [block_tokens * (block + 1) for block in range(blocks)]
    equal_tokens = [tokens_of(a, end) == tokens_of(b, end) for end in ends]
    pairs = zip(keys(a, blocks, block_tokens), keys(b, blocks, block_tokens), strict=True)
    assert [one == other for one, other in pairs] == equal_tokens
