"""Carry batches out: threads that ask owners to hold files, and what came of each batch, as it comes.

The threads only ask and wait; they are daemons, so that Ctrl-C ends a warm-up at once: a worker finishes what it
was asked for, and keeps it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from cache_engine.access import Access
from cache_engine.errors import CacheEngineError, WorkerUnavailable
from cache_engine.http1 import Timeouts
from cache_engine.peers import Peer
from cache_engine.wire import object_path
from prefetch.warm_plan import BATCH_BYTES, Batch, Share

SLOWEST = 2 << 20
"""Bytes per second below which a fill counts as hanging: the time-out of a batch is its bytes at this speed."""
PATIENCE = 60.0
"""Seconds on top of that."""

Row = Mapping[str, Any]
"""{"index", "bytes", "error"?, "retryable"?} of one file, as a worker answers."""
AskOwner = Callable[[Batch], Sequence[Row]]
"""Asks the owner of a batch to hold its files; raises CacheEngineError where it does not answer for them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a share is not held, and whether to ask again."""

    reason: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one batch."""

    batch: Batch
    held: int
    """Bytes of its shares that are held and verified."""
    faults: tuple[tuple[Share, Fault], ...]


def ask_owner(access: Access, digest: str) -> AskOwner:
    """Over the worker protocol, to the members of `access`."""
    members = {member.id: member for member in access.members}
    peers = {member.id: Peer(member, _timeouts(BATCH_BYTES)) for member in access.members}
    target = object_path(access.dataset, digest, 0).removesuffix("/0") + "/fill"

    def ask(batch: Batch) -> Sequence[Row]:
        body = {"files": [share.index for share in batch.shares]}
        # a file of many spans may take longer than any other batch, on a connection of its own
        large = batch.bytes > BATCH_BYTES
        peer = Peer(members[batch.owner], _timeouts(batch.bytes), 0) if large else peers[batch.owner]
        answer = peer.call("POST", target, body)
        rows: Sequence[Row] = answer["files"]
        return rows

    return ask


def carry_out(batches: Mapping[str, Sequence[Batch]], ask: AskOwner, concurrency: int) -> Iterator[Outcome]:
    """Every batch once, `concurrency` at a time for each owner; outcomes as they come, in any order."""
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    stop = threading.Event()
    for own in batches.values():
        waiting = deque(own)
        for _ in range(min(concurrency, len(own))):
            threading.Thread(target=_work, args=(waiting, ask, outcomes, stop), name="warm", daemon=True).start()
    try:
        for _ in range(sum(map(len, batches.values()))):
            yield outcomes.get()
    finally:
        stop.set()


def _work(waiting: deque[Batch], ask: AskOwner, outcomes: SimpleQueue[Outcome], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            batch = waiting.popleft()
        except IndexError:
            return
        outcomes.put(_outcome(batch, ask))


def _outcome(batch: Batch, ask: AskOwner) -> Outcome:
    try:
        rows = {row["index"]: row for row in ask(batch)}
        judged = [(share, _judge(share, rows.get(share.index))) for share in batch.shares]
    except CacheEngineError as exc:
        fault = Fault(str(exc), exc.retryable)
        return Outcome(batch, 0, tuple((share, fault) for share in batch.shares))
    except (KeyError, TypeError, AttributeError) as exc:
        fault = Fault(f"worker {batch.owner} gave no sensible answer to a fill: {exc!r}", WorkerUnavailable.retryable)
        return Outcome(batch, 0, tuple((share, fault) for share in batch.shares))
    held = sum(share.bytes for share, fault in judged if fault is None)
    return Outcome(batch, held, tuple((share, fault) for share, fault in judged if fault is not None))


def _judge(share: Share, row: Row | None) -> Fault | None:
    """None where the owner says that it holds all of the share."""
    if row is None:
        return Fault("the worker did not answer for this file", True)
    if "error" in row:
        return Fault(str(row["error"]), bool(row.get("retryable", True)))
    if row["bytes"] < share.bytes:
        return Fault(f"the worker holds {row['bytes']} of the {share.bytes} bytes that it owns", True)
    return None


def _timeouts(size: int) -> Timeouts:
    return Timeouts(connect=2.0, first_byte=PATIENCE + size / SLOWEST, progress=PATIENCE)
