"""The controller's metrics: one table, filled when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from dataset_controller.resources import Dataset

DATASET_GAUGES = (
    ("forebay_dataset_files", "Files of the snapshot that is served.", "files"),
    ("forebay_dataset_bytes", "Bytes of the snapshot that is served.", "bytes"),
    ("forebay_dataset_cached_bytes", "Bytes that the owners hold and have verified.", "cached_bytes"),
    ("forebay_dataset_near_bytes", "Bytes of near copies.", "near_bytes"),
)
"""Name, help, field of the status; labelled with `dataset`."""
PHASE = ("forebay_dataset_phase", "1 for the phase that it is in.")
WORKER_GAUGES = (
    ("forebay_worker_used_bytes", "Bytes that a worker's tier takes on the disk.", "used"),
    ("forebay_worker_capacity_bytes", "Bytes that it may take.", "capacity"),
)
"""Name, help, field of the worker's row; labelled with `worker` and `node`."""
READY = ("forebay_worker_ready", "1 where it answers.")
RESTARTS = ("forebay_worker_restarts", "How often its process was started again.")

_OF_DATASET, _OF_PHASE, _OF_WORKER = ("dataset",), ("dataset", "phase"), ("worker", "node")


def described() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name as scraped, type, labels, help) of every metric, for docs/METRICS.md."""
    rows: list[tuple[str, str, tuple[str, ...], str]]
    rows = [(name, "gauge", _OF_DATASET, text) for name, text, _ in DATASET_GAUGES]
    rows.append((PHASE[0], "gauge", _OF_PHASE, PHASE[1]))
    rows += [(name, "gauge", _OF_WORKER, text) for name, text, _ in WORKER_GAUGES]
    rows.append((READY[0], "gauge", _OF_WORKER, READY[1]))
    rows.append((f"{RESTARTS[0]}_total", "counter", _OF_WORKER, RESTARTS[1]))
    return rows


class _Now(Collector):
    """Reads the numbers at the moment of the scrape."""

    def __init__(self, datasets: Iterable[Dataset], workers: Iterable[dict[str, Any]]) -> None:
        self._datasets = list(datasets)
        self._workers = list(workers)

    def collect(self) -> Iterator[Metric]:
        yield from self._of_datasets()
        yield from self._of_workers()

    def _of_datasets(self) -> Iterator[Metric]:
        for name, text, attribute in DATASET_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=_OF_DATASET)
            for dataset in self._datasets:
                gauge.add_metric([dataset.metadata.name], getattr(dataset.status, attribute))
            yield gauge
        phase = GaugeMetricFamily(*PHASE, labels=_OF_PHASE)
        for dataset in self._datasets:
            phase.add_metric([dataset.metadata.name, dataset.status.phase], 1)
        yield phase

    def _of_workers(self) -> Iterator[Metric]:
        for name, text, field in WORKER_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=_OF_WORKER)
            for row in self._workers:
                gauge.add_metric([row["id"], row["node"]], row[field])
            yield gauge
        ready, restarts = (
            GaugeMetricFamily(*READY, labels=_OF_WORKER),
            CounterMetricFamily(*RESTARTS, labels=_OF_WORKER),
        )
        for row in self._workers:
            ready.add_metric([row["id"], row["node"]], row["state"] == "ready")
            restarts.add_metric([row["id"], row["node"]], row["restarts"])
        yield from (ready, restarts)


def exposition(datasets: Iterable[Dataset], workers: Iterable[dict[str, Any]]) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Now(datasets, workers))
    return generate_latest(registry)
