"""The peers that cannot be beaten, only approached: plain sockets that do the same work, and nothing of ours.

As a process: `python -m benchmarks.plain serve FILE` sends ranges of one file by sendfile; `relay DIR` fetches a
range from an origin and passes it on (recv_into -> crc32c -> pwrite -> sendfile). Each prints its port. The
reading half (`pull`, `pull_through`) runs in the benchmark's own process, a thread a connection.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from crc32c import crc32c

MIB = 1 << 20
_TREE = Path(__file__).resolve().parents[1]
_ASK = struct.Struct("<QQ")


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)
    return sock


def receive(sock: socket.socket, view: memoryview, summed: bool) -> None:
    """Fill `view` 1 MiB at a time, each summed with CRC32C as it is hot, or not."""
    for start in range(0, len(view), MIB):
        part = view[start : start + MIB]
        if sock.recv_into(part, len(part), socket.MSG_WAITALL) != len(part):
            raise ConnectionError("the plain peer ended early")
        if summed:
            crc32c(part)


def pull(port: int, view: memoryview, connections: int, summed: bool, span: int = 64 * MIB) -> None:
    """The whole file from `serve` into `view`, split evenly over the connections."""
    share = -(-len(view) // connections)

    def one(n: int) -> None:
        with connect(port) as sock:
            for start in range(n * share, min(len(view), (n + 1) * share), span):
                stop = min(start + span, len(view), (n + 1) * share)
                sock.sendall(_ASK.pack(start, stop - start))
                receive(sock, view[start:stop], summed)

    _together(one, connections)


def _together(one: Callable[[int], None], count: int) -> None:
    if count == 1:
        one(0)
        return
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count)))


def pull_through(ports: list[int], view: memoryview, connections: int, piece: int, ask: bytes) -> None:
    """Pieces of an object through relays, `connections` at a time; `ask` names the origin, the object and its GET."""
    local = threading.local()
    opened: list[socket.socket] = []

    def take(start: int) -> None:
        port = ports[start // piece % len(ports)]
        socks = local.__dict__.setdefault("socks", {})
        if port not in socks:
            socks[port] = connect(port)
            opened.append(socks[port])
        part = view[start : start + piece]
        socks[port].sendall(struct.pack("<I", len(ask)) + ask + _ASK.pack(start, len(part)))
        receive(socks[port], part, False)

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(take, range(0, len(view), piece)))
    for sock in opened:
        sock.close()


def _serve_file(conn: socket.socket, fd: int) -> None:
    with conn:
        while ask := conn.recv(_ASK.size, socket.MSG_WAITALL):
            start, length = _ASK.unpack(ask)
            while length:
                sent = os.sendfile(conn.fileno(), fd, start, length)
                start, length = start + sent, length - sent


def _relay(conn: socket.socket, directory: str) -> None:
    """ask: origin port, object name and ready-made request head; then fetch, sum, write, pass on block by block."""
    scratch = memoryview(bytearray(MIB))
    origin: socket.socket | None = None
    with conn:
        while size := conn.recv(4, socket.MSG_WAITALL):
            ask = conn.recv(struct.unpack("<I", size)[0], socket.MSG_WAITALL).decode()
            start, length = _ASK.unpack(conn.recv(_ASK.size, socket.MSG_WAITALL))
            port, name, head = ask.split("\0", 2)
            origin = origin or connect(int(port))
            fd = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _pass_on(
                    conn,
                    origin,
                    head.replace("@RANGE@", f"bytes={start}-{start + length - 1}"),
                    fd,
                    start,
                    length,
                    scratch,
                )
            finally:
                os.close(fd)


def _pass_on(
    conn: socket.socket, origin: socket.socket, head: str, fd: int, start: int, length: int, scratch: memoryview
) -> None:
    origin.sendall(head.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += origin.recv(4096)
    answer, _, rest = answer.partition(b"\r\n\r\n")
    scratch[: len(rest)] = rest
    have = len(rest)
    while length:
        block = scratch[: min(MIB, length)]
        if have < len(block):
            origin.recv_into(block[have:], len(block) - have, socket.MSG_WAITALL)
        crc32c(block)
        os.pwrite(fd, block, start)
        at, left = start, len(block)
        while left:
            sent = os.sendfile(conn.fileno(), fd, at, left)
            at, left = at + sent, left - sent
        start, length, have = start + len(block), length - len(block), 0


class PlainProcess:
    """`python -m benchmarks.plain WHAT WHERE` as a child; a context manager."""

    def __init__(self, what: str, where: str) -> None:
        command = [sys.executable, "-m", "benchmarks.plain", what, where]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_TREE)
        assert self._child.stdout is not None
        self.port = int(self._child.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()


def main() -> None:
    what, where = sys.argv[1:3]
    server = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(server.getsockname()[1], flush=True)
    fd = os.open(where, os.O_RDONLY) if what == "serve" else -1
    while True:
        conn, _ = server.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        target, arg = (_serve_file, fd) if what == "serve" else (_relay, where)
        threading.Thread(target=target, args=(conn, arg), daemon=True).start()


if __name__ == "__main__":
    main()
