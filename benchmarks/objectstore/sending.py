"""Putting an answer on a socket: at once, or on the schedule of a slow line, with little CPU.

Files go out by sendfile. Under a rate, slice k leaves when its last byte is due, so the last byte of n arrives after
n / rate seconds and no timer's lateness adds up; the process sleeps in between.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from benchmarks.objectstore.answer import Answer, http_date
from benchmarks.objectstore.body import Body, FileBody

SLICE = 256 << 10
"""Bytes a step under a rate: 4.4 ms at 60 MB/s."""
FREE_SLICE = 8 << 20
"""Bytes a step without a rate: a call takes milliseconds, so what Python adds does not show."""
MADE_SLICE = 1 << 20
"""Bytes of a made body in memory at one time."""
SHORTEST_SLEEP = 0.0002
"""Seconds; a sleep is late by 0.06 ms and more, so a shorter one makes the line slower than its schedule."""
LONGEST_SLEEP = 0.05
"""Seconds; a line slower than 5 MB/s trickles in smaller steps, and a store that closes waits no longer than this."""
ONE_PACKET = 64 << 10
"""Bytes up to which a body goes out with its head in one call: 16 KiB of a file take 25 us less than by sendfile."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

Account = Callable[[int], None]
"""Called with the bytes about to leave, before the peer can see them; with a negative number where they did not."""


def head_of(answer: Answer, *, close: bool) -> bytes:
    """Status line and headers, the blank line included. An answer's own header stands before ours of that name."""
    headers = {"Date": http_date(int(time.time())), "Server": "forebay-objectstore", **answer.headers}
    if answer.status not in (204, 304):
        headers.setdefault("Content-Length", str(answer.length))
    if close:
        headers["Connection"] = "close"
    phrase = _PHRASES.get(answer.status, "Status")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} {phrase}\r\n{lines}\r\n".encode("latin-1")


def send_answer(sock: socket.socket, answer: Answer, rate: float | None, account: Account, *, bodiless: bool) -> bool:
    """True where every announced byte went out. Raises OSError where the peer or the file went away."""
    head = head_of(answer, close=answer.end == "close" and answer.send is None)
    wanted = 0 if bodiless else answer.length
    length = wanted if answer.send is None else min(answer.send, wanted)
    rate = answer.rate or rate
    if rate is None and length <= ONE_PACKET:
        account(length)
        sock.sendall(head + answer.body.read(answer.start, length) if length else head)
        return length == wanted
    fd = answer.body.open() if isinstance(answer.body, FileBody) else -1
    try:
        # MSG_MORE joins the head to the first slice; under a rate that slice comes later, and no head must wait.
        sock.sendall(head, socket.MSG_MORE if length and rate is None else 0)
        _send_body(sock, fd, answer.body, (answer.start, answer.start + length), _Pace(rate, account))
    finally:
        if fd >= 0:
            os.close(fd)
    return length == wanted


@dataclass(slots=True)
class _Pace:
    rate: float | None
    account: Account


def _send_body(sock: socket.socket, fd: int, body: Body, span: tuple[int, int], pace: _Pace) -> None:
    start, stop = span
    began, position = time.perf_counter(), start
    step = _step(pace.rate, is_file=fd >= 0)
    while position < stop:
        piece = min(step, stop - position)
        if pace.rate:
            _wait_until(began + (position + piece - start) / pace.rate)
        pace.account(piece)
        sent = 0
        try:
            sent = _send_piece(sock, fd, body, position, piece)
        finally:
            if sent < piece:
                pace.account(sent - piece)
        if not sent:
            raise OSError(errno.ESTALE, "the file got shorter while it was sent")
        position += sent


def _step(rate: float | None, *, is_file: bool) -> int:
    if rate:
        return max(1, min(SLICE, int(rate * LONGEST_SLEEP)))
    return FREE_SLICE if is_file else MADE_SLICE


def _send_piece(sock: socket.socket, fd: int, body: Body, offset: int, n: int) -> int:
    if fd >= 0:
        return os.sendfile(sock.fileno(), fd, offset, n)
    piece = body.read(offset, n)
    sock.sendall(piece)
    return len(piece)


def _wait_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > SHORTEST_SLEEP:
        time.sleep(left)
