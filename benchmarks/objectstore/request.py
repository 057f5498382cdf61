"""One request as it came in, and the reading of it from a socket. Knows HTTP, no dialect."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

HEAD_LIMIT = 64 << 10
BODY_LIMIT = 1 << 30
_ABSOLUTE = re.compile(r"https?://[^/?]*", re.IGNORECASE)


class BadRequest(ValueError):
    """What came in is not HTTP/1.1 as far as this store speaks it."""


@dataclass(slots=True)
class Request:
    """A line of the store's log. `status` 0: not answered (yet), or dropped without a head."""

    method: str
    target: str
    """As sent, still percent-encoded; an absolute form without its scheme and authority."""
    headers: Mapping[str, str]
    """Lower-case names; of a repeated one, the values joined by a comma."""
    body: bytes = field(default=b"", repr=False)
    at: float = 0.0
    """Seconds since the store started."""
    connection: int = 0
    status: int = 0
    sent: int = 0
    """Body bytes handed to the kernel."""

    @property
    def raw_path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def path(self) -> bytes:
        """Percent-decoded once, with the leading slash."""
        return unquote_to_bytes(self.raw_path)

    @property
    def query(self) -> list[tuple[str, str]]:
        """Decoded pairs in order; a plus sign is a blank, as in a form. Other than UTF-8: surrogate escapes."""
        raw = self.target.partition("?")[2]
        pairs = (part.partition("=") for part in raw.split("&") if part)
        return [(_form_text(name), _form_text(value)) for name, _, value in pairs]

    @property
    def params(self) -> dict[str, str]:
        return dict(self.query)

    @property
    def line(self) -> str:
        """What rules are matched against: METHOD and raw target."""
        return f"{self.method} {self.target}"

    @property
    def host(self) -> str:
        return self.headers.get("host", "")

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


def raw_bytes(text: str) -> bytes:
    """What `Request.query` decoded, as bytes again."""
    return text.encode("utf-8", "surrogateescape")


def _form_text(raw: str) -> str:
    return unquote_to_bytes(raw.replace("+", " ")).decode("utf-8", "surrogateescape")


class RequestReader:
    """Takes requests off one socket; keeps what was received beyond the last one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""

    def next(self) -> Request | None:
        """The next request with its body; None where the peer closed. Raises BadRequest, OSError."""
        head = self._head()
        if head is None:
            return None
        request = parse_head(head)
        if request.headers.get("expect", "").lower() == "100-continue":
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.body = self._body(request.headers)
        return request

    def _head(self) -> str | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise BadRequest(f"the head is longer than {HEAD_LIMIT} bytes")
            if not self._more():
                return None
        head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        return head.decode("latin-1")

    def _more(self) -> bool:
        received = self._sock.recv(65536)
        self._buffer += received
        return bool(received)

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunks()
        text = headers.get("content-length", "0")
        if not text.isascii() or not text.isdigit() or int(text) > BODY_LIMIT:
            raise BadRequest(f"content-length {text!r} is not a number up to {BODY_LIMIT}")
        body = self._exactly(int(text))
        return unchunk_aws(body) if "aws-chunked" in headers.get("content-encoding", "") else body

    def _exactly(self, n: int) -> bytes:
        if n <= len(self._buffer):
            body, self._buffer = self._buffer[:n], self._buffer[n:]
            return body
        whole = bytearray(n)
        have = len(self._buffer)
        whole[:have] = self._buffer
        self._buffer = b""
        view = memoryview(whole)
        while have < n:
            received = self._sock.recv_into(view[have:])
            if not received:
                raise BadRequest(f"the body ended after {have} of {n} bytes")
            have += received
        return bytes(whole)

    def _chunks(self) -> bytes:
        pieces = []
        while size := int(self._text_line().partition(";")[0], 16):
            pieces.append(self._exactly(size))
            self._text_line()
        while self._text_line():
            pass
        return b"".join(pieces)

    def _text_line(self) -> str:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not self._more():
                raise BadRequest("the chunked body ended early")
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line.decode("latin-1")


def parse_head(head: str) -> Request:
    """Request line and headers, without the blank line -> Request. Raises BadRequest."""
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(f"{first[:200]!r} is not a request line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(f"{line[:200]!r} is not a header line")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    target = _ABSOLUTE.sub("", words[1], count=1)
    if words[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return Request(words[0], target if target.startswith("/") else "/" + target, headers)


def unchunk_aws(body: bytes) -> bytes:
    """The payload of an aws-chunked body: SIZE[;chunk-signature=...] lines; trailers are dropped."""
    pieces: list[bytes] = []
    position = 0
    while True:
        end = body.find(b"\r\n", position)
        if end < 0:
            raise BadRequest("the aws-chunked body has no last chunk")
        size = int(body[position:end].partition(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        position = end + 2 + size + 2
