"""Minutes of kill -9 under fills and reads: every byte right, no error to a reader, the quota never passed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.objectstore import ObjectStore
from cache_engine.block import BLOCK
from examples.stage import Embedded
from tests.cache_engine.tier_kit import disk_bytes
from tests.e2e.conftest import KEYS, Stage, noise

SECONDS = float(os.environ.get("SOAK_SECONDS", "180"))
QUOTA = 24 * BLOCK
WORKERS = 3


@pytest.fixture
def small_stage(tmp_path: Path) -> Iterator[Stage]:
    with (
        ObjectStore("s3", buckets=["bucket"], credentials=tuple(KEYS.values()), first_byte=0.002) as store,
        Embedded(tmp_path / "home", WORKERS, "--cache-size", str(QUOTA), env=KEYS) as embedded,
    ):
        yield Stage(store, embedded)


class Soak:
    """Readers, a killer and a watcher of the disk, until `stop`. Mutable: `failures`, by append alone."""

    def __init__(self, stage: Stage, name: str, files: dict[str, bytes], seed: int) -> None:
        self.stage = stage
        self.name = name
        self.files = files
        self.seed = seed
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.read = 0
        self.kills = 0

    def run(self, seconds: float) -> None:
        work = [lambda n=n: self._reads(n) for n in range(6)] + [self._kills, self._watches]
        threads = [threading.Thread(target=self._guarded, args=(job,)) for job in work]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join()

    def _guarded(self, job) -> None:
        try:
            job()
        except BaseException as error:
            self.failures.append(error)
            self.stop.set()

    def _reads(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        with self.stage.embedded.open(self.name, local=bool(number % 2), connections=4) as client:
            while not self.stop.is_set():
                some = rng.sample(list(self.files), 12)
                bodies = client.read_many(some)
                assert bodies == [self.files[name] for name in some]
                name = rng.choice(list(self.files))
                start = rng.randrange(len(self.files[name]) + 1)
                length = rng.choice([1, 1000, BLOCK, 3 * BLOCK])
                assert client.read(name, start, length) == self.files[name][start : start + length]
                self.read += sum(map(len, bodies)) + length

    def _kills(self) -> None:
        rng = random.Random(f"{self.seed}/kill")
        while not self.stop.wait(rng.uniform(0.5, 3.0)):
            alive = [pid for pid in self.stage.embedded.worker_pids() if _is_worker(pid)]
            if alive:
                os.kill(rng.choice(alive), signal.SIGKILL)
                self.kills += 1

    def _watches(self) -> None:
        directories = {Path(row["directory"]) for row in self.stage.embedded.workers()}
        while not self.stop.wait(0.2):
            for directory in directories:
                assert any(self._fits(directory) for _ in range(3)), directory

    def _fits(self, directory: Path) -> bool:
        """A walk while files come and go counts both: of several the smallest is nearest to the truth.

        What holds at every single moment is asked of the file system itself, in test_tier_quota.
        """
        least = min(disk_bytes(directory) for _ in range(8))
        return least <= QUOTA or self.stop.wait(0.05)


def _is_worker(pid: int) -> bool:
    """Not 0 (between two lives), nor a number that something else has by now."""
    try:
        return pid > 0 and b"worker_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.soak
def test_workers_killed_at_random_lose_no_byte_and_never_pass_their_quota(small_stage: Stage) -> None:
    seed = int(os.environ.get("SOAK_SEED", time.time_ns() % 1_000_000))
    print(f"\nSOAK_SEED={seed} SOAK_SECONDS={SECONDS:.0f}")
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, 700, 60_000, BLOCK, BLOCK + 1, 3 * BLOCK + 9, 7 * BLOCK]) for _ in range(200)]
    files = {f"f{n:03}": noise(size, n) for n, size in enumerate(sizes)}
    assert sum(sizes) > 5 * QUOTA
    soak = Soak(small_stage, small_stage.dataset(files, near="onRead"), files, seed)
    soak.run(SECONDS)
    print(f"{soak.kills} kills, {soak.read >> 20} MiB read and compared")
    assert not soak.failures, soak.failures
    assert soak.kills and soak.read > 5 * QUOTA
