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
from typing import Any

from aiohttp import web

from cache_engine.block import BLOCK, blocks_of
from cache_engine.lease import Lease

STALLED = 60.0
"""Seconds without a byte taken after which a reader is given up: its lease must not hold room for ever."""
PATIENCE = 0.02
"""Seconds for which a thread waits for the reader of a batch before it leaves the waiting to the loop."""
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
        file: Any = _Descriptor(lease.fd)
        sent = await loop.sendfile(transport, file, start, stop - start, fallback=False)
    except RuntimeError as exc:  # the loop's word for a transport that closes, and for a first call that fails
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
    sending = _Sending(sock, table, pieces)
    try:
        while not await asyncio.to_thread(sending.go_on):
            await asyncio.wait_for(_writable(sock), STALLED)
    except (OSError, TimeoutError) as exc:
        transport.abort()
        raise ConnectionResetError("the reader went away in the middle of a batch, or took nothing") from exc
    finally:
        os.close(sock)


async def _writable(sock: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(sock)


class _Sending:
    """A batch on its way out. A thread carries it as long as the reader takes it, and is free for others when not."""

    def __init__(self, sock: int, table: bytes, pieces: Iterable[Piece]) -> None:
        self._sock = sock
        self._pieces = iter(pieces)
        self._piece: Piece | None = table
        self._offset = 0
        self._poll = select.poll()
        self._poll.register(sock, select.POLLOUT)

    def go_on(self) -> bool:
        """Send; True once all is sent, False when the reader takes nothing just now."""
        while self._piece is not None:
            try:
                left = self._step(self._piece)
            except BlockingIOError:
                if not self._poll.poll(PATIENCE * 1000):
                    return False
                continue
            if not left:
                self._piece, self._offset = next(self._pieces, None), 0
        return True

    def _step(self, piece: Piece) -> bool:
        """One system call; whether something of the piece is left."""
        if isinstance(piece, bytes | bytearray):
            if self._offset < len(piece):
                self._offset += os.write(self._sock, memoryview(piece)[self._offset :])
            return self._offset < len(piece)
        fd, length = piece
        if self._offset < length:
            sent = os.sendfile(self._sock, fd, self._offset, length - self._offset)
            if not sent:
                raise OSError(errno.EIO, "a cell is shorter than its voucher says")
            self._offset += sent
        return self._offset < length
