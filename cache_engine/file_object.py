"""A file of a Dataset as Python's own kind of file: seek, read, readinto, iterate.

`open_file` gives a buffered one, which is what `Client.open`, fsspec and everything on top of them use. Bytes come
by number from one snapshot in windows that `readahead.py` sizes; while one window is being consumed the next is under
way in a thread. Memory of one open file: two windows at the most, 128 MiB at full speed, a read buffer otherwise.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from cache_engine import names
from cache_engine.block import BLOCK
from cache_engine.errors import CacheEngineError, InvalidValue, ObjectChanged
from cache_engine.readahead import Readahead, SequentialWindow
from cache_engine.reading import OpenDataset, Path
from cache_engine.window import Ahead, Piece, buffer_of

BUFFER = 64 << 10
"""Bytes that a random read fetches at the least (the buffer of the buffered file)."""
DIRECT = BLOCK
"""Reads of this many bytes or more go straight into the caller's buffer, without a copy."""


class DatasetFile(io.RawIOBase):
    """Unbuffered. Every read fills the whole of the caller's buffer, short only at the end of the file.

    Not for several threads at once (the buffered one is: it has a lock). A forked child may go on reading where
    its parent was; a window that was under way belongs to the parent and is fetched again.
    Mutable: `_position`, `_held`, `_ahead`, `_stray`, `_spare`, `_reached`.
    """

    def __init__(
        self,
        client: OpenDataset,
        path: Path,
        *,
        readahead: Callable[[], Readahead] = SequentialWindow,
        keep: object = None,
    ) -> None:
        """`keep` is held until the file closes: whoever owns the client, where that is not the caller."""
        super().__init__()
        self._client = client
        self._reader = client.reader
        self._key = names.parse(path) if isinstance(path, str) else path
        self._index = self._reader.manifest.find(self._key)
        self.path = names.show(self._key)
        self.size = self._reader.manifest.size(self._index)
        self.version = self._reader.manifest.version(self._index)
        self._keep = keep
        self._readahead = readahead()
        self._position = 0
        self._held: Piece | None = None
        self._ahead: Ahead | None = None
        self._stray: Ahead | None = None
        """A window that nobody wants any more; while it is under way no other is begun: two threads a file at most."""
        self._spare: memoryview | None = None
        """The buffer of the window that was consumed last, for the next one."""
        self._reached = -1
        """Where the last fetch on demand ended."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self._position} of {self.size} bytes, {self._readahead!r}"
        return f"<DatasetFile {self._client.dataset}/{self.path} {state}>"

    @property
    def name(self) -> str:
        return self.path

    @property
    def mode(self) -> str:
        return "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
        if start is None or start + offset < 0:
            raise InvalidValue(f"cannot seek to {offset} (whence {whence}) in {self.path} of {self.size} bytes")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self.size - self._position)]
        done = 0
        while done < len(view):
            count = self._from_windows(view[done:]) or self._on_demand(view[done:])
            if not count:
                break
            self._position += count
            done += count
        return done

    def readall(self) -> bytes:
        """All bytes from here on, in one request, which the reader splits over its connections."""
        self._check_open()
        left = self.size - self._position
        if left <= 0:
            return b""
        # bytes that can be filled in place: a bytearray made into bytes is written twice, 1/3 of the speed
        body = io.BytesIO()
        body.seek(left - 1)
        body.write(b"\0")
        with body.getbuffer() as view:
            self._fetch(view, self._position)
        self._position = self.size
        return body.getvalue()

    def close(self) -> None:
        self._held = self._ahead = self._stray = self._spare = self._keep = None
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return _reopen_raw, (self._client, self._key, self.version, self._position)

    def _from_windows(self, view: memoryview) -> int:
        """Copy what the window in hand, or the one under way, has of these bytes; 0 if they have none."""
        if self._held is None or self._position not in self._held:
            if self._ahead is None or self._position not in self._ahead:
                return 0
            spent, ahead = self._held, self._ahead
            self._held, self._ahead = ahead.take(), None
            if self._held is None:
                return 0
            self._readahead.landed(ahead.stop - ahead.start, ahead.seconds)
            self._spare = spent.view if spent else None
            self._look_ahead(self._held.stop)
        count = self._held.copy(self._position, view)
        if self._ahead is None and self._position + count >= self._held.middle:
            self._look_ahead(self._held.stop)
        return count

    def _on_demand(self, view: memoryview) -> int:
        """Fetch now. A large read lands in `view` itself, a small one in a window that outlives the call."""
        start, need = self._position, len(view)
        in_sequence = start == self._reached and start > 0
        stop = min(self.size, start + max(need, self._readahead.next(start, need)))
        self._held = None
        if self._ahead is not None:
            self._stray, self._ahead = self._ahead, None
        if need < DIRECT and stop - start > need:
            self._held = self._piece(start, stop)
            self._reached = stop
            return self._held.copy(start, view)
        self._reached = start + need
        if in_sequence and need >= DIRECT:
            self._look_ahead(self._reached, stop)
        self._fetch(view, start)
        return need

    def _piece(self, start: int, stop: int) -> Piece:
        view = buffer_of(stop - start)
        self._fetch(view, start)
        return Piece(start, stop, view)

    def _fetch(self, view: memoryview, start: int) -> None:
        try:
            self._reader.readinto(self._index, view, start)
        except CacheEngineError as exc:
            exc.add_note(f"while reading {self.path} of Dataset {self._client.dataset} at byte {start}")
            raise

    def _look_ahead(self, start: int, stop: int = 0) -> None:
        """Begin to fetch what follows, unless that is the end of the file or nothing is worth it."""
        stop = stop if stop > start else start + self._readahead.next(start, 0)
        stop = min(self.size, stop)
        if start < stop and not (self._stray and self._stray.under_way):
            self._ahead = Ahead(self._reader, self._index, start, stop, self._spare)
            self._spare = None

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidValue(f"{self.path} was closed before; open it again to read on")


class BufferedDatasetFile(io.BufferedReader):
    """A DatasetFile behind Python's own buffer: safe from several threads, fast for small reads and for lines."""

    def __init__(self, raw: DatasetFile, buffer: int = BUFFER) -> None:
        super().__init__(raw, buffer)
        self._file = raw

    def __repr__(self) -> str:
        return f"<Buffered {self._file!r}>"

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.size

    @property
    def path(self) -> str:
        """Its path inside the Dataset, as shown."""
        return self._file.path

    @property
    def version(self) -> str:
        return self._file.version

    def __reduce__(self) -> tuple[Any, ...]:
        position = self.tell()
        file = self._file
        return _reopen_buffered, (file._client, file._key, file.version, position)


def open_file(
    client: OpenDataset,
    path: Path,
    *,
    buffer: int = BUFFER,
    readahead: Callable[[], Readahead] = SequentialWindow,
    keep: object = None,
) -> BufferedDatasetFile:
    """The file at `path`, from its start. Raises NotFound; no byte is read yet."""
    return BufferedDatasetFile(DatasetFile(client, path, readahead=readahead, keep=keep), buffer)


def _reopen_raw(client: OpenDataset, key: bytes, version: str, position: int) -> DatasetFile:
    file = DatasetFile(client, key)
    if file.version != version:
        raise ObjectChanged(
            f"{file.path} of Dataset {client.dataset} is another version here than where it was pickled; open it again"
        )
    file.seek(position)
    return file


def _reopen_buffered(client: OpenDataset, key: bytes, version: str, position: int) -> BufferedDatasetFile:
    return BufferedDatasetFile(_reopen_raw(client, key, version, position))
