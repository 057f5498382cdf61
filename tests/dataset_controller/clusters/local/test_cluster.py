"""Heartbeats and what they tell."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cache_engine.errors import InvalidValue, NotFound
from dataset_controller.clusters.local.cluster import LocalCluster, LocalConfig
from dataset_controller.clusters.local.process import WorkerPlace


class Told:
    """Remembers what the cluster says has changed."""

    def __init__(self) -> None:
        self.calls: list[frozenset[str] | None] = []

    def __call__(self, uids: frozenset[str] | None) -> None:
        self.calls.append(uids)


def sleeper(place: WorkerPlace) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


@pytest.fixture
async def told() -> Told:
    return Told()


@pytest.fixture
async def cluster(tmp_path: Path, told: Told) -> AsyncIterator[LocalCluster]:
    config = LocalConfig(tmp_path, workers=2, quota=1000, nodes=("a", "b"))
    cluster = LocalCluster(config, "http://127.0.0.1:1", sleeper, told)
    await cluster.start()
    yield cluster
    await cluster.stop()


def beat(cluster: LocalCluster, worker: str = "w0", **fields: Any) -> None:
    pid = next(row["pid"] for row in cluster.rows() if row["id"] == worker)
    cluster.heartbeat(worker, {"pid": pid, "url": "http://127.0.0.1:5", "used": 7, "capacity": 900} | fields)


async def test_places(cluster: LocalCluster, tmp_path: Path) -> None:
    rows = cluster.rows()
    assert [(row["id"], row["node"], row["state"]) for row in rows] == [
        ("w0", "a", "starting"),
        ("w1", "b", "starting"),
    ]
    assert [row["directory"] for row in rows] == [str(tmp_path / "workers" / name) for name in ("w0", "w1")]


async def test_a_heartbeat_makes_it_ready_and_concerns_all_datasets(cluster: LocalCluster, told: Told) -> None:
    beat(cluster)
    assert cluster.seen("uid")[0].state == "ready"
    assert (cluster.seen("uid")[0].url, cluster.seen("uid")[0].capacity) == ("http://127.0.0.1:5", 900)
    assert None in told.calls


async def test_other_bytes_concern_only_their_datasets(cluster: LocalCluster, told: Told) -> None:
    beat(cluster, datasets={"u1": {"cached": 5, "near": 0}, "u2": {"cached": 1, "near": 1}})
    told.calls.clear()
    beat(cluster, datasets={"u1": {"cached": 6, "near": 0}, "u2": {"cached": 1, "near": 1}})
    assert told.calls == [frozenset({"u1"})]
    assert (cluster.seen("u1")[0].cached, cluster.seen("u2")[0].near) == (6, 1)
    told.calls.clear()
    beat(cluster, datasets={"u2": {"cached": 1, "near": 1}})
    assert told.calls == [frozenset({"u1"})]


async def test_everybody_ready(cluster: LocalCluster) -> None:
    beat(cluster, "w0")
    beat(cluster, "w1")
    await cluster.wait_ready()
    assert repr(cluster) == "<LocalCluster 2 of 2 ready>"


async def test_heartbeats_that_are_not_believed(cluster: LocalCluster) -> None:
    with pytest.raises(NotFound, match="there is no worker 'w9' here; this controller started w0, w1"):
        cluster.heartbeat("w9", {})
    with pytest.raises(NotFound, match=f"process {os.getpid()} is not worker w0"):
        beat(cluster, pid=os.getpid())
    with pytest.raises(InvalidValue, match="a heartbeat must have url, used, capacity and datasets"):
        beat(cluster, used="many")
    with pytest.raises(InvalidValue):
        beat(cluster, datasets=["u1"])
    assert cluster.seen("uid")[0].state == "starting"
