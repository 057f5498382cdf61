"""The controller's metrics: one table, filled when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
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


class _Now(Collector):
    """Reads the numbers at the moment of the scrape."""

    def __init__(self, datasets: Iterable[Dataset], workers: Iterable[dict[str, Any]]) -> None:
        self._datasets = list(datasets)
        self._workers = list(workers)

    def collect(self) -> Iterator[Metric]:
        for name, text, attribute in DATASET_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["dataset"])
            for dataset in self._datasets:
                gauge.add_metric([dataset.metadata.name], getattr(dataset.status, attribute))
            yield gauge
        phase = GaugeMetricFamily(
            "forebay_dataset_phase", "1 for the phase that it is in.", labels=["dataset", "phase"]
        )
        for dataset in self._datasets:
            phase.add_metric([dataset.metadata.name, dataset.status.phase], 1)
        yield phase
        for name, text, field in (
            ("forebay_worker_used_bytes", "Bytes that a worker's tier takes on the disk.", "used"),
            ("forebay_worker_capacity_bytes", "Bytes that it may take.", "capacity"),
            ("forebay_worker_restarts_total", "How often its process was started again.", "restarts"),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["worker", "node"])
            for row in self._workers:
                gauge.add_metric([row["id"], row["node"]], row[field])
            yield gauge
        ready = GaugeMetricFamily("forebay_worker_ready", "1 where it answers.", labels=["worker", "node"])
        for row in self._workers:
            ready.add_metric([row["id"], row["node"]], row["state"] == "ready")
        yield ready


def exposition(datasets: Iterable[Dataset], workers: Iterable[dict[str, Any]]) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Now(datasets, workers))
    return generate_latest(registry)
