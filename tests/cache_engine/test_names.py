"""Shown names are a bijection: whatever a key holds, its shown form leads back to it and to nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cache_engine.errors import InvalidValue
from cache_engine.names import parse, quote_wire, show, showable, unquote_wire

ODD = st.lists(st.sampled_from([b"/", b".", b"..", b"\0", b"a", b"\xff", b"\xef\xbc\x85", b"00", b"\xc2\x80", b"\n"]))


@given(st.binary(max_size=40) | ODD.map(b"".join))
@example(b"/")
@example(b"\0")
@example(b"\0\0/\0")
@example(b"a/")
@example(b"\xef\xbc\x85")
@example(b"a//../b/.")
def test_parse_leads_back_from_every_shown_name(path: bytes) -> None:
    shown = show(path)
    assert parse(shown) == path
    segments = shown.split("/")
    assert all(segment not in (".", "..") for segment in segments)
    assert shown == "" or "" not in segments
    assert shown.encode().decode() == shown, "no byte of it is outside UTF-8"


@given(st.text(alphabet="a/.\0\uff050EF\u00e9\udc80\ud800", max_size=12))
def test_what_parse_takes_is_what_show_gives(shown: str) -> None:
    try:
        path = parse(shown)
    except InvalidValue:
        return
    assert show(path) == shown or (shown.endswith("/") and show(path[:-1]) == shown[:-1])


@pytest.mark.parametrize(
    "name", ["a b", "a+b", "a%2Bb", "100%", "icon (14x13).png", "数据/训练.bin", "Rat\u00a0.txt", ""]
)
def test_ordinary_names_show_as_themselves(name: str) -> None:
    assert show(name.encode()) == name
    assert parse(name) == name.encode()


@pytest.mark.case("A07")
def test_two_slashes_show_under_a_name_of_their_own() -> None:
    assert show(b"2026/1//abc") == "2026/1/\uff0500/abc"
    assert show(b"2026/1/abc") == "2026/1/abc"
    assert show(b"2026/1///") == "2026/1/\uff0500/\uff0500/\uff0500"
    assert show(b"\0") == "\uff0500\uff0500", "a NUL is not the empty segment"


@pytest.mark.parametrize(
    "name", ["a//b", "/a", "..", "a/../b", "./a", "\uff05", "\uff05zz", "\uff0561", "a\uff0500/\uff052e"]
)
def test_what_is_never_shown_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        parse(name)


def test_a_trailing_slash_names_the_folder_marker() -> None:
    assert parse("filled-dir/") == b"filled-dir/"


def test_segments_over_255_bytes_when_shown_cannot_be_shown() -> None:
    assert showable(b"d/" + b"x" * 255)
    assert not showable(b"d/" + b"x" * 256 + b"/y")
    assert showable(b"\xff" * 51) and not showable(b"\xff" * 52)
    assert not showable(b"/x"), "a folder without a name in the root"


@pytest.mark.case("A03")
def test_plus_blank_and_encoded_plus_are_three_names_on_the_wire() -> None:
    assert [quote_wire(key) for key in (b"q/a+b", b"q/a b", b"q/a%2Bb")] == ["q/a%2Bb", "q/a%20b", "q/a%252Bb"]


@given(st.binary(max_size=40))
def test_the_wire_form_is_reversible(path: bytes) -> None:
    assert unquote_wire(quote_wire(path)) == path


@pytest.mark.parametrize("raw", ["%", "a%2", "%zz", "é"])
def test_broken_percent_encoding_is_refused(raw: str) -> None:
    with pytest.raises(InvalidValue):
        unquote_wire(raw)


def test_a_plus_on_the_wire_stays_a_plus() -> None:
    assert unquote_wire("a+b") == b"a+b"
