"""The version of an object, as HTTP headers tell it: read, demanded, compared. Pure.

A strong ETag or a version id names exact bytes and is demanded with If-Match; a weak ETag never matches If-Match,
so it and a bare Last-Modified are demanded with If-Unmodified-Since. Many servers ignore these headers: what
every response says of itself is compared as well. The forms of a version are those of `block.ObjectId`.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache

UNKNOWN = "mtime:0"
"""The version of an object of which its source tells nothing but the size."""
_SECOND = 1_000_000_000
_ID_HEADERS = ("x-amz-version-id", "x-oss-version-id", "x-goog-generation")


def version_of(headers: Mapping[str, str]) -> tuple[str, int]:
    """(version, mtime in ns or 0) out of the headers (lower-case names) of an answer."""
    etag = headers.get("etag", "")
    seconds = http_seconds(headers.get("last-modified", ""))
    mtime_ns = seconds * _SECOND
    if etag.startswith("W/"):
        return f"weak:{etag}@{seconds}", mtime_ns
    if etag:
        return f"etag:{etag}", mtime_ns
    for name in _ID_HEADERS:
        if headers.get(name, "null") != "null":
            return f"id:{headers[name]}", mtime_ns
    return f"mtime:{mtime_ns}", mtime_ns


def demanded(version: str) -> dict[str, str]:
    """The request headers that make an obedient server refuse any other version."""
    kind, value = _split(version)
    if kind == "etag":
        return {"if-match": value}
    if kind in ("weak", "mtime"):
        seconds = _weak(value)[1] if kind == "weak" else int(value) // _SECOND
        return {"if-unmodified-since": formatdate(seconds, usegmt=True)} if seconds else {}
    return {}


def version_id(version: str) -> str:
    """The store's version id, to be asked for in the query; empty where the version is none."""
    kind, value = _split(version)
    return value if kind == "id" else ""


def difference(version: str, headers: Mapping[str, str]) -> str:
    """How the answer's own words contradict `version`, for people; empty where they do not."""
    kind, value = _split(version)
    etag = headers.get("etag", "")
    if kind == "etag":
        return "" if etag == value else f"its ETag is {etag or 'absent'}, not {value}"
    if kind == "id":
        found = next((headers[name] for name in _ID_HEADERS if name in headers), "absent")
        return "" if found == value else f"its version id is {found}, not {value}"
    seconds = http_seconds(headers.get("last-modified", ""))
    wanted = int(value) // _SECOND if kind == "mtime" else 0
    if kind == "weak":
        wanted_etag, wanted = _weak(value)
        if etag != wanted_etag:
            return f"its ETag is {etag or 'absent'}, not {wanted_etag}"
    return "" if seconds == wanted else f"it was modified at {seconds}, not at {wanted} s since the epoch"


@lru_cache(maxsize=4096)
def http_seconds(text: str) -> int:
    """An HTTP date -> whole seconds since the epoch; 0 where it is none (cached: one object, thousands of ranges)."""
    try:
        return max(0, int(parsedate_to_datetime(text).timestamp())) if text else 0
    except (ValueError, OverflowError):
        return 0


def _split(version: str) -> tuple[str, str]:
    kind, _, value = version.partition(":")
    return kind, value


def _weak(value: str) -> tuple[str, int]:
    etag, _, seconds = value.rpartition("@")
    return etag, int(seconds)
