"""Warming against workers that answer over real sockets: what holds, what is tried again, what fails and why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import prefetch
from cache_engine.block import SPAN
from cache_engine.errors import NotFound, WorkerUnavailable
from cache_engine.ring import Ring
from prefetch import FailedFile, WarmConfig
from prefetch.warm_batches import carry_out
from prefetch.warm_plan import Batch, Share
from tests.fakes.client import Body, MemoryClient, connect, publish
from tests.fakes.fill_worker import FillWorker

QUICK = WarmConfig(pause=0.0)
OBJECTS: dict[bytes | str, Any] = {f"set/{i:03}": b"x" * i for i in range(300)} | {
    "large": Body(3 * SPAN + 1, lambda start, stop: b"")
}


class Stage:
    """A client and three workers that own its Dataset."""

    def __init__(self, stack: ExitStack) -> None:
        publish("stage", OBJECTS)
        self.client: MemoryClient = connect("stage")
        self.workers = [stack.enter_context(FillWorker(name, self.client.manifest)) for name in ("ada", "ben", "cleo")]
        self.owned_by(self.workers)

    def owned_by(self, workers: list[FillWorker], owners: int = 1) -> None:
        self.client.control.members = tuple(worker.member for worker in workers)
        self.client.control.owners = owners
        for worker in workers:
            worker.ring, worker.owners = Ring.of(self.client.control.members), owners


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack)


def total(client: MemoryClient) -> int:
    return client.manifest.bytes


def test_every_file_is_held_by_its_owner_and_reported_verified(stage: Stage) -> None:
    seen: list[tuple[int, int]] = []
    report = prefetch.warm(stage.client, progress=lambda done, of: seen.append((done, of)), config=QUICK)
    assert report.complete
    assert (report.files, report.bytes, report.verified) == (301, total(stage.client), total(stage.client))
    assert seen[-1] == (total(stage.client),) * 2 and seen == sorted(seen)
    asked = [index for worker in stage.workers for index in worker.asked]
    assert set(asked) == set(range(301)) and len(asked) <= 300 + 3, "only the large file has several owners"
    assert {path for worker in stage.workers for path, _ in worker.requests} == {
        f"/v1/d/stage/{stage.client.manifest.digest}/fill"
    }


def test_paths_choose_what_is_warmed(stage: Stage) -> None:
    report = prefetch.warm(stage.client, ["set/00*", "set/299"], config=QUICK)
    assert (report.files, report.verified) == (11, sum(range(10)) + 299)
    with pytest.raises(NotFound):
        prefetch.warm(stage.client, ["nothing"])


def test_with_two_owners_both_hold_every_byte(stage: Stage) -> None:
    stage.owned_by(stage.workers, owners=2)
    seen: list[tuple[int, int]] = []
    report = prefetch.warm(stage.client, progress=lambda done, of: seen.append((done, of)), config=QUICK)
    assert report.complete and report.verified == total(stage.client)
    assert seen[-1] == (2 * total(stage.client),) * 2


def test_passing_faults_are_asked_again_and_lasting_ones_are_not(stage: Stage) -> None:
    def script(times: int, row: dict[str, Any]) -> dict[str, Any]:
        if row["index"] == 8 and times < 2:
            return row | {"bytes": 0, "error": "the source is slow", "retryable": True}
        if row["index"] == 9:
            return row | {"bytes": 0, "error": "no room in the cache", "retryable": False}
        return row

    for worker in stage.workers:
        worker.script = script
    report = prefetch.warm(stage.client, config=QUICK)
    path = stage.client.manifest.path(9).decode()
    assert report.failed == (FailedFile(path, "no room in the cache"),)
    assert report.verified == report.bytes - stage.client.manifest.size(9)
    assert [sum(worker.asked.get(index, 0) for worker in stage.workers) for index in (7, 8, 9)] == [1, 3, 1]


@pytest.mark.parametrize(
    "script",
    [lambda times, row: row | {"bytes": row["bytes"] - 1}, lambda times, row: {}, lambda times, row: {"index": "?"}],
    ids=["fewer bytes than it owns", "no row", "no sense"],
)
def test_a_file_that_is_not_proved_held_is_never_reported_so(stage: Stage, script: Any) -> None:
    for worker in stage.workers:
        worker.script = script
    report = prefetch.warm(stage.client, ["set/005"], config=WarmConfig(pause=0.0, rounds=2))
    assert not report.complete and report.verified == 0
    assert report.failed[0].path == "set/005"


def test_a_worker_that_is_gone_is_replaced_by_who_owns_its_files_now(stage: Stage) -> None:
    lost = FillWorker("dora", stage.client.manifest)
    members = [worker.member for worker in (*stage.workers, lost)]
    lost._server.server_close()
    looks = []

    class Moving:
        """The first look shows a member that does not answer; later ones are without it."""

        def access(self, name: str) -> Any:
            looks.append(name)
            if len(looks) > 1:
                control.members = tuple(worker.member for worker in stage.workers)
                for worker in stage.workers:
                    worker.ring = Ring.of(control.members)
            return control.access(name)

    control = stage.client.control
    control.members = tuple(members)
    for worker in stage.workers:
        worker.ring = Ring.of(members)
    stage.client.control = Moving()  # type: ignore[assignment]
    report = prefetch.warm(stage.client, config=QUICK)
    assert report.complete and len(looks) == 2


def test_workers_that_never_answer_are_named_in_the_reason(stage: Stage) -> None:
    for worker in stage.workers:
        worker._server.socket.close()
    report = prefetch.warm(stage.client, ["set/001"], config=WarmConfig(pause=0.0, rounds=2))
    assert "does not answer" in report.failed[0].reason


def test_a_dataset_without_workers_cannot_be_warmed(stage: Stage) -> None:
    stage.client.control.members = ()
    with pytest.raises(WorkerUnavailable, match="no worker"):
        prefetch.warm(stage.client)


def test_batches_of_one_owner_run_concurrently_up_to_the_limit() -> None:
    meeting = threading.Barrier(3)

    def ask(batch: Batch) -> list[dict[str, int]]:
        meeting.wait(30)  # three at once, or nobody goes on
        return [{"index": share.index, "bytes": share.bytes} for share in batch.shares]

    batches = {"ada": [Batch("ada", (Share(i, 10),)) for i in range(6)]}
    outcomes = list(carry_out(batches, ask, 3))
    assert sum(outcome.held for outcome in outcomes) == 60


def test_giving_up_stops_asking_at_once() -> None:
    gate, asked = threading.Event(), []

    def ask(batch: Batch) -> list[dict[str, int]]:
        asked.append(batch)
        if len(asked) > 1:
            gate.wait(30)
        return []

    batches = {"ada": [Batch("ada", (Share(i, 10),)) for i in range(100)]}
    outcomes = carry_out(batches, ask, 1)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    gate.set()
    for thread in [t for t in threading.enumerate() if t.name == "warm"]:
        thread.join()
    assert len(asked) <= 3
