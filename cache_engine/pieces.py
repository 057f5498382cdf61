"""How a read is cut into requests: pure.

A request asks for whole blocks of at most one span, or lies inside one block: these are the two shapes that
a worker can vouch for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cache_engine import wire
from cache_engine.block import BLOCK, SPAN, spans_of

LEAST = 4 * BLOCK
"""Bytes of a request at the least where a read is shared by several connections."""


def pieces_of(start: int, stop: int, size: int, most: int) -> list[tuple[int, int]]:
    """[start, stop) of an object of `size` bytes as requests in order, each of at most `most` bytes (whole blocks)."""
    pieces: list[tuple[int, int]] = []
    head = min(stop, -(-start // BLOCK) * BLOCK)
    if start < head:
        pieces.append((start, head))
    tail = stop if stop == size else max(head, stop // BLOCK * BLOCK)
    for _, first, last in spans_of(head, tail):
        pieces.extend((at, min(last, at + most)) for at in range(first, last, most))
    if tail < stop:
        pieces.append((tail, stop))
    return pieces


def piece_size(length: int, connections: int, piece: int) -> int:
    """Bytes of one request of a read of `length`: whole spans where one connection reads, else a share of the work.

    Between 4 MiB, below which first-byte time costs more than the parallel read wins, and `piece`.
    """
    if connections == 1:
        return SPAN
    share = -(-length // connections // LEAST) * LEAST
    return max(LEAST, min(piece, share))


def batches_of(items: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """(index, size) of small files -> lists of indices, each a batch of at most 64 files and 4 MiB."""
    batch: list[int] = []
    weight = 0
    for index, size in items:
        if batch and (len(batch) == wire.BATCH_FILES or weight + size > wire.BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append(index)
        weight += size
    if batch:
        yield batch
