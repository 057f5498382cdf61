"""How a read is cut into requests."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cache_engine import wire
from cache_engine.block import BLOCK, RUN, SPAN
from cache_engine.pieces import batches_of, piece_size, pieces_of


@given(size=st.integers(1, 5 * SPAN), data=st.data(), most=st.sampled_from([BLOCK, RUN, SPAN]))
def test_pieces_cover_the_range_once_and_each_can_be_vouched_for(size: int, data: st.DataObject, most: int) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start + 1, size))
    pieces = pieces_of(start, stop, size, most)
    assert pieces[0][0] == start
    assert pieces[-1][1] == stop
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    for first, last in pieces:
        assert first < last
        assert last - first <= most
        assert first // SPAN == (last - 1) // SPAN
        whole = first % BLOCK == 0 and (last % BLOCK == 0 or last == size)
        assert whole or first // BLOCK == (last - 1) // BLOCK


def test_one_connection_asks_whole_spans_and_several_share_the_work() -> None:
    assert pieces_of(0, 2 * SPAN, 2 * SPAN, piece_size(2 * SPAN, 1, RUN)) == [(0, SPAN), (SPAN, 2 * SPAN)]
    assert len(pieces_of(0, SPAN, SPAN, piece_size(SPAN, 4, RUN))) == 4
    assert piece_size(SPAN, 8, RUN) == SPAN // 8
    assert piece_size(1, 8, RUN) == 4 * BLOCK
    assert piece_size(100 * SPAN, 8, RUN) == RUN


def test_a_batch_ends_at_64_files_or_4_mib() -> None:
    assert [len(b) for b in batches_of([(n, 100) for n in range(130)])] == [64, 64, 2]
    assert [len(b) for b in batches_of([(n, BLOCK) for n in range(9)])] == [4, 4, 1]
    assert list(batches_of([])) == []


def test_the_table_of_a_batch_survives_the_wire() -> None:
    rows = [wire.BatchRow(0, 0xFFFFFFFF, 5), wire.BatchRow(409, 0, 1 << 40)]
    assert wire.unpack_rows(wire.pack_rows(rows)) == rows
    assert len(wire.pack_rows(rows)) == wire.rows_length(2)
    assert wire.unpack_indices(wire.pack_indices([0, 7, 4_000_000_000])) == [0, 7, 4_000_000_000]
