"""Which bytes of a file a request means, by its Range and its conditions (RFC 9110, sections 13 and 14): pure.

A reader's request (`reader_window`) is taken by the letter: what a worker cannot vouch for is refused. A person's
(`file_answer`) is read as any web server would: a Range of another form is ignored, If-Range keeps two versions apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cache_engine.block import BLOCK, SPAN
from cache_engine.errors import InvalidValue

Window = tuple[int, int]
"""[start, stop) in bytes."""
_RANGE = re.compile(r"bytes=(\d{1,19})?-(\d{1,19})?", re.ASCII)
_TAG = re.compile(r'(W/)?("[^"]*")')


class PastTheEnd(InvalidValue):
    """The range begins behind the last byte of an object of `size` bytes: 416."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


def byte_window(text: str, size: int) -> Window:
    """The window that one Range header names, cut to the object. Raises InvalidValue, PastTheEnd."""
    found = _RANGE.fullmatch(text.strip())
    first, last = found.groups() if found else (None, None)
    if first is None and last is None:
        raise InvalidValue(f"the Range header must be of the form bytes=FIRST-LAST, not {text[:60]!r}")
    if first is None:
        start, stop = max(0, size - int(last or 0)), size
    else:
        start, stop = int(first), size if last is None else min(size, int(last) + 1)
        if last is not None and int(first) > int(last):
            raise InvalidValue(f"the Range header {text[:60]!r} ends before it begins")
    if start >= stop:
        raise PastTheEnd(f"{text[:60]} has no byte of an object of {size} bytes", size)
    return start, stop


def reader_window(text: str | None, size: int) -> Window:
    """The window of a reader's request: whole blocks of one span, or inside one block, which one CRC each can prove."""
    if text is None:
        raise InvalidValue("a reader's request needs a Range of at least one byte")
    start, stop = byte_window(text, size)
    inside = start // BLOCK == (stop - 1) // BLOCK
    whole = start % BLOCK == 0 and (stop % BLOCK == 0 or stop == size) and start // SPAN == (stop - 1) // SPAN
    if not inside and not whole:
        raise InvalidValue(f"ask for whole blocks of one span, or for a range inside one block, not for {text[:60]}")
    return start, stop


def file_answer(headers: Mapping[str, str], etag: str, size: int) -> tuple[int, Window]:
    """(status, window) for a file of this strong ETag; 304 and 412 have no bytes, 200 has all. Raises PastTheEnd.

    `headers`: looked up by lower-case name, whatever their own case.
    """
    if "if-match" in headers and not _matches(headers["if-match"], etag, weak=False):
        return 412, (0, 0)
    if "if-none-match" in headers and _matches(headers["if-none-match"], etag, weak=True):
        return 304, (0, 0)
    asked = headers.get("range")
    if asked is None or headers.get("if-range", etag).strip() != etag:
        return 200, (0, size)
    try:
        return 206, byte_window(asked, size)
    except PastTheEnd:
        raise
    except InvalidValue:
        return 200, (0, size)


def _matches(listed: str, etag: str, *, weak: bool) -> bool:
    tags = [tag for mark, tag in _TAG.findall(listed) if weak or not mark]
    return listed.strip() == "*" or etag in tags
