"""The text of HTTP/1.1: pure functions from a request to the bytes of its head, and back from a response's.

Everything that decides how a body is framed or whether a connection may be used again is here, without a
socket; `http1_connection` moves the bytes, `http1` pools the connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cache_engine.errors import InvalidValue

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_NOT_IN_TARGET = re.compile(r"[^!-~]")
_NOT_IN_VALUE = re.compile(r"[\r\n\0]")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: |$)")
_LENGTH = re.compile(r"[0-9]{1,19}", re.ASCII)
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")

IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
"""Methods that may be sent again on a fresh connection when the old one turns out to be dead."""


class MalformedHead(ValueError):
    """What the other side sent is no HTTP/1.1 response, or one whose framing is ambiguous."""


@dataclass(frozen=True, slots=True)
class Head:
    """A response's head. `length`: bytes of body to come, None where only the end tells; `chunked` then says how."""

    status: int
    headers: Mapping[str, str]
    length: int | None
    chunked: bool
    keep_alive: bool


def request_head(method: str, target: str, host: str, headers: Sequence[tuple[str, str]], body: int) -> bytes:
    """The bytes up to and with the empty line. Raises InvalidValue for anything that could smuggle a header.

    Host and Content-Length are added unless `headers` names them; `body` is the length of what follows.
    """
    if not _TOKEN.fullmatch(method) or not target or _NOT_IN_TARGET.search(target):
        raise InvalidValue(f"{method!r} {target[:200]!r} is no request line; percent-encode the target")
    lines = [f"{method} {target} HTTP/1.1"]
    needs_host, needs_length = True, body > 0 or method in ("POST", "PUT")
    for name, value in headers:
        lower = _lower(name)
        if not lower:
            raise InvalidValue(f"header {name[:80]!r} has a name that HTTP does not allow")
        if lower == "host":
            needs_host = False
        elif lower == "content-length":
            needs_length = False
        lines.append(f"{name}: {value}")
    if needs_host:
        lines.insert(1, f"Host: {host}")
    if needs_length:
        lines.append(f"Content-Length: {body}")
    if _NOT_IN_VALUE.search("".join(lines)):  # once for all: a search a header costs as much as the rest
        raise InvalidValue(f"a header of {method} {target[:80]!r} has a value that HTTP does not allow")
    lines.append("\r\n")
    try:
        return "\r\n".join(lines).encode("latin-1")
    except UnicodeEncodeError as error:
        raise InvalidValue("a header holds characters outside latin-1; percent-encode or quote them") from error


def parse_head(raw: bytes, method: str) -> Head:
    """The head of the response to `method`, without its empty line. Raises MalformedHead."""
    first, _, rest = raw.partition(b"\r\n")
    match = _STATUS_LINE.match(first)
    if not match:
        raise MalformedHead(f"the answer begins with {first[:60]!r}, which is no HTTP/1.1 status line")
    status = int(match[2])
    headers = _parse_fields(rest.decode("latin-1"))
    chunked = _is_chunked(headers)
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection and (match[1] == b"1" or "keep-alive" in connection)
    length = None if chunked else _content_length(headers)
    if method == "HEAD" or status in (204, 304) or status < 200:
        length, chunked = 0, False
    return Head(status, headers, length, chunked, keep_alive and (length is not None or chunked))


def parse_chunk_size(line: bytes) -> int:
    """'1a2b;extension' -> bytes in the chunk. Raises MalformedHead."""
    match = _CHUNK_SIZE.fullmatch(line.partition(b";")[0].strip(b" \t"))
    if not match:
        raise MalformedHead(f"{line[:40]!r} is no size of a chunk")
    return int(match[0], 16)


@lru_cache(maxsize=512)
def _lower(name: str) -> str:
    """The name in lower case, empty where it is none: the same few names come by the ten thousand."""
    return name.lower() if _TOKEN.fullmatch(name) else ""


def _parse_fields(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in text.split("\r\n") if text else ():
        written, colon, value = line.partition(":")
        name = _lower(written)
        if not colon or not name:
            raise MalformedHead(f"{line[:60]!r} is no header line")
        value = value.strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name != "content-length":
            headers[name] += ", " + value
        elif headers[name] != value:
            raise MalformedHead("two different Content-Length headers")
    return headers


def _is_chunked(headers: Mapping[str, str]) -> bool:
    coding = headers.get("transfer-encoding", "").lower()
    if coding in ("", "identity"):
        return False
    if coding != "chunked" or "content-length" in headers:
        raise MalformedHead(f"transfer coding {coding[:40]!r} is not understood, or comes with a Content-Length")
    return True


def _content_length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not _LENGTH.fullmatch(text):
        raise MalformedHead(f"Content-Length {text[:40]!r} is no number of bytes")
    return int(text)
