"""Cells onto sockets without a copy in Python: the sending half of `server.py`.

Large ranges go out by the loop's own sendfile; a batch of small files by a thread with os.sendfile, since
asyncio's costs 60-80 us a call and a small file only 20. A range that is not in the page cache is read
ahead in a thread first: one cold sendfile on the loop stops every connection (22 ms against 0.3).
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from collections.abc import Iterable

from aiohttp import web

from cache_engine.block import BLOCK
from cache_engine.lease import Lease

STALLED = 60.0
"""Seconds without a byte taken after which a reader of a batch is given up."""
Piece = tuple[int, int] | bytes | bytearray
"""(descriptor, length from its start), or the bytes themselves."""
_local = threading.local()


class _Descriptor:
    """What loop.sendfile wants of a file: a number."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


async def send_range(response: web.StreamResponse, request: web.Request, lease: Lease, start: int, stop: int) -> None:
    """Bytes [start, stop) of a cell as the body of a prepared response.

    Raises ConnectionResetError where the reader went away.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the reader went away")
    loop = asyncio.get_running_loop()
    if not in_page_cache(lease.fd, start, stop):
        await asyncio.to_thread(read_ahead, lease.fd, start, stop)
    await loop.sendfile(transport, _Descriptor(lease.fd), start, stop - start)  # type: ignore[arg-type]
    await response.write_eof()


def in_page_cache(fd: int, start: int, stop: int) -> bool:
    """Whether one byte a block can be read without waiting; a sample, since asking for all costs a copy of all."""
    probe = bytearray(1)
    try:
        for offset in (*range(start, stop, BLOCK), stop - 1):
            os.preadv(fd, [probe], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as exc:
        return exc.errno == errno.EOPNOTSUPP
    return True


def read_ahead(fd: int, start: int, stop: int) -> None:
    """Bring [start, stop) into the page cache; runs in a thread."""
    os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_WILLNEED)
    scratch: bytearray | None = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = bytearray(BLOCK)
    while start < stop and (got := os.preadv(fd, [scratch], start)):
        start += got


async def send_pieces(request: web.Request, table: bytes, pieces: Iterable[Piece]) -> None:
    """`table`, then each piece: (descriptor, length) from its start, or plain bytes. The response is prepared.

    A duplicate of the socket goes to the thread: the transport may close its own meanwhile, and a closed
    number may already be another connection.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the reader went away")
    while transport.get_write_buffer_size():  # noqa: ASYNC110 - the head is 200 bytes: nearly always gone at once
        await asyncio.sleep(0.001)
    sock = os.dup(transport.get_extra_info("socket").fileno())
    try:
        await asyncio.to_thread(_send_all, sock, table, pieces)
    except OSError as exc:
        transport.abort()
        raise ConnectionResetError("the reader went away in the middle of a batch") from exc
    finally:
        os.close(sock)


def _send_all(sock: int, table: bytes, pieces: Iterable[Piece]) -> None:
    writable = select.poll()
    writable.register(sock, select.POLLOUT)
    _send_bytes(sock, table, writable)
    for piece in pieces:
        if isinstance(piece, bytes | bytearray):
            _send_bytes(sock, piece, writable)
        else:
            _send_file(sock, *piece, writable)


def _send_file(sock: int, fd: int, length: int, writable: select.poll) -> None:
    offset = 0
    while offset < length:
        try:
            sent = os.sendfile(sock, fd, offset, length - offset)
        except BlockingIOError:
            _wait(writable)
            continue
        if not sent:
            raise OSError(errno.EIO, "a cell is shorter than its voucher says")
        offset += sent


def _send_bytes(sock: int, data: bytes | bytearray, writable: select.poll) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(sock, view) :]
        except BlockingIOError:
            _wait(writable)


def _wait(writable: select.poll) -> None:
    if not writable.poll(STALLED * 1000):
        raise OSError(errno.ETIMEDOUT, f"the reader took nothing for {STALLED:.0f} s")
