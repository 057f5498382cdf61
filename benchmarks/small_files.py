"""How fast are 20,000 files of 16 to 128 KB: warm over HTTP, warm from local cells, and cold?

Native is os.open + os.read + os.close of the very files, in one thread. The warm rows read all of them with
`read_many`; fsspec's `filecache` reads its own warm copies. Cold: one seeded sample a round that nobody has read yet,
from an S3 store with 20 ms to the first byte and 60 MB/s a connection; every peer in its fastest public way (`cat` of
a list) with an empty cache.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.harness import Options, Question, Row, at_least
from benchmarks.objectstore import StoreProcess
from benchmarks.scene import ENVIRONMENT, KEYS, dataset, scratch, small_files
from cache_engine.client import Client
from examples.stage import Embedded

SAMPLE = 2_000
CONNECTIONS = 4
"""Requests in flight where the files are warm; more only queue for two cores."""
COLD_CONNECTIONS = 32
Read = Callable[[Sequence[str]], Any]


def questions(options: Options) -> Iterator[Question | Row]:
    count = 4_000 if options.quick else 20_000
    with scratch("small") as directory, ExitStack() as stack:
        root = directory / "root" / "bucket" / "small"
        names = sorted(small_files(root, count))
        embedded = stack.enter_context(
            Embedded(directory / "home", 3, "--cache-size", "2GiB", env=ENVIRONMENT, out=sys.stderr)
        )
        store = stack.enter_context(
            StoreProcess("s3", root=directory / "root", credentials=KEYS, first_byte=0.020, rate=60e6)
        )
        yield from cold(embedded, store, names, directory, options, stack)
        yield from warm(embedded, root, names, directory, stack)


def rate(read: Read, names: Sequence[str]) -> Callable[[], float]:
    """An arm: files a second."""

    def arm() -> float:
        began = time.perf_counter()
        read(names)
        return len(names) / (time.perf_counter() - began)

    return arm


def native(root: Path, sizes: Mapping[str, int]) -> Read:
    """Open, one read of exactly the file's size, close."""
    prefix = f"{root}/"

    def read(names: Sequence[str]) -> list[bytes]:
        bodies = []
        for name in names:
            fd = os.open(prefix + name, os.O_RDONLY)
            bodies.append(os.read(fd, sizes[name]))
            os.close(fd)
        return bodies

    return read


def warm(
    embedded: Embedded, root: Path, names: Sequence[str], directory: Path, stack: ExitStack
) -> Iterator[Question | Row]:
    embedded.apply(dataset("warm", root.as_uri()))
    embedded.forebay("warm", "warm")
    over_http = stack.enter_context(embedded.open("warm", CONNECTIONS, local=False))
    local = stack.enter_context(embedded.open("warm", CONNECTIONS))
    plain = native(root, {name: (root / name).stat().st_size for name in names})
    assert over_http.read_many(names[:500]) == plain(names[:500]) == local.read_many(names[:500])
    notes = {"files": len(names), "connections": CONNECTIONS}
    yield Question(
        "small_files: warm over HTTP with CRC",
        "files/s",
        {"forebay": rate(over_http.read_many, names), "native": rate(plain, names)},
        at_least(0.4, of="native"),
        notes=notes,
    )
    stats = over_http.stats()
    assert stats.bytes["cell"] == stats.total(), stats
    yield Question(
        "small_files_local: cells read directly",
        "files/s",
        {"forebay": rate(local.read_many, names), "native": rate(plain, names)},
        at_least(0.7, of="native"),
        notes=notes,
    )
    assert local.stats().bytes["local"] == local.stats().total(), local.stats()
    yield from against_filecache(over_http, local, root, names[: len(names) // 5], directory)


def against_filecache(
    over_http: Client, local: Client, root: Path, sample: Sequence[str], directory: Path
) -> Iterator[Question | Row]:
    """The same files out of fsspec's own warm copies on this machine: by `cat` of the list, and opened one by one."""
    filecache = _fsspec("filecache", directory / "filecache", {"target_protocol": "file"})
    paths = [f"{root}/{name}" for name in sample]
    filecache.cat(paths)

    def one_by_one(names: Sequence[str]) -> None:
        for name in names:
            with filecache.open(name, "rb") as file:
                file.read()

    arms = {"cat": rate(filecache.cat, paths), "open": rate(one_by_one, paths)}
    for what, client in (("over HTTP", over_http), ("from local cells", local)):
        for how, arm in arms.items():
            yield Question(
                f"small_files: warm {what}, against filecache's local copies by {how}",
                "files/s",
                {"forebay": rate(client.read_many, sample), "filecache": arm},
                at_least(2, of="filecache"),
                notes={"files": len(sample), "connections": CONNECTIONS},
            )


def cold(
    embedded: Embedded, store: StoreProcess, names: Sequence[str], directory: Path, options: Options, stack: ExitStack
) -> Iterator[Question | Row]:
    embedded.apply(dataset("cold", "s3://bucket/small", {"endpoint": store.url, "region": "us-east-1"}, keys=True))
    client: Client = stack.enter_context(embedded.open("cold", COLD_CONNECTIONS, local=False, source=False))
    size = min(SAMPLE, len(names) // (options.rounds + 1))
    shuffled = random.Random(20).sample(list(names), len(names))
    samples = [sorted(shuffled[n * size : (n + 1) * size]) for n in range(options.rounds)]
    ours: Iterator[Sequence[str]] = iter(samples)
    arms = {"forebay": lambda: rate(client.read_many, next(ours))()}
    for protocol in ("filecache", "blockcache"):
        arms[protocol] = _fsspec_cold(protocol, directory, store.url, samples)
    for peer in ("filecache", "blockcache"):
        yield_arms = {"forebay": arms["forebay"], peer: arms[peer]}
        ours = iter(_again(samples, peer))
        yield Question(
            f"small_files: cold, against fsspec's {peer} over s3fs",
            "files/s",
            yield_arms,
            at_least(5, of=peer),
            mirrored=False,
            rounds=max(1, options.rounds // 3) if peer == "filecache" else 1,  # blockcache: minutes a round
            notes={"files": size, "connections": COLD_CONNECTIONS, "peer": "cat of the list"},
        )


def _again(samples: Sequence[Sequence[str]], peer: str) -> Sequence[Sequence[str]]:
    """The first half of the samples for one peer's question, the other for the other's: none is read twice."""
    half = len(samples) // 2
    return samples[:half] if peer == "filecache" else samples[half:]


def _fsspec(protocol: str, storage: Path, more: dict[str, Any]) -> Any:
    import fsspec

    return fsspec.filesystem(protocol, cache_storage=str(storage), skip_instance_cache=True, **more)


def _fsspec_cold(protocol: str, directory: Path, url: str, samples: Sequence[Sequence[str]]) -> Callable[[], float]:
    target = {"key": KEYS[0], "secret": KEYS[1], "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"}}
    turn = iter(samples)

    def arm() -> float:
        storage = directory / f"{protocol}-cold"
        shutil.rmtree(storage, ignore_errors=True)
        fs = _fsspec(protocol, storage, {"target_protocol": "s3", "target_options": target})
        paths = [f"bucket/small/{name}" for name in next(turn)]
        return rate(fs.cat, paths)()

    return arm


if __name__ == "__main__":
    sys.exit(report.run({"small_files": questions}))
