"""The block pool by itself: copies of one key, and what taking a block evicts."""

from sim.engine.cache.blocks import BlockPool, unheld

KEY = 7


def test_of_several_copies_the_oldest_that_is_left_is_hit():
    """Blocks 0 to 2 hold the same tokens; each is freed and taken again, which evicts it."""
    pool = BlockPool(3, unhashed_first=True)
    blocks = pool.take(3)
    for block in blocks:
        pool.register(block, KEY)
    assert pool.cached(KEY) is blocks[0]
    for evicted, hit in ((0, 1), (2, 1), (1, None)):
        pool.give([blocks[evicted]])
        assert pool.take(1) == [blocks[evicted]]
        assert pool.cached(KEY) is (None if hit is None else blocks[hit])


def test_a_free_block_is_still_hit_until_it_is_taken():
    pool = BlockPool(2, unhashed_first=True)
    block, _ = pool.take(2)
    pool.register(block, KEY)
    pool.give([block])
    assert (pool.free, unheld([block]), pool.cached(KEY)) == (1, 1, block)
    pool.hold([block])
    assert (pool.free, unheld([block])) == (0, 0)


def test_a_shared_block_is_free_when_its_last_holder_gives_it_back():
    pool = BlockPool(1, unhashed_first=True)
    blocks = pool.take(1)
    pool.register(blocks[0], KEY)
    pool.hold(blocks)
    pool.give(blocks)
    assert pool.free == 0
    pool.give(blocks)
    assert (pool.free, pool.used) == (1, 0)
