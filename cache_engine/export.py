"""Files of a Dataset onto a local disk, each of them whole or not at all.

A copy is written beside its target under a name of its own and renamed when every byte is there. Below `forebay cp`
(`copying.py` plans trees and runs many of these) and fsspec's `get`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cache_engine.block import RUN
from cache_engine.file_object import DatasetFile
from cache_engine.reading import OpenDataset, Path

_serial = itertools.count()


def no_progress(count: int) -> None:
    """Nobody is watching."""


def write_file(target: str, body: bytes) -> None:
    """Put `body` at `target`, replacing what is there at once."""
    with _replacing(target) as fd:
        _write_all(fd, memoryview(body))


def export_file(client: OpenDataset, path: Path, target: str, progress: Callable[[int], None] = no_progress) -> int:
    """Copy one file to `target`; returns its bytes. `progress` hears of every piece as it is written.

    Raises the reader's errors, and OSError of the local disk; then the target is as it was before.
    """
    with DatasetFile(client, path) as file, _replacing(target) as fd:
        buffer = memoryview(bytearray(min(RUN, file.size)))
        while count := file.readinto(buffer):
            _write_all(fd, buffer[:count])
            progress(count)
        return file.size


@contextmanager
def _replacing(target: str) -> Iterator[int]:
    """A descriptor of a new file that takes the target's place at the end, or leaves nothing behind."""
    directory = os.path.dirname(target) or "."
    part = os.path.join(directory, f".forebay-{os.getpid()}-{next(_serial)}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        os.rename(part, target)
    except BaseException:
        os.unlink(part)
        raise


def _write_all(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]
