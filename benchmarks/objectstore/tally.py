"""What a store counts: connections, requests, bytes; and its log, bounded so that a long benchmark stays small."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from benchmarks.objectstore.request import Request

LOG_LIMIT = 200_000
"""Requests kept, the newest: about 100 MB."""


class Tally:
    """Thread-safe counters. Everything is counted before the client can know of it, so a test need not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # All below guarded by _lock.
        self.open_connections = 0
        self.in_flight = 0
        self._clear()

    def __repr__(self) -> str:
        return f"<Tally {self.requests} requests, {self.connections} connections, {self.sent} bytes sent>"

    def _clear(self) -> None:
        self._log: deque[Request] = deque(maxlen=LOG_LIMIT)
        self._statuses: Counter[int] = Counter()
        self.connections = self.open_connections
        self.peak_connections = self.open_connections
        self.requests = 0
        self.peak_in_flight = self.in_flight
        self.sent = 0
        self.received = 0

    def reset(self) -> None:
        """Forget the log and begin all counts anew; connections that are open count again."""
        with self._lock:
            self._clear()

    def connected(self) -> int:
        """A connection came in: its number."""
        with self._lock:
            self.connections += 1
            self.open_connections += 1
            self.peak_connections = max(self.peak_connections, self.open_connections)
            return self.connections

    def disconnected(self) -> None:
        with self._lock:
            self.open_connections -= 1

    def began(self, request: Request) -> None:
        with self._lock:
            self._log.append(request)
            self.requests += 1
            self.received += len(request.body)
            self.in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def answering(self, request: Request, status: int) -> None:
        with self._lock:
            request.status = status
            self._statuses[status] += 1

    def leaving(self, request: Request, n: int) -> None:
        with self._lock:
            request.sent += n
            self.sent += n

    def ended(self) -> None:
        with self._lock:
            self.in_flight -= 1

    def log(self) -> list[Request]:
        with self._lock:
            return list(self._log)

    def snapshot(self) -> dict[str, Any]:
        """Every count, for JSON."""
        with self._lock:
            names = ("connections", "open_connections", "peak_connections", "requests", "in_flight", "peak_in_flight")
            counts = {name: getattr(self, name) for name in (*names, "sent", "received")}
            return {**counts, "statuses": {str(code): n for code, n in sorted(self._statuses.items())}}
