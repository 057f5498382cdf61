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
import socket
import threading
from collections.abc import Iterable

from aiohttp import web

from cache_engine.block import BLOCK, blocks_of
from cache_engine.lease import Lease

STALLED = 60.0
"""Seconds without a byte taken after which a reader is given up: its lease must not hold room for ever."""
Piece = tuple[int, int] | bytes | bytearray
"""(descriptor, length from its start), or the bytes themselves."""
_local = threading.local()


class _Descriptor:
    """What loop.sendfile wants of a file: a number."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


async def send_cell(request: web.Request, lease: Lease, start: int, stop: int) -> None:
    """Bytes [start, stop) of a cell into the body of a prepared response.

    Raises ConnectionResetError where the reader went away, or took nothing for `STALLED` seconds, or where the
    cell turned out to be shorter than its voucher says: then the connection is cut, and what is bad is dropped.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the reader went away")
    loop = asyncio.get_running_loop()
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED * 1000))
    if not in_page_cache(lease.fd, start, stop):
        await asyncio.to_thread(read_ahead, lease.fd, start, stop)
    try:
        sent = await loop.sendfile(transport, _Descriptor(lease.fd), start, stop - start)  # type: ignore[arg-type]
    except RuntimeError as exc:  # the loop's word for a transport that closes
        raise ConnectionResetError("the reader went away") from exc
    if sent != stop - start:
        transport.abort()
        await asyncio.to_thread(_drop_damaged, lease, blocks_of(start, stop))
        raise ConnectionResetError(f"cell {lease.cell_name[:8]} ended after {sent} of {stop - start} bytes")


def _drop_damaged(lease: Lease, blocks: range) -> None:
    for block in blocks:
        lease.recheck(block)


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
