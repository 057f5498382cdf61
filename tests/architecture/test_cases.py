"""Every reported fault of a finished family has a test of its own."""

from __future__ import annotations

from tests.architecture import cases


def test_every_case_of_a_finished_family_has_a_test() -> None:
    assert cases.gaps() == []
