"""One fetch a block, however many ask: the single flight of a worker.

A flight is a run of blocks on its way into a cell. It belongs to the blocks, not to whoever asked first: the
asker may hang up and the flight goes on for the others. Waiters wait for the last block they need, and are
let go as soon as it has landed, while the rest of the run still comes.

Above: `fill.py`, which carries flights out. Pure bookkeeping: no I/O, no threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from cache_engine.block import runs_of
from cache_engine.errors import CacheEngineError, SourceUnavailable


class Flight:
    """One run of blocks of one cell in the air. Mutable: landed, waiters, under the table's lock."""

    def __init__(self, cell: str, run: range) -> None:
        self.cell = cell
        self.run = run
        self.landed = run.start
        """All blocks of the run below this number are in the cell."""
        self.waiters: list[tuple[int, Future[None]]] = []

    def __repr__(self) -> str:
        return f"<Flight {self.cell[:8]} blocks {self.run.start}-{self.run.stop - 1}, landed to {self.landed}>"


class Flights:
    """All flights of one worker. Mutable: `_airborne`, guarded by `_lock`."""

    def __init__(self) -> None:
        self._airborne: dict[tuple[str, int], Flight] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len({id(flight) for flight in list(self._airborne.values())})

    def board(
        self, cell: str, missing: Sequence[int], held: Callable[[int], bool], most: int
    ) -> tuple[list[Flight], list[Future[None]]]:
        """New flights to carry out for `missing` blocks that nobody fetches yet, and the futures to wait for.

        `held(block)` is asked again under the lock: a block may have landed since `missing` was found, and
        a flight leaves the table only after its blocks count as held. `most`: blocks in one flight.
        """
        with self._lock:
            last: dict[int, tuple[Flight, int]] = {}
            fresh: list[int] = []
            for block in missing:
                flight = self._airborne.get((cell, block))
                if flight is not None:
                    last[id(flight)] = (flight, block)
                elif not held(block):
                    fresh.append(block)
            started = [Flight(cell, run) for run in runs_of(fresh, most)]
            for flight in started:
                for block in flight.run:
                    self._airborne[cell, block] = flight
                last[id(flight)] = (flight, flight.run.stop - 1)
            return started, [self._wait(flight, block) for flight, block in last.values()]

    def _wait(self, flight: Flight, block: int) -> Future[None]:
        future: Future[None] = Future()
        if block < flight.landed:
            future.set_result(None)
        else:
            flight.waiters.append((block, future))
        return future

    def land(self, flight: Flight, block: int) -> None:
        """Block `block` of the flight is in the cell, and all before it."""
        with self._lock:
            flight.landed = block + 1
            self._airborne.pop((flight.cell, block), None)
            arrived = [future for last, future in flight.waiters if last <= block]
            flight.waiters = [(last, future) for last, future in flight.waiters if last > block]
        for future in arrived:
            future.set_result(None)

    def end(self, flight: Flight, error: CacheEngineError | None = None) -> None:
        """The flight is over; whoever still waits gets `error`."""
        with self._lock:
            for block in flight.run:
                if self._airborne.get((flight.cell, block)) is flight:
                    del self._airborne[flight.cell, block]
            waiters, flight.waiters = flight.waiters, []
        for _, future in waiters:
            future.set_exception(error or SourceUnavailable("the fetch ended before this block came; try again"))

    def end_all(self, error: CacheEngineError) -> None:
        """Nobody waits any more: each gets `error`. What still lands, lands for nobody."""
        with self._lock:
            flights = {id(flight): flight for flight in self._airborne.values()}
        for flight in flights.values():
            self.end(flight, error)
