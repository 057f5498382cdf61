"""Copy files and trees of a Dataset to a local disk: what goes where (pure), then many copies at once.

Every file arrives whole or not at all (`export.py`). Nothing is written outside the target: shown names have no
`..`, and a directory of the target that is a link to somewhere else is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

from cache_engine import names
from cache_engine.block import BLOCK
from cache_engine.errors import AccessDenied, CacheEngineError
from cache_engine.export import export_file, write_file
from cache_engine.reading import OpenDataset
from cache_engine.tree import join, unshown, walk
from cache_engine.wire import BATCH_BYTES, BATCH_FILES

CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Copy:
    """One file: its exact key, its bytes, and where it goes."""

    key: bytes
    size: int
    target: str


@dataclass(slots=True)
class CopyPlan:
    """What to make and copy below `root`, and what cannot be."""

    root: str
    directories: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(path as shown, reason)"""

    @property
    def bytes(self) -> int:
        return sum(copy.size for copy in self.copies)


def plan_copy(client: OpenDataset, path: str, target: str, into: bool) -> CopyPlan:
    """A file or tree to `target`; with `into`, below the directory `target` under its own name.

    A tree whose path ends in a slash (or is the whole Dataset with one) has its content copied, not itself.
    Raises NotFound.
    """
    key = names.parse(path.rstrip("/"))
    manifest = client.manifest
    contents = path.endswith("/")
    name = names.show(key).rpartition("/")[2] or client.dataset
    place = os.path.join(target, name) if into and not contents else target
    if not manifest.is_dir(key):
        plan = CopyPlan(os.path.dirname(place) or ".")
        plan.copies.append(Copy(key, manifest.size(manifest.find(key)), place))
        return plan
    plan = CopyPlan(place)
    above = len(names.show(key))
    for directory, found in walk(manifest, key):
        here = os.path.join(place, names.show(directory)[above:].removeprefix("/"))
        plan.directories.append(here)
        for entry, index in zip(found.files, found.indices, strict=True):
            copy = Copy(join(directory, entry), manifest.size(index), os.path.join(here, names.show(entry)))
            plan.copies.append(copy)
    plan.failed += [(names.show(manifest.path(each.index)), each.reason) for each in unshown(manifest, key)]
    return plan


@dataclass(slots=True)
class Copied:
    """What came of a plan: whole files, their bytes, and (path as shown, reason) of every other."""

    files: int = 0
    bytes: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


class Stopped(Exception):
    """The copy was given up by whoever asked for it."""


class _Progress:
    """Bytes written, from many threads to one."""

    def __init__(self) -> None:
        self.events: SimpleQueue[int | Copied] = SimpleQueue()
        self.stop = threading.Event()

    def wrote(self, count: int) -> None:
        if self.stop.is_set():
            raise Stopped
        self.events.put(count)


def carry_out(
    client: OpenDataset, plan: CopyPlan, progress: Callable[[int, int], None], concurrency: int = CONCURRENCY
) -> Copied:
    """Copy, and go on after a file that fails. `progress` hears (done, total) bytes. Ctrl-C leaves no half files."""
    _make_directories(plan)
    jobs = list(_jobs(plan.copies))
    copied = Copied(failed=list(plan.failed))
    watch, seen, total, left = _Progress(), 0, plan.bytes, len(jobs)
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="copy")
    try:
        for job in jobs:
            pool.submit(_run, client, job, watch)
        while left:
            event = watch.events.get()
            if isinstance(event, int):
                seen += event
                progress(min(seen, total), total)
            else:
                left -= 1
                copied.files += event.files
                copied.bytes += event.bytes
                copied.failed += event.failed
    finally:
        watch.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
    return copied


def _make_directories(plan: CopyPlan) -> None:
    """All directories of the plan, each of them really below the root. Raises AccessDenied for one that is not."""
    os.makedirs(plan.root, exist_ok=True)
    root = os.path.realpath(plan.root)
    for directory in plan.directories:
        real = os.path.realpath(directory)
        if os.path.commonpath([root, real]) != root:
            raise AccessDenied(f"{directory} leads out of {plan.root} (to {real}); remove the link or copy elsewhere")
        os.makedirs(directory, exist_ok=True)


def _jobs(copies: Sequence[Copy]) -> Iterator[list[Copy]]:
    """Large files alone, small ones (a block at the most) in batches as they travel on the wire."""
    batch: list[Copy] = []
    size = 0
    for copy in copies:
        if copy.size > BLOCK:
            yield [copy]
            continue
        if len(batch) == BATCH_FILES or size + copy.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(copy)
        size += copy.size
    if batch:
        yield batch


def _run(client: OpenDataset, job: list[Copy], watch: _Progress) -> None:
    """One job in a thread of the pool; its last event is what came of it, whatever happens."""
    copied = Copied()
    try:
        if len(job) == 1 or not _copied_together(client, job, watch, copied):
            for copy in job:
                _copy(client, copy, watch, copied)
    except Stopped:
        pass
    finally:
        watch.events.put(copied)


def _copied_together(client: OpenDataset, job: list[Copy], watch: _Progress, copied: Copied) -> bool:
    """False where one of the files failed: then each is tried apart, to tell which."""
    try:
        bodies = client.read_many([copy.key for copy in job])
        for copy, body in zip(job, bodies, strict=True):
            write_file(copy.target, body)
    except (CacheEngineError, OSError):
        return False
    size = sum(map(len, bodies))
    watch.wrote(size)
    copied.files += len(job)
    copied.bytes += size
    return True


def _copy(client: OpenDataset, copy: Copy, watch: _Progress, copied: Copied) -> None:
    try:
        copied.bytes += export_file(client, copy.key, copy.target, watch.wrote)
        copied.files += 1
    except (CacheEngineError, OSError) as exc:
        reason = str(exc) if isinstance(exc, CacheEngineError) else exc.strerror or str(exc)
        copied.failed.append((names.show(copy.key), reason))
