"""Names of objects as people, mounts and URLs see them, and back: keys are bytes and may hold anything.

Two independent encodings. *Shown* names (`show`, `parse`) are what a mount, `ls` and the Python client display: an
ordinary name shows as itself, also with blanks, `%`, `+` or any script of the world; only what no directory entry
can carry is escaped, as U+FF05 (FULLWIDTH PERCENT SIGN) and two hex digits a byte. *Wire* names (`quote_wire`) are
percent-encoding for the path of a URL, exactly one level of it. Pure functions; the manifest builds its tree by the
rules of `showable`.
"""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

from cache_engine.errors import InvalidValue

ESCAPE = "\uff05"
SEGMENT_LIMIT = 255
"""Bytes in one shown segment: NAME_MAX of Linux file systems."""
ALWAYS_SHOWABLE = SEGMENT_LIMIT // 5
"""A segment of so many bytes fits even if each of them is escaped (three bytes of U+FF05 and two digits)."""

_ESCAPED = re.compile("[\x00-\x1f\x7f-\x9f\uff05\udc80-\udcff]")
_MARK = re.compile("\uff05([0-9A-F]{2})?")
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\uff05\udc80-\udcff]|//|(?:^|/)\\.{1,2}(?:/|$)|^/|/$")
_UNRESERVED = "/-._~"


def show(path: bytes) -> str:
    """The path as people see it, one shown segment for each segment of the key. Never fails; `parse` is its inverse.

    Escaped are bytes that are not UTF-8, control characters, U+FF05 itself, and the segments `.`, `..` and nothing:
    a segment of n NUL bytes shows as n + 1 escaped NULs, so that the empty one (`a//b`) has a name too.
    """
    text = path.decode("utf-8", "surrogateescape")
    if not _ODD.search(text) or not text:
        return text
    return "/".join(map(_show_segment, text.split("/")))


def parse(shown: str) -> bytes:
    """The key bytes of a shown path. A trailing slash is kept: it names a folder marker.

    Raises InvalidValue for what `show` never gives: a broken or needless escape, `..`, `//`, a leading slash.
    """
    if ESCAPE not in shown and not _ODD.search(shown):
        return _encode(shown)
    parent, slash, last = shown.rpartition("/")
    whole = parent if slash and parent and not last else shown
    path = b"/".join(_parse_segment(segment) for segment in whole.split("/")) if whole else b""
    if show(path) != whole:
        raise InvalidValue(
            f"{shown!r} is not a path inside a Dataset: no leading slash, no empty, '.' or '..' segment; "
            f"{ESCAPE} and two hex digits (capitals) only for a byte that cannot be shown"
        )
    return path + b"/" if whole is not shown else path


def showable(path: bytes) -> bool:
    """Whether a directory tree can show the path.

    It cannot where a segment is over 255 bytes when shown, or where the path begins with a slash: a folder
    without a name in the root would have the root's own path. (Mounted at a path of its own, such a key shows.)
    """
    if path.startswith(b"/"):
        return False
    if len(path) <= ALWAYS_SHOWABLE:
        return True
    return all(len(segment.encode("utf-8", "surrogateescape")) <= SEGMENT_LIMIT for segment in show(path).split("/"))


def quote_wire(path: bytes) -> str:
    """The path percent-encoded for a URL: all but letters, digits, `-._~` and `/`."""
    return quote_from_bytes(path, safe=_UNRESERVED)


def unquote_wire(raw: str) -> bytes:
    """The bytes of a percent-encoded path as it came in a request line: decoded once, `+` stays a plus.

    Raises InvalidValue for a `%` without two hex digits, and for characters outside ASCII.
    """
    if not raw.isascii() or re.search("%(?![0-9A-Fa-f]{2})", raw):
        raise InvalidValue(f"{raw!r} is not a percent-encoded path: a byte outside ASCII, and a % itself, is %XX")
    return unquote_to_bytes(raw)


def _show_segment(text: str) -> str:
    if not text.strip("\0"):
        return f"{ESCAPE}00" * (len(text) + 1)
    if text in (".", ".."):
        return f"{ESCAPE}2E" * len(text)
    return _ESCAPED.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    return "".join(f"{ESCAPE}{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def _parse_segment(shown: str) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for mark in _MARK.finditer(shown):
        if mark[1] is None:
            raise InvalidValue(
                f"{shown!r} holds {ESCAPE} without two hex digits after it; {ESCAPE} itself is {_escape(ESCAPE)}"
            )
        pieces += _encode(shown[at : mark.start()]), bytes.fromhex(mark[1])
        at = mark.end()
    segment = b"".join(pieces) + _encode(shown[at:])
    return segment[1:] if shown and not segment.strip(b"\0") else segment


def _encode(text: str) -> bytes:
    """UTF-8. Lone surrogates of os.fsdecode become their bytes, and parse then refuses them: show escapes those."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as fault:
        raise InvalidValue(f"{text!r} holds half of a character pair; it names no bytes") from fault
