"""A worker's own proof of what lies in a cell, for answers that a reader cannot check by whole blocks."""

from __future__ import annotations

import os

from crc32c import crc32c

from cache_engine.block import BLOCK, block_length
from cache_engine.errors import CorruptBlock
from cache_engine.lease import Lease


def read_block(lease: Lease, block: int) -> memoryview:
    """One block as it lies in the cell, unchecked. Raises CorruptBlock where the file is too short."""
    length = block_length(lease.obj.size, block)
    view = memoryview(bytearray(length))
    if os.preadv(lease.fd, [view], block * BLOCK) != length:
        raise CorruptBlock(f"cell {lease.cell_name[:8]} ends inside block {block}")
    return view


def proved(lease: Lease, block: int) -> memoryview:
    """One block with the CRC that its voucher names, or CorruptBlock; then the block is dropped."""
    view = read_block(lease, block)
    if [crc32c(view)] != lease.crcs(range(block, block + 1)):
        lease.discard(block)
        raise CorruptBlock(f"block {block} of cell {lease.cell_name[:8]} was damaged on this worker's disk; dropped")
    return view


def prove(lease: Lease, blocks: range) -> None:
    """All of the blocks; raises CorruptBlock at the first bad one."""
    for block in blocks:
        proved(lease, block)


def proved_piece(lease: Lease, start: int, stop: int) -> tuple[bytes, int]:
    """The bytes [start, stop) inside one block, cut from the proved block, and the CRC of exactly them."""
    block = start // BLOCK
    view = proved(lease, block)
    piece = bytes(view[start - block * BLOCK : stop - block * BLOCK])
    return piece, crc32c(piece)
