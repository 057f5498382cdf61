"""Single flight: one fetch a block, owned by the block and not by who asked first."""

from __future__ import annotations

import pytest

from cache_engine.errors import SourceUnavailable
from cache_engine.flights import Flights


def board(flights: Flights, blocks: range, held: set[int]) -> tuple[list[range], list]:
    started, futures = flights.board("cell", list(blocks), held.__contains__, 4)
    return started, futures


def test_missing_blocks_become_flights_of_bounded_runs() -> None:
    started, futures = board(Flights(), range(0, 10), set())
    assert [flight.run for flight in started] == [range(0, 4), range(4, 8), range(8, 10)]
    assert len(futures) == 3


def test_a_second_asker_joins_the_flight_and_starts_none() -> None:
    flights = Flights()
    (first,), _ = board(flights, range(0, 4), set())
    started, (future,) = board(flights, range(1, 3), set())
    assert started == []
    flights.land(first, 0)
    flights.land(first, 1)
    assert not future.done()
    flights.land(first, 2)
    assert future.done(), "a waiter is let go when its last block has landed, not at the end of the run"


def test_a_block_that_landed_since_it_was_found_missing_is_not_fetched_again() -> None:
    flights = Flights()
    (first,), _ = board(flights, range(0, 2), set())
    flights.land(first, 0)
    flights.land(first, 1)
    flights.end(first)
    started, futures = board(flights, range(0, 3), {0, 1})
    assert [flight.run for flight in started] == [range(2, 3)]
    assert len(futures) == 1


def test_an_error_reaches_everybody_who_waits_and_the_next_asker_starts_anew() -> None:
    flights = Flights()
    (first,), (one,) = board(flights, range(0, 4), set())
    _, (two,) = board(flights, range(2, 4), set())
    flights.land(first, 0)
    flights.end(first, SourceUnavailable("down"))
    for future in (one, two):
        with pytest.raises(SourceUnavailable, match="down"):
            future.result(timeout=0)
    started, _ = board(flights, range(0, 4), {0})
    assert [flight.run for flight in started] == [range(1, 4)]
    assert len(flights) == 1


def test_a_flight_that_ends_leaves_nothing_behind() -> None:
    flights = Flights()
    started, _ = board(flights, range(0, 8), set())
    for flight in started:
        flights.end(flight)
    assert len(flights) == 0
