"""Bytes that are filled where they lie."""

from __future__ import annotations

import pytest

from cache_engine.fresh_bytes import fresh_bytes


@pytest.mark.parametrize("size", [0, 1, 2, 255, 4096, 1 << 20])
def test_what_is_written_into_the_view_is_the_bytes(size: int) -> None:
    body, view = fresh_bytes(size)
    wanted = bytes(n % 251 for n in range(size))
    view[:] = wanted
    assert body == wanted
    assert hash(body) == hash(wanted)
    assert type(body) is bytes


def test_two_of_them_share_nothing_with_each_other_or_with_pythons_own_single_bytes() -> None:
    (one, first), (other, second) = fresh_bytes(1), fresh_bytes(1)
    first[:] = b"x"
    second[:] = b"y"
    assert (one, other) == (b"x", b"y")
    assert bytes([120]) == b"x"
