"""What the data-plane benchmarks stand on: memory to read into, files to read, and a Dataset over them.

Sources, caches and scratch files lie on tmpfs (/dev/shm) where there is one: the questions are about the wire, the
fills and the bookkeeping, and a disk that writes back meanwhile would answer another one.
"""

from __future__ import annotations

import mmap
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

MIB = 1 << 20
MEMORY = Path("/dev/shm")
KEYS = ("bench-id", "bench-secret")


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A directory on tmpfs, gone at the end."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=f"forebay-{name}-", dir=where) as directory:
        yield Path(directory)


def prefaulted(size: int) -> memoryview:
    """Anonymous memory, every page touched: first touch costs as much as the wire and is nobody's question."""
    view = memoryview(mmap.mmap(-1, size))
    for offset in range(0, size, mmap.PAGESIZE):
        view[offset] = 1
    return view


def large_file(path: Path, size: int) -> Path:
    """A file of random bytes that repeat every 64 MiB and a prime, so that no two blocks are equal by position."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = random.Random(size).randbytes(64 * MIB + 8191)
    with path.open("wb") as file:
        while (left := size - file.tell()) > 0:
            file.write(noise[:left])
    return path


def small_files(root: Path, count: int, seed: int = 7) -> dict[str, int]:
    """`count` files of 16 to 128 KB, 100 a directory; name -> bytes."""
    draw = random.Random(seed)
    noise = draw.randbytes(4 * MIB)
    sizes = {}
    for number in range(count):
        name = f"part-{number // 100:04d}/file-{number:06d}.bin"
        size = draw.randint(16_000, 128_000)
        at = draw.randrange(len(noise) - size)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise[at : at + size])
        sizes[name] = size
    return sizes


def dataset(name: str, url: str, options: Mapping[str, str] | None = None, keys: bool = False) -> str:
    """The YAML of a Dataset with one mount; `keys`: with the benchmark's credentials."""
    mount: dict[str, Any] = {"url": url, "options": dict(options or {})}
    if keys:
        mount["credentials"] = {
            "accessKeyId": {"env": "BENCH_KEY_ID"},
            "secretAccessKey": {"env": "BENCH_KEY_SECRET"},
        }
    return yaml.safe_dump(
        {
            "apiVersion": "data.forebay.io/v1alpha1",
            "kind": "Dataset",
            "metadata": {"name": name},
            "spec": {"mounts": [mount], "snapshot": {"refresh": "never"}},
        }
    )


ENVIRONMENT = {"BENCH_KEY_ID": KEYS[0], "BENCH_KEY_SECRET": KEYS[1]}
"""What an Embedded of a benchmark gets, so that the references above resolve."""
