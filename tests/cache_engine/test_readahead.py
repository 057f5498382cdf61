"""The sequential window: what it says to fetch, question by question."""

from __future__ import annotations

from collections.abc import Callable

from cache_engine.readahead import SequentialWindow
from cache_engine.sizes import KIB, MIB


def windows(seconds: Callable[[int], float], count: int) -> list[int]:
    """MiB of the windows of a sequential reader, where a fetch of n MiB takes `seconds(n)`."""
    window, offset, sizes = SequentialWindow(), 0, []
    for _ in range(count):
        wanted = window.next(offset, 64 * KIB)
        window.landed(wanted, seconds(wanted // MIB))
        sizes.append(wanted // MIB)
        offset += wanted
    return sizes


def test_sequential_fetches_double_from_one_mebibyte_to_64_where_latency_costs() -> None:
    assert windows(lambda mib: 0.1 + mib / 480, 9) == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_a_place_that_is_no_faster_with_larger_windows_keeps_the_small_ones() -> None:
    assert windows(lambda mib: mib / 2000, 9) == [1, 2, 4, 8, 16, 32, 16, 16, 16]


def test_the_window_stays_where_doubling_no_longer_pays() -> None:
    assert windows(lambda mib: 0.02 + mib / 480, 9) == [1, 2, 4, 8, 16, 32, 64, 32, 32]


def test_a_jump_fetches_exactly_what_is_asked_for() -> None:
    window = SequentialWindow()
    assert window.next(0, 10) == MIB
    for offset in (5_000_000, 77, 9_000_123):
        assert window.next(offset, 4096) == 4096


def test_a_jump_and_its_refill_stay_exact_and_the_third_fetch_opens_the_window_again() -> None:
    window, offset = SequentialWindow(), 10 * MIB + 100
    assert window.next(offset, 64 * KIB) == 64 * KIB
    assert window.next(offset + 64 * KIB, 64 * KIB) == 64 * KIB
    third = window.next(offset + 128 * KIB, 64 * KIB)
    assert 64 * KIB < third <= MIB
    assert (offset + 128 * KIB + third) % MIB == 0, "windows end at block borders"


def test_never_less_than_what_is_needed() -> None:
    window = SequentialWindow()
    assert window.next(0, 100 * MIB) == 100 * MIB
    assert window.next(100 * MIB, 3 * MIB + 1) >= 3 * MIB + 1


def test_nothing_is_worth_fetching_ahead_of_a_random_reader() -> None:
    window = SequentialWindow()
    window.next(5 * MIB, 4096)
    assert window.next(5 * MIB + 4096, 0) == 0


def test_the_same_questions_get_the_same_answers() -> None:
    questions = [(0, 10), (MIB, 10), (3 * MIB, 0), (5, 5), (10, 5), (15, 5)]
    one, other = SequentialWindow(), SequentialWindow()
    assert [one.next(*q) for q in questions] == [other.next(*q) for q in questions]
