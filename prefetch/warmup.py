"""Warm a Dataset: every owner is asked to hold what it owns, and says how many verified bytes it then holds.

`warm_plan.py` decides what to ask of whom, `warm_batches.py` asks; here are the rounds: what failed in passing is
planned again, on the membership of that moment, until it holds or has failed too often. Python's way in is
`prefetch.warm`, the command line's is `forebay warm`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cache_engine.errors import WorkerUnavailable
from cache_engine.manifest import Manifest
from cache_engine.names import show
from cache_engine.reading import OpenDataset
from cache_engine.ring import Ring
from prefetch.selection import select
from prefetch.warm_batches import Outcome, ask_owner, carry_out
from prefetch.warm_plan import plan

Progress = Callable[[int, int], None]
"""Called with (bytes held so far, bytes to hold) after every batch; with several owners a byte counts for each."""
ROUNDS = 5
"""Times that a file is asked for at the most."""
PAUSE = 0.5
"""Seconds before the second round, doubled for each further one: 0.5, 1, 2, 4."""


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that its owners do not hold, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class WarmReport:
    """What a warm-up came to."""

    files: int
    """Files that were meant."""
    bytes: int
    """Their bytes."""
    verified: int
    """Bytes of those files that every owner holds whole and verified."""
    failed: tuple[FailedFile, ...]

    @property
    def complete(self) -> bool:
        return not self.failed


@dataclass(frozen=True, slots=True)
class WarmConfig:
    """How hard to warm."""

    concurrency: int = 4
    """Requests in flight at each owner; one keeps up to 16 fetches of the worker busy, four hide the gaps."""
    rounds: int = ROUNDS
    pause: float = PAUSE


def warm(
    client: OpenDataset,
    paths: Sequence[str] | None = None,
    progress: Progress | None = None,
    config: WarmConfig = WarmConfig(),
) -> WarmReport:
    """Hold these files (all, without `paths`) in their owners' caches. Returns when they are held or have failed.

    Raises NotFound or InvalidValue for a path that means nothing, WorkerUnavailable where the Dataset has no
    worker. A KeyboardInterrupt passes through at once; what is held by then stays held.
    """
    manifest = client.manifest
    files = select(manifest, paths)
    rounds = _Rounds(client, manifest, progress or (lambda done, total: None), config)
    failed = rounds.run(files)
    return WarmReport(
        files=len(files),
        bytes=sum(manifest.size(index) for index in files),
        verified=sum(manifest.size(index) for index in files if index not in failed),
        failed=tuple(FailedFile(show(manifest.path(index)), failed[index]) for index in sorted(failed)),
    )


class _Rounds:
    """One warm-up. Mutable: `_done`, by the calling thread alone."""

    def __init__(self, client: OpenDataset, manifest: Manifest, progress: Progress, config: WarmConfig) -> None:
        self._client = client
        self._manifest = manifest
        self._progress = progress
        self._config = config
        self._done = 0

    def run(self, files: array[int]) -> dict[int, str]:
        """File number -> reason, of those that failed for good."""
        failed: dict[int, str] = {}
        passing: dict[int, str] = {}
        left: Iterable[int] = files
        total = 0
        for number in range(self._config.rounds):
            if number:
                time.sleep(self._config.pause * 2 ** (number - 1))
            access = self._client.control.access(self._client.dataset)
            if not access.members:
                raise WorkerUnavailable(f"Dataset {access.dataset} has no worker to warm; `forebay explain` says why")
            batches = plan(self._manifest, left, Ring.of(access.members), access.owners)
            total = total or sum(batch.bytes for owner in batches.values() for batch in owner)
            passing = {}
            ask = ask_owner(access, self._manifest.digest)
            for outcome in carry_out(batches, ask, self._config.concurrency):
                self._account(outcome, total, passing, failed)
            left = sorted(passing)
            if not passing:
                return failed
        return failed | passing

    def _account(self, outcome: Outcome, total: int, passing: dict[int, str], failed: dict[int, str]) -> None:
        for share, fault in outcome.faults:
            (passing if fault.retryable else failed)[share.index] = fault.reason
        self._done += outcome.held
        self._progress(min(self._done, total), total)
