"""Does a manifest carry millions of files? 1,000,000 of them: keys of 40 bytes, 32-hex ETags, 1,000 rows a page.

The listing lies in memory as the pages that a source gives, so what is timed is ours alone. Building runs in a
process of its own, which reports what its memory grew by beyond the pages. No peer: the goals are absolute.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arms import Meter, in_child
from benchmarks.harness import Options, Question, Row, at_least, at_most, row
from benchmarks.report import run
from cache_engine.manifest import Manifest
from cache_engine.manifest_builder import ManifestBuilder
from cache_engine.manifest_diff import difference
from cache_engine.source import Page

PAGE = 1000
LOOKUPS = 20_000
_SCRAMBLE = 0x9E3779B97F4A7C15F39CC0605CEDC835  # spreads the ETags over all 128 bits


def questions(options: Options) -> Iterator[Question | Row]:
    files = 100_000 if options.quick else 1_000_000
    notes = {"files": files, "page": PAGE, "key_bytes": len(key(0))}
    with tempfile.TemporaryDirectory(prefix="manifest-") as directory:
        path, other = f"{directory}/manifest", f"{directory}/other"
        digests = set()
        for order in ("sorted", "shuffled"):
            builds = [build(files, order, path) for _ in range(max(2, options.rounds // 3))]
            digests |= {done["digest"] for done in builds}
            yield from build_rows(order, builds, notes)
        digests.add(build(files, "sorted", path, page=777)["digest"])
        yield row("manifest: digests of sorted, shuffled and other pages", "", len(digests), at_most(1), notes=notes)
        yield row("manifest: on disk", "bytes/file", os.path.getsize(path) / files, at_most(150), notes=notes)
        yield Question("manifest: open", "ms", {"open": lambda: opening(path)}, at_most(10), notes=notes)
        manifest = Manifest.open(path)
        names = random.Random(1).choices(range(files), k=LOOKUPS)
        yield Question("manifest: look-up", "us", {"find": lambda: finding(manifest, names)}, at_most(20), notes=notes)
        arms = {"list": lambda: listing(manifest)}
        yield Question("manifest: list every directory", "ms/1,000 entries", arms, at_most(1), notes=notes)
        yield Question("manifest: list one flat directory", "ms/1,000 entries", flat_arm(directory), at_most(1))
        build(files, "other", other)
        changed = Manifest.open(other)
        arms = {"difference": lambda: differing(manifest, changed)}
        yield Question("manifest: difference of two", "s", arms, at_most(3), notes={**notes, "changed": "1 % each"})
        yield Question("manifest: verify the digest", "s", {"verify": lambda: verifying(manifest)}, notes=notes)


def key(number: int) -> bytes:
    """40 bytes, in directories of 1,000 files, ten of them in one above."""
    return b"train/shard-%04d/part-%02d/img-%06d.jpeg" % (number // 10_000, number // 1_000 % 10, number)


def pages(files: int, order: str, page: int) -> Iterator[Page]:
    numbers = list(range(files))
    if order == "shuffled":
        random.Random(7).shuffle(numbers)
    if order == "other":
        numbers = [number for number in numbers if number % 100] + [files + at for at in range(files // 100)]
    for start in range(0, files, page):
        some = numbers[start : start + page]
        versions = [f'etag:"{(n + (order == "other" and n % 100 == 1)) * _SCRAMBLE % 2**128:032x}"' for n in some]
        yield Page([key(n) for n in some], [n * 7919 for n in some], versions, [10**18 + n for n in some])


def build(files: int, order: str, path: str, page: int = PAGE) -> dict[str, Any]:
    """What one build measured, in a fresh process."""
    arguments = {"files": files, "order": order, "path": path, "page": page}
    value: dict[str, Any] = in_child("benchmarks.manifest:build_arm", arguments).value
    return value


def build_arm(files: int, order: str, path: str, page: int) -> dict[str, Any]:
    """Build from pages in memory, timed; then from pages as they come, for the memory that it takes."""
    held = list(pages(files, order, page))
    with Meter() as meter:
        manifest = building(held, path)
    del held
    return {"rate": files / meter.seconds, "cpu": meter.cpu, "digest": manifest.digest}


def memory_arm(files: int, order: str, path: str, page: int) -> int:
    """Bytes that the peak grew by while building from pages that are made one at a time."""
    listing = pages(files, order, page)
    builder = ManifestBuilder([("s3://bucket", "")])
    builder.add(0, next(listing))
    _reset_peak()
    before = _memory("VmRSS")
    for each in listing:
        builder.add(0, each)
    builder.write(path)
    return _memory("VmHWM") - before


def building(listing: Sequence[Page], path: str) -> Manifest:
    builder = ManifestBuilder([("s3://bucket", "")])
    for each in listing:
        builder.add(0, each)
    return builder.write(path)


def build_rows(order: str, builds: Sequence[dict[str, Any]], notes: dict[str, Any]) -> Iterator[Row]:
    rates = sorted(done["rate"] for done in builds)
    median = rates[len(rates) // 2]
    goal = at_least(500_000) if order == "sorted" else None  # stores list in key order
    yield row(f"manifest: build, {order} listing", "files/s", median, goal, notes={**notes, "runs": len(rates)})
    with tempfile.TemporaryDirectory(prefix="manifest-") as directory:
        arguments = {"files": notes["files"], "order": order, "path": f"{directory}/manifest", "page": PAGE}
        grown = in_child("benchmarks.manifest:memory_arm", arguments).value
    yield row(f"manifest: memory of a build, {order}", "bytes/file", grown / notes["files"], notes=notes)


def opening(path: str) -> float:
    with Meter() as meter:
        Manifest.open(path)
    return meter.seconds * 1e3


def finding(manifest: Manifest, numbers: Sequence[int]) -> float:
    paths = [key(number) for number in numbers]
    with Meter() as meter:
        for path in paths:
            manifest.find(path)
    return meter.seconds * 1e6 / len(paths)


def listing(manifest: Manifest) -> float:
    """Milliseconds for 1,000 entries, over the whole tree."""
    entries, waiting = 0, [b""]
    with Meter() as meter:
        while waiting:
            path = waiting.pop()
            found = manifest.list(path)
            entries += len(found.dirs) + len(found.files)
            waiting += [path + b"/" + name if path else name for name in found.dirs]
    return meter.seconds * 1e6 / entries


def flat_arm(directory: str) -> dict[str, Any]:
    """One directory with 90,000 files and 10,000 directories between them, so that its files are 10,000 runs."""
    keys = [b"flat/%06d" % n + (b"/x" if n % 10 == 0 else b"") for n in range(100_000)]
    count = len(keys)
    page = Page(keys, [1] * count, ["mtime:1"] * count, [1] * count)
    manifest = building([page], f"{directory}/flat")
    return {"list": lambda: listing_once(manifest, b"flat")}


def listing_once(manifest: Manifest, path: bytes) -> float:
    with Meter() as meter:
        found = manifest.list(path)
    return meter.seconds * 1e6 / (len(found.dirs) + len(found.files))


def differing(old: Manifest, new: Manifest) -> float:
    with Meter() as meter:
        found = difference(old, new)
    assert len(found.added) == len(found.gone) == len(found.changed) == old.files // 100, found
    return meter.seconds


def verifying(manifest: Manifest) -> float:
    with Meter() as meter:
        manifest.verify()
    return meter.seconds


def _memory(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    sys.exit(run({"manifest": questions}))
