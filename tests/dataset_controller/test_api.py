"""The control API over a real socket, with stand-in workers and listings."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cache_engine.access import Access
from dataset_controller.api import make_app
from dataset_controller.clusters.local.cluster import LocalCluster, LocalConfig
from dataset_controller.controller import Controller
from dataset_controller.http_server import ApiServer
from tests.dataset_controller.build import document
from tests.dataset_controller.clusters.local.test_cluster import sleeper
from tests.dataset_controller.fake_forebay.commands import checks
from tests.dataset_controller.fake_forebay.listing import OUTCOME, take_directory


@dataclass
class Served:
    """A running API, its client and what stands behind it."""

    http: httpx.AsyncClient
    controller: Controller
    cluster: LocalCluster
    source: Path

    async def apply(self, name: str = "demo", **spec: Any) -> dict[str, Any]:
        answer = await self.http.post("/v1/datasets", json=document(name, f"file://{self.source}", **spec))
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["items"][0]["dataset"])

    async def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The Dataset as soon as `holds` is true of it, by the watch and not by the clock."""
        since = self.controller.store.version
        found = (await self.http.get(f"/v1/datasets/{name}")).json()
        while not holds(found):
            events = await asyncio.wait_for(self.controller.wait_event(since, 10), 10)
            since = max((event.version for event in events), default=since)
            found = next((event.object for event in reversed(events) if event.name == name), found)
        return dict(found)

    async def beat(self, worker: str = "w0", **fields: Any) -> dict[str, Any]:
        pid = next(row["pid"] for row in self.cluster.rows() if row["id"] == worker)
        body = {"pid": pid, "url": f"http://127.0.0.1:5/{worker}", "used": 0, "capacity": 1000} | fields
        answer = await self.http.post(f"/v1/workers/{worker}/heartbeat", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"12345")
    (tmp_path / "state").mkdir()
    told: list[Controller] = []
    config = LocalConfig(tmp_path / "state", workers=1, quota=1000, nodes=("n",))
    cluster = LocalCluster(config, "", sleeper, lambda uids: [one.workers_changed(uids) for one in told] and None)
    await cluster.start()
    controller = Controller(tmp_path / "state", cluster, take_directory)
    controller.start()
    told.append(controller)
    listening = socket.create_server(("127.0.0.1", 0))
    server = ApiServer(make_app(controller, cluster, checks({})))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.answers.wait()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        yield Served(http, controller, cluster, source)
    server.should_exit = True
    await serving
    await cluster.stop()
    await controller.close()
    listening.close()


def ready(found: dict[str, Any]) -> bool:
    return bool(found["status"]["phase"] == "Ready")


async def test_apply_to_ready_and_the_document_for_readers(served: Served) -> None:
    await served.beat()
    await served.apply()
    found = await served.until("demo", ready)
    assert (found["status"]["files"], found["status"]["bytes"]) == (1, 5)
    access = Access.from_json((await served.http.get("/v1/datasets/demo/access")).json())
    assert access.snapshot is not None
    assert [member.id for member in access.members] == ["w0"]
    assert access.epoch > 0
    manifest = await served.http.get(access.snapshot.url)
    assert [size for size, _ in json.loads(manifest.content).values()] == [5]
    assert access.snapshot.path == str(served.controller.manifests / f"{access.snapshot.digest}.manifest")
    assert (await served.beat())["epochs"] == {"demo": access.epoch}


async def test_access_is_there_before_the_first_snapshot(served: Served) -> None:
    (served.source / OUTCOME).write_text("down")
    await served.apply()
    access = (await served.http.get("/v1/datasets/demo/access")).json()
    assert (access["snapshot"], access["dataset"]) == (None, "demo")


async def test_cached_bytes_come_from_heartbeats(served: Served) -> None:
    await served.beat()
    uid = (await served.apply())["metadata"]["uid"]
    await served.until("demo", ready)
    await served.beat(datasets={uid: {"cached": 4, "near": 2}})
    found = await served.until("demo", lambda one: one["status"]["cachedBytes"] == 4)
    assert (found["status"]["cachedRatio"], found["status"]["nearBytes"]) == (80, 2)


@pytest.mark.parametrize(
    ("outcome", "phase", "reason"),
    [
        ("denied", "Failed", "SourceDenied"),
        ("down", "Pending", "SourceUnavailable"),
        ("truncated", "Pending", "ListingTruncated"),
    ],
)
async def test_why_there_is_no_snapshot(served: Served, outcome: str, phase: str, reason: str) -> None:
    (served.source / OUTCOME).write_text(outcome)
    await served.apply()
    found = await served.until("demo", lambda one: _reason(one) == reason)
    assert found["status"]["phase"] == phase


async def test_an_empty_source_is_its_own_reason(served: Served) -> None:
    (served.source / "a").unlink()
    await served.apply()
    found = await served.until("demo", lambda one: _reason(one) == "SourceEmpty")
    assert (found["status"]["phase"], "snapshot" in found["status"]) == ("Failed", False)


async def test_a_source_that_comes_back_is_found_without_anybody_asking(served: Served) -> None:
    await served.beat()
    (served.source / OUTCOME).write_text("down")
    await served.apply()
    await served.until("demo", lambda one: _reason(one) == "SourceUnavailable")
    (served.source / OUTCOME).unlink()
    await served.until("demo", lambda one: one["status"]["files"] == 1)


@pytest.mark.case("B23")
async def test_refresh_shows_a_new_file_at_once_and_says_what_changed(served: Served) -> None:
    await served.apply()
    await served.until("demo", lambda one: one["status"]["files"] == 1)
    (served.source / "a").write_bytes(b"123456")
    (served.source / "b").write_bytes(b"1")
    answer = (await served.http.post("/v1/datasets/demo/refresh")).json()
    assert (answer["added"], answer["changed"], answer["gone"], answer["files"]) == (1, 1, 0, 2)
    (served.source / "a").unlink()
    answer = (await served.http.post("/v1/datasets/demo/refresh")).json()
    assert (answer["added"], answer["changed"], answer["gone"], answer["files"]) == (0, 0, 1, 1)


async def test_a_refresh_that_fails_says_why_and_the_old_snapshot_is_still_served(served: Served) -> None:
    await served.beat()
    await served.apply()
    await served.until("demo", ready)
    (served.source / OUTCOME).write_text("denied")
    answer = await served.http.post("/v1/datasets/demo/refresh")
    expected = {"error": "AccessDenied", "message": "the source refuses to list", "exitCode": 4}
    assert (answer.status_code, answer.json()) == (403, expected)
    found = await served.until("demo", lambda one: _reason(one, "SnapshotCurrent") == "SourceDenied")
    assert (found["status"]["phase"], found["status"]["files"]) == ("Ready", 1)


async def test_a_change_that_a_worker_reports_makes_a_new_snapshot(served: Served) -> None:
    await served.apply()
    await served.until("demo", lambda one: one["status"]["files"] == 1)
    marks = served.controller._marks
    (served.source / "b").write_bytes(b"1")
    await served.beat(changed=["demo", "unknown"])
    assert [one.changed_at > 0 for one in marks.values()] == [True]
    await served.until("demo", lambda one: _reason(one, "SnapshotCurrent") == "ObjectChanged")


async def test_deleting_takes_everything_along(served: Served) -> None:
    await served.apply("a")
    await served.apply("b")
    for name in ("a", "b"):
        await served.until(name, lambda one: one["status"]["files"] == 1)
    assert (await served.http.delete("/v1/datasets/a")).status_code == 200
    assert (await served.http.get("/v1/datasets/a")).status_code == 404
    assert list((await served.beat())["epochs"]) == ["b"]
    assert len(list(served.controller.manifests.iterdir())) == 1
    await served.http.delete("/v1/datasets/b")
    (served.source / "b").write_bytes(b"another snapshot")
    await served.apply("c")
    digest = (await served.until("c", lambda one: one["status"]["files"] == 2))["status"]["snapshot"]["digest"]
    assert [path.stem for path in served.controller.manifests.iterdir()] == [digest]


async def test_the_same_name_again_is_another_dataset_with_a_larger_epoch(served: Served) -> None:
    first = await served.apply()
    await served.until("demo", lambda one: one["status"]["files"] == 1)
    epoch = (await served.beat())["epochs"]["demo"]
    await served.http.delete("/v1/datasets/demo")
    second = await served.apply()
    await served.until("demo", lambda one: one["status"]["files"] == 1)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert (await served.beat())["epochs"]["demo"] > epoch


async def test_all_documents_of_a_request_or_none(served: Served) -> None:
    good, bad = document("good", f"file://{served.source}"), document("bad", "x://y")
    answer = await served.http.post("/v1/datasets", json={"kind": "List", "items": [good, bad]})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "Dataset bad: spec.mounts[0].url"
    assert (await served.http.get("/v1/datasets")).json()["items"] == []


async def test_a_watch_tells_every_change_in_order_and_ends_in_410_when_it_lags(served: Served) -> None:
    since = (await served.http.get("/v1/datasets")).json()["resourceVersion"]
    url = f"/v1/datasets?watch=true&resourceVersion={since}"
    async with served.http.stream("GET", url) as stream:
        lines = stream.aiter_lines()
        await served.apply()
        first = json.loads(await anext(lines))
        await served.http.delete("/v1/datasets/demo")
        while (event := json.loads(await anext(lines)))["type"] != "DELETED":
            assert event["type"] in ("MODIFIED", "BOOKMARK")
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "demo")
    assert (await served.http.get("/v1/datasets?watch=true&resourceVersion=999999")).status_code == 410


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/datasets/x", 404, "there is no Dataset 'x'; `forebay get datasets` lists those that exist"),
        ("GET", "/v1/datasets/x/access", 404, "there is no Dataset 'x'"),
        ("GET", "/v1/datasets/x/explain", 404, "there is no Dataset 'x'"),
        ("POST", "/v1/datasets/x/refresh", 404, "there is no Dataset 'x'"),
        ("DELETE", "/v1/datasets/x", 404, "there is no Dataset 'x'"),
        ("GET", "/v1/manifests/..%2f..%2fetc", 404, "Not Found; /docs lists what there is"),
        ("GET", "/v1/manifests/xyz", 422, "'xyz' is not a manifest's digest"),
        ("GET", f"/v1/manifests/{'a' * 64}", 404, "no Dataset has the manifest aaaaaaaaaaaa... now"),
        ("POST", "/v1/workers/w9/heartbeat", 422, "body is not allowed (Field required)"),
        ("GET", "/v1/nothing", 404, "GET /v1/nothing: Not Found; /docs lists what there is"),
        ("PUT", "/v1/datasets", 405, "PUT /v1/datasets: Method Not Allowed"),
        ("GET", "/v1/datasets?resourceVersion=x", 422, "query.resourceVersion is not allowed"),
    ],
)
async def test_errors_have_one_form(served: Served, method: str, path: str, status: int, message: str) -> None:
    answer = await served.http.request(method, path)
    assert answer.status_code == status
    assert message in answer.json()["message"]


async def test_a_state_that_cannot_be_written_is_an_error_that_says_so(served: Served) -> None:
    await served.apply()
    served.controller.store._db.execute("PRAGMA query_only = ON")
    answer = await served.http.delete("/v1/datasets/demo")
    assert (answer.status_code, answer.json()["error"]) == (503, "ControllerUnavailable")
    assert "readonly" in answer.json()["message"] and "state directory" in answer.json()["message"]
    served.controller.store._db.execute("PRAGMA query_only = OFF")
    assert (await served.http.delete("/v1/datasets/demo")).status_code == 200


async def test_probes_metrics_and_openapi(served: Served) -> None:
    await served.beat()
    await served.apply()
    await served.until("demo", ready)
    health = (await served.http.get("/healthz")).json()
    assert (health["status"], health["workers"]) == ("ok", {"ready": 1, "total": 1})
    metrics = (await served.http.get("/metrics")).text
    assert 'forebay_dataset_bytes{dataset="demo"} 5.0' in metrics
    assert 'forebay_worker_ready{node="n",worker="w0"} 1.0' in metrics
    schema = (await served.http.get("/openapi.json")).json()
    assert "/v1/datasets/{name}/access" in schema["paths"]
    assert schema["components"]["schemas"]["DatasetSpec"]["properties"]["nearCopies"]["enum"] == [
        "never", "onRead", "complete",
    ]  # fmt: skip


def _reason(found: dict[str, Any], kind: str = "Ready") -> str:
    return next((one["reason"] for one in found["status"]["conditions"] if one["type"] == kind), "")
