"""Receive buffers: reused, but never while an object refers to them."""

from __future__ import annotations

import threading

from kohort.transport import BufferLease, BufferPool
from kohort.transport.connection._pool import IDLE_SECONDS

SIZE = 200_000


def taken(pool: BufferPool, size: int = SIZE) -> BufferLease:
    """Return a lease from the pool, which has a free buffer."""
    lease = pool.reuse(size)
    assert lease is not None
    return lease


def test_a_released_buffer_is_used_again() -> None:
    pool = BufferPool()
    lease = pool.allocate(SIZE)
    lease.view[:5] = b"hello"
    assert len(lease.view) >= SIZE
    lease.release()
    assert bytes(taken(pool).view[:5]) == b"hello"
    assert pool.reuse(SIZE) is None


def test_a_buffer_that_is_leased_is_not_given_out_again() -> None:
    pool = BufferPool()
    lease = pool.allocate(SIZE)
    assert pool.reuse(SIZE) is None
    lease.release()
    assert taken(pool) is not None


def test_released_buffer_with_a_live_view_is_not_reused() -> None:
    pool = BufferPool()
    lease = pool.allocate(SIZE)
    lease.view[:4] = b"mine"
    seen = lease.view[:4]
    lease.release()
    assert pool.reuse(SIZE) is None
    assert bytes(seen) == b"mine"
    del seen
    assert pool.reuse(SIZE) is not None


def test_releasing_twice_counts_once() -> None:
    pool = BufferPool()
    lease = pool.allocate(SIZE)
    lease.release()
    lease.release()
    first = pool.reuse(SIZE)
    assert first is not None
    assert pool.reuse(SIZE) is None


def test_slightly_larger_buffer_is_reused_and_much_larger_is_not() -> None:
    pool = BufferPool()
    pool.allocate(1 << 20).release()
    assert pool.reuse(1 << 16) is None
    assert len(taken(pool, 1 << 19).view) == 1 << 20


def test_free_buffers_are_bounded() -> None:
    pool = BufferPool(max_free_bytes=1 << 20)
    for lease in [pool.allocate(SIZE) for _ in range(10)]:
        lease.release()
    free = pool.free_bytes
    assert (1 << 20) - 2 * SIZE < free <= 1 << 20
    pool.allocate(1 << 24).release()
    assert pool.free_bytes == free


def test_a_buffer_is_hardly_larger_than_what_it_was_made_for() -> None:
    for size in (1, 1 << 16, (1 << 16) + 1, 10_000_000, (1 << 24) + 1):
        assert size <= len(BufferPool().allocate(size).view) <= max(1 << 16, 1.25 * size)


def test_buffers_of_sizes_that_nobody_needs_make_room() -> None:
    pool = BufferPool(max_free_bytes=1 << 20)
    for lease in [pool.allocate(1 << 16) for _ in range(16)]:
        lease.release()
    pool.allocate(1 << 20).release()
    assert len(taken(pool, 1 << 20).view) == 1 << 20
    assert pool.free_bytes == 0


def test_leases_may_be_released_from_other_threads() -> None:
    pool = BufferPool()
    clashes = []

    def work(mark: bytes) -> None:
        for _ in range(300):
            lease = pool.reuse(SIZE) or pool.allocate(SIZE)
            lease.view[:1] = mark
            if bytes(lease.view[:1]) != mark:
                clashes.append(mark)
            lease.release()

    threads = [threading.Thread(target=work, args=(bytes([index]),)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert pool.free_bytes <= 4 * (1 << 18)


def test_trim_frees_buffers_that_were_idle() -> None:
    pool = BufferPool()
    old, young = pool.allocate(SIZE), pool.allocate(SIZE)
    old.release()
    pool.trim(100.0)
    young.release()
    pool.trim(100.0 + IDLE_SECONDS / 2)
    both = pool.free_bytes
    pool.trim(100.0 + IDLE_SECONDS)
    assert pool.free_bytes == both / 2
    pool.trim(100.0 + 2 * IDLE_SECONDS)
    assert pool.free_bytes == 0
    assert pool.reuse(SIZE) is None


def test_trim_keeps_buffers_that_are_in_use() -> None:
    pool = BufferPool()
    pool.allocate(SIZE).release()
    for turn in range(10):
        lease = taken(pool)
        pool.trim(turn * IDLE_SECONDS)
        lease.release()
        pool.trim(turn * IDLE_SECONDS + 1)
    assert pool.free_bytes
