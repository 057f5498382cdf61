"""The worker's metrics: one table, and the few verbs that move them.

prometheus-client keeps its own locks; every call here is a few microseconds and none does I/O.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

COUNTERS = {
    "requests": ("Requests answered, by kind and HTTP status.", ("kind", "status")),
    "sent_bytes": ("Bytes sent to readers, by where they were when the request came: cell, fill or past.", ("origin",)),
    "fetched_bytes": ("Bytes fetched from a source or another worker.", ("origin",)),
    "filled_bytes": ("Bytes written into cells.", ()),
    "fetch_errors": ("Fetches that failed, by error class.", ("error",)),
    "bad_blocks": ("Blocks dropped because their bytes did not have their CRC.", ()),
    "evictions": ("Cells, and spans of large ones, that left to make room.", ()),
    "past_cache": ("Reads that went past the cache because there was no room.", ()),
}
GAUGES = {
    "tier_used_bytes": "Bytes on disk, fills in flight included.",
    "tier_quota_bytes": "Bytes on disk at the most.",
    "tier_cells": "Cells on disk.",
    "tier_near_bytes": "Bytes of near copies (not owned here).",
    "flights": "Fetches in flight.",
}


class WorkerMetrics:
    """One worker's registry; `text()` is what /metrics answers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"forebay_worker_{name}", doc, labels, registry=self.registry)
            for name, (doc, labels) in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(f"forebay_worker_{name}", doc, registry=self.registry) for name, doc in GAUGES.items()
        }
        self._evicted = 0
        self._filled = self._counters["filled_bytes"]
        self.totals: dict[str, int] = {"source": 0, "peer": 0, "cell": 0, "fill": 0, "past": 0, "bad_blocks": 0}
        """The same, for /v1/stats: bytes fetched by origin, bytes sent by origin, bad blocks."""

    def answered(self, kind: str, status: int) -> None:
        self._counters["requests"].labels(kind, str(status)).inc()

    def sent(self, origin: str, size: int) -> None:
        self._counters["sent_bytes"].labels(origin).inc(size)
        self.totals[origin] += size

    def fetched(self, origin: str, size: int) -> None:
        self._counters["fetched_bytes"].labels(origin).inc(size)
        self.totals[origin] += size

    def filled(self, size: int) -> None:
        self._filled.inc(size)

    def fetch_failed(self, error: BaseException) -> None:
        self._counters["fetch_errors"].labels(type(error).__name__).inc()

    def bad_block(self) -> None:
        self._counters["bad_blocks"].inc()
        self.totals["bad_blocks"] += 1

    def went_past(self) -> None:
        self._counters["past_cache"].inc()

    def text(self, gauges: dict[str, float], evicted: int) -> bytes:
        """The exposition text, with the tier's figures as of now; `evicted`: how many left since the start."""
        self._counters["evictions"].inc(max(0, evicted - self._evicted))
        self._evicted = evicted
        for name, value in gauges.items():
            self._gauges[name].set(value)
        return generate_latest(self.registry)
