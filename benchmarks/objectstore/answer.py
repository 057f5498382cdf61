"""What the store says to one request: a value. Dialects make answers, faults change them, `sending.py` sends them.

The pure rules of HTTP that every dialect shares stand here too: preconditions and ranges.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Literal

from benchmarks.objectstore.body import EMPTY, Body, MemoryBody
from benchmarks.objectstore.objects import StoredObject
from benchmarks.objectstore.request import Request

_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` 0 sends nothing at all."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = EMPTY
    start: int = 0
    length: int = 0
    """Announced are the body's bytes [start, start + length)."""
    delay: float = 0.0
    """Seconds of silence before the head, beside the store's own first-byte time."""
    send: int | None = None
    """How many of the announced bytes go out; None: all."""
    end: Literal["keep", "close", "reset"] = "keep"
    """What becomes of the connection afterwards."""
    rate: float | None = None
    """Bytes a second instead of the store's own rate."""


def text_answer(status: int, text: str | bytes, kind: str, headers: Mapping[str, str] | None = None) -> Answer:
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return Answer(status, {"Content-Type": kind, **(headers or {})}, MemoryBody(raw), 0, len(raw))


@functools.lru_cache(maxsize=1024)
def http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


@dataclass(frozen=True, slots=True)
class ByteRange:
    start: int
    stop: int


def parse_range(header: str, size: int, *, lenient: bool = False) -> ByteRange | None:
    """The one range asked for; None: the whole object (no range, several, or not of the form).

    An empty ByteRange (start == stop) cannot be satisfied. `lenient` is Aliyun's rule without
    `x-oss-range-behavior: standard`: a range that does not lie inside the object means the whole of it.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    if not match[1]:
        return ByteRange(max(0, size - int(match[2])), size)
    start, last = int(match[1]), int(match[2]) if match[2] else size - 1
    if match[2] and last < start:
        return None
    if lenient and (start >= size or last >= size):
        return None
    return ByteRange(start, min(last + 1, size)) if start < size else ByteRange(0, 0)


def failed_precondition(stored: StoredObject, request: Request) -> int:
    """0, 304 or 412 by RFC 9110, section 13.2.2: an ETag speaks before a date."""
    headers = request.headers
    match, since = headers.get("if-match"), _seconds(headers.get("if-unmodified-since"))
    if match is not None:
        if not _matches(match, stored.etag, weak=False):
            return 412
    elif since is not None and int(stored.mtime) > since:
        return 412
    none_match, modified = headers.get("if-none-match"), _seconds(headers.get("if-modified-since"))
    if none_match is not None:
        return 304 if _matches(none_match, stored.etag, weak=True) else 0
    return 304 if modified is not None and int(stored.mtime) <= modified else 0


def object_answer(stored: StoredObject, request: Request, *, lenient: bool = False) -> Answer:
    """GET or HEAD of an object, with a status alone where a precondition fails or the range cannot be satisfied."""
    headers = {
        "ETag": stored.etag,
        "Last-Modified": http_date(int(stored.mtime)),
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
        **stored.headers,
    }
    status = failed_precondition(stored, request)
    if status:
        return Answer(status, headers if status == 304 else {})
    wished = parse_range(request.headers.get("range", ""), stored.size, lenient=lenient)
    if wished is None or not _range_applies(stored, request):
        return Answer(200, headers, stored.body, 0, stored.size)
    if wished.start >= wished.stop:
        return Answer(416, {"Content-Range": f"bytes */{stored.size}"})
    headers["Content-Range"] = f"bytes {wished.start}-{wished.stop - 1}/{stored.size}"
    return Answer(206, headers, stored.body, wished.start, wished.stop - wished.start)


def _range_applies(stored: StoredObject, request: Request) -> bool:
    condition = request.headers.get("if-range")
    if condition is None:
        return True
    if condition.startswith(('"', "W/")):
        return _matches(condition, stored.etag, weak=False)
    return _seconds(condition) == int(stored.mtime)


def _matches(header: str, etag: str, *, weak: bool) -> bool:
    """Strong comparison, unless `weak`; like the real stores, a tag without its quotes is understood."""
    given = [part.strip() for part in header.split(",")]
    if "*" in given:
        return True
    if weak:
        return _opaque(etag) in map(_opaque, given)
    return not etag.startswith("W/") and any(tag == etag or f'"{tag}"' == etag for tag in given)


def _opaque(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _seconds(date: str | None) -> float | None:
    """An HTTP date in seconds since the epoch; None where it is absent or not a date (then it does not count)."""
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
