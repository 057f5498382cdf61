"""One client connection, served by one thread: request, decision, silence, answer, and the next request."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.objectstore.answer import Answer, text_answer
from benchmarks.objectstore.request import BadRequest, Request, RequestReader
from benchmarks.objectstore.sending import send_answer
from benchmarks.objectstore.tally import Tally

CONTROL = "/-/"
"""Targets below this are for whoever runs the store: neither logged, counted, delayed nor faulted."""
_LONG = 0.2
"""Seconds from which on a silence also watches for a client that gives up."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What every connection of a store is served by."""

    decide: Callable[[Request], Answer]
    control: Callable[[Request], Answer]
    tally: Tally
    first_byte: float
    rate: float | None
    started: float


class Connection:
    """`run` is the thread's body; `drop`, from another thread, ends it."""

    def __init__(self, sock: socket.socket, terms: Terms) -> None:
        self._sock = sock
        self._terms = terms
        self._number = terms.tally.connected()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __repr__(self) -> str:
        return f"<Connection {self._number}>"

    def run(self) -> None:
        reader = RequestReader(self._sock)
        try:
            while (request := reader.next()) is not None and self._serve(request):
                pass
        except (BadRequest, ValueError) as e:
            self._refuse(str(e))
        except OSError:
            pass  # the client went away, or the store is closing
        finally:
            self._sock.close()
            self._terms.tally.disconnected()

    def drop(self) -> None:
        """Wake the thread out of whatever it waits for."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has just ended by itself

    def _serve(self, request: Request) -> bool:
        """False where the connection ends."""
        if request.target.startswith(CONTROL):
            self._send(request, self._terms.control(request), lambda n: None)
            return request.keep_alive
        tally, arrived = self._terms.tally, time.perf_counter()
        request.at, request.connection = time.monotonic() - self._terms.started, self._number
        tally.began(request)
        try:
            answer = self._terms.decide(request)
            request.body = b""  # the log need not keep it
            self._silence(arrived + self._terms.first_byte + answer.delay)
            tally.answering(request, answer.status)
            if answer.status:
                self._send(request, answer, lambda n: tally.leaving(request, n))
        finally:
            tally.ended()
        return self._ends(answer) and request.keep_alive

    def _send(self, request: Request, answer: Answer, account: Callable[[int], None]) -> None:
        bodiless = request.method == "HEAD" or answer.status in (204, 304)
        send_answer(self._sock, answer, self._terms.rate, account, bodiless=bodiless)

    def _ends(self, answer: Answer) -> bool:
        """Do what the answer says of the connection; True where it goes on."""
        if answer.end == "reset":
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return answer.end == "keep"

    def _silence(self, until: float) -> None:
        """Wait; a long wait ends early with the client (or the store): OSError."""
        left = until - time.perf_counter()
        if left >= _LONG:
            poll = select.poll()
            poll.register(self._sock, select.POLLRDHUP)
            if poll.poll(min(left, 1e6) * 1000):
                raise ConnectionAbortedError("the client gave up waiting")
        elif left > 0:
            time.sleep(left)

    def _refuse(self, reason: str) -> None:
        try:
            send_answer(self._sock, text_answer(400, reason + "\n", "text/plain"), None, lambda n: None, bodiless=False)
        except OSError:
            pass  # nobody is there to be told
