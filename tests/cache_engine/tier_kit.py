"""What the tests of the tier share: objects with known bytes, a plain way to fill and read, other real processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from cache_engine.block import BLOCK, ObjectId, block_count, block_length
from cache_engine.lease import Lease
from cache_engine.tier import DiskTier

ROOT = Path(__file__).parents[2]
BOOT = "boot-1"


def an_object(key: str, size: int, version: str = 'etag:"1"') -> ObjectId:
    return ObjectId("file:///somewhere", key.encode(), version, size)


def body(obj: ObjectId, block: int) -> memoryview:
    """The right bytes of a block, a function of the whole identity."""
    seed = f"{obj.cell_name}/{block}"
    return memoryview(random.Random(seed).randbytes(block_length(obj.size, block)))


def fill(
    tier: DiskTier, obj: ObjectId, blocks: Sequence[int] | None = None, *, label: str = "", near: bool = False
) -> bool:
    """Fetch into the tier what is missing, a block at a time, and vouch for it; False where a block found no room."""
    blocks = range(block_count(obj.size)) if blocks is None else blocks
    with tier.lease(obj, label=label, near=near) as lease:
        done = [put(lease, obj, block) for block in lease.missing(blocks)]
        lease.vouch()
    return all(done)


def put(lease: Lease, obj: ObjectId, block: int) -> bool:
    view = body(obj, block)
    return lease.reserve([block]) and lease.write(block, view, crc32c(view))


def held_blocks(tier: DiskTier, obj: ObjectId) -> list[int]:
    """The blocks that the tier offers, each with the right bytes (asserted)."""
    with tier.lease(obj) as lease:
        missing = set(lease.missing(range(block_count(obj.size))))
        held = [block for block in range(block_count(obj.size)) if block not in missing]
        for block in held:
            assert os.pread(lease.fd, block_length(obj.size, block), block * BLOCK) == body(obj, block)
    return held


def disk_bytes(directory: Path) -> int:
    """What the file system says that the cells and vouchers take."""
    total = 0
    for folder, _, names in os.walk(directory / "cells"):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def cell_path(directory: Path, obj: ObjectId) -> Path:
    return directory / "cells" / obj.cell_name[:2] / obj.cell_name


def voucher_path(directory: Path, obj: ObjectId) -> Path:
    return Path(f"{cell_path(directory, obj)}.voucher")


def flip_bit(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A real Python process that runs `code` with sys.argv[1:]; killed at the end if it still lives."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
