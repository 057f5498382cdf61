"""The peers that cannot be beaten, only approached: plain sockets that do the same work, and nothing of ours.

As a process: `python -m benchmarks.plain serve FILE` sends ranges of one file by sendfile; `relay DIR` fetches a
range from an origin and passes it on (recv_into -> crc32c -> pwrite -> sendfile). Each prints its port. The
reading half (`pull`, `pull_http`) runs in the benchmark's own process, a thread a connection.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from crc32c import crc32c

MIB = 1 << 20
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


def each_piece(ports: list[int], view: memoryview, connections: int, piece: int, ask: bytes, summed: bool) -> None:
    """Pieces of an object through relays, `connections` at a time; `ask` names the origin and the object."""
    pieces = [(n, start) for n, start in enumerate(range(0, len(view), piece))]
    socks: dict[tuple[int, int], socket.socket] = {}
    lock = threading.Lock()

    def take(at: tuple[int, int]) -> None:
        n, start = at
        part = view[start : start + piece]
        key = (threading.get_ident(), ports[n % len(ports)])
        sock = socks.get(key)
        if sock is None:
            sock = connect(key[1])
            with lock:
                socks[key] = sock
        sock.sendall(struct.pack("<I", len(ask)) + ask + _ASK.pack(start, len(part)))
        receive(sock, part, summed)

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(take, pieces))
    for sock in socks.values():
        sock.close()


def direct(url: str, view: memoryview, connections: int, piece: int, headers: Callable[[str, int, int], bytes]) -> None:
    """The same ranges straight from the origin into `view`: raw sockets, no CRC, nothing of ours."""
    parts = urlsplit(url)
    local = threading.local()

    def take(start: int) -> None:
        part = view[start : start + piece]
        if not hasattr(local, "sock"):
            local.sock = connect(parts.port or 80)
        fetch(local.sock, headers(url, start, start + len(part)), part)

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(take, range(0, len(view), piece)))


def fetch(
    sock: socket.socket, head: bytes, part: memoryview, landed: Callable[[memoryview], None] | None = None
) -> None:
    """One ranged GET: `head` as it stands, its body into `part`, 1 MiB at a time."""
    sock.sendall(head)
    answer = b""
    while b"\r\n\r\n" not in answer:
        got = sock.recv(65536)
        if not got:
            raise ConnectionError("the origin closed")
        answer += got
    answer, _, body = answer.partition(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 206"):
        raise ConnectionError(answer[:80].decode())
    part[: len(body)] = body
    filled = len(body)
    while filled < len(part):
        stop = min(len(part), (filled // MIB + 1) * MIB)
        got = sock.recv_into(part[filled:stop], stop - filled, socket.MSG_WAITALL)
        if not got:
            raise ConnectionError("the origin closed")
        filled += got
        if landed and (filled % MIB == 0 or filled == len(part)):
            landed(part[(filled - 1) // MIB * MIB : filled])


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


def main() -> None:
    what, where = sys.argv[1:3]
    server = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(server.getsockname()[1], flush=True)
    fd = os.open(where, os.O_RDONLY) if what == "serve" else -1
    while True:
        conn, _ = server.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        target, arg = (_serve_file, fd) if what == "serve" else (_relay, where)
        threading.Thread(target=target, args=(conn, arg), daemon=True).start()  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
