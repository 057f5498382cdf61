"""Small documents and observations for tests, each with one thing to vary."""

from typing import Any

from cache_engine.access import Access
from dataset_controller.observed import Failure, Observed, Snapshot, Taking
from dataset_controller.resources import Dataset, read_dataset
from dataset_controller.worker_seen import WorkerSeen

NOW = 1_000_000.0
URL = "file:///data"


def document(name: str = "demo", url: str = URL, **spec: Any) -> dict[str, Any]:
    """A Dataset as YAML gives it."""
    return {
        "apiVersion": "data.forebay.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": name},
        "spec": {"mounts": [{"url": url}], **spec},
    }


def dataset(name: str = "demo", url: str = URL, **spec: Any) -> Dataset:
    """A Dataset as the store gives it."""
    read = read_dataset(document(name, url, **spec))
    owned = {"uid": f"uid-{name}", "generation": 1, "creation_timestamp": "2026-01-01T00:00:00Z"}
    return read.model_copy(update={"metadata": read.metadata.model_copy(update=owned)})


def snapshot(of: Dataset, began: float = NOW - 100, **fields: Any) -> Snapshot:
    values = {"digest": "a" * 64, "files": 10, "bytes": 1000, "path": "/manifests/a"} | fields
    return Snapshot(began=began, mounts=of.spec.mount_access(), **values)


def failure(of: Dataset, reason: str = "SourceUnavailable", **fields: Any) -> Failure:
    values = {"message": "no answer", "retryable": True, "attempts": 1, "at": NOW - 10} | fields
    return Failure(reason=reason, mounts=of.spec.mount_access(), **values)


def taking(of: Dataset, began: float = NOW - 5) -> Taking:
    return Taking(began, of.spec.mount_access())


def worker(number: int = 0, state: Any = "ready", **fields: Any) -> WorkerSeen:
    values = {"url": f"http://127.0.0.1:{4000 + number}", "node": "n", "directory": f"/w{number}", "capacity": 1 << 30}
    return WorkerSeen(id=f"w{number}", state=state, **(values | fields))


def workers(count: int) -> tuple[WorkerSeen, ...]:
    return tuple(worker(number) for number in range(count))


def observed(of: Dataset | None, **fields: Any) -> Observed:
    values: dict[str, Any] = {"now": NOW, "workers": workers(3)} | fields
    return Observed(name=of.metadata.name if of else "demo", dataset=of, **values)


def published(access: Access, epoch: int = 7) -> Access:
    return Access.from_json({**access.to_json(), "epoch": epoch})
