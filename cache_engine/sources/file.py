"""file:///DIRECTORY (or one file): a tree of this host, read with preadv and checked around every read.

A file system offers no "read this version only", so the descriptor is asked for size and modification time
before a read and after it; what was read in between belongs to the version or is not handed out. A change within
one tick of the file system's clock (4 ms at worst) that keeps the size cannot be seen by anybody.
"""

from __future__ import annotations

import logging
import os
import stat as modes
from collections.abc import Iterator, Mapping
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from cache_engine.block import ObjectId
from cache_engine.errors import AccessDenied, InvalidValue, NotFound, ObjectChanged, SourceUnavailable
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources import options as opt

_log = logging.getLogger(__name__)
_PAGE = 4096
"""Files a page: enough that pages cost nothing, few enough that a caller sees progress."""


class FileSource:
    """A directory tree. Symbolic links are followed as far as they stay inside of it."""

    def __init__(self, url: str, options: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        self.check(url, options)
        self._root = _path_of(url)
        self.name = "file://" + quote_from_bytes(self._root, safe="/~")

    @staticmethod
    def check(url: str, options: Mapping[str, str]) -> None:
        """Raises InvalidValue."""
        opt.only(options, frozenset(), "file")
        _path_of(url)

    def __repr__(self) -> str:
        return f"<FileSource {self.name}>"

    def list(self) -> Iterator[Page]:
        """Raises NotFound, AccessDenied, SourceUnavailable; what is no file, or leads out of the tree, is left out."""
        page = Page()
        for key, found in self._files():
            page.add(key, _stat_of(found))
            if len(page.keys) >= _PAGE:
                yield page
                page = Page()
        yield page

    def stat(self, key: bytes) -> Stat:
        fd = self._open(key)
        try:
            return _stat_of(os.fstat(fd))
        finally:
            os.close(fd)

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        what = f"{self.name}/{obj.key.decode('utf-8', 'backslashreplace')}"
        try:
            fd = self._open(obj.key)
        except NotFound as error:
            raise ObjectChanged(f"{what}: the file is gone since the snapshot; take a new one") from error
        stream = FileStream(fd, obj, start, stop, what)
        try:
            stream.check()
        except ObjectChanged:
            stream.close()
            raise
        return stream

    def close(self) -> None:
        """Nothing is kept open."""

    def _files(self) -> Iterator[tuple[bytes, os.stat_result]]:
        try:
            root = os.stat(self._root)
        except OSError as error:
            raise _translated(error, self.name) from error
        if modes.S_ISREG(root.st_mode):
            yield os.path.basename(self._root), root
            return
        tree = _Tree(self._root)
        yield from tree.files(root)
        if tree.left_out:
            _log.warning("%s: %d entries are no files or lead out of the tree; left out", self.name, tree.left_out)

    def _open(self, key: bytes) -> int:
        """A descriptor of the regular file `key`, proved to lie inside the tree."""
        what = f"{self.name}/{key.decode('utf-8', 'backslashreplace')}"
        if b"\0" in key or any(part in (b"", b".", b"..") for part in key.split(b"/")):
            raise NotFound(f"{what}: no file can have that name")
        try:
            fd = self._open_path(key)
        except OSError as error:
            raise _translated(error, what) from error
        inside = os.path.realpath(self._root)
        real = os.readlink(b"/proc/self/fd/%d" % fd)
        regular = modes.S_ISREG(os.fstat(fd).st_mode)
        if regular and (real == inside or real.startswith(inside.rstrip(b"/") + b"/") or real.endswith(b" (deleted)")):
            return fd
        os.close(fd)
        raise NotFound(f"{what}: it is no file inside of the tree")

    def _open_path(self, key: bytes) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe put there must not stop us
        try:
            return os.open(os.path.join(self._root, key), flags)
        except NotADirectoryError:
            if key != os.path.basename(self._root):
                raise
            return os.open(self._root, flags)  # the URL names one file


class FileStream:
    """A range of one file. Raises ObjectChanged as soon as the file is not the version any more."""

    __slots__ = ("_at", "_fd", "_obj", "_stop", "_what")

    def __init__(self, fd: int, obj: ObjectId, start: int, stop: int, what: str) -> None:
        self._fd, self._obj, self._at, self._stop, self._what = fd, obj, start, stop, what

    def readinto(self, buffer: memoryview) -> int:
        view = buffer[: self._stop - self._at]
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self._fd, [view[done:]], self._at + done)
                if not count:
                    raise ObjectChanged(f"{self._what}: the file became shorter; take a new snapshot")
                done += count
        except OSError as error:
            raise _translated(error, self._what) from error
        self.check()
        self._at += done
        return done

    def check(self) -> None:
        """Raises ObjectChanged unless the open file still has the version's size and time."""
        now = _stat_of(os.fstat(self._fd))
        if (now.size, now.version) != (self._obj.size, self._obj.version):
            raise ObjectChanged(
                f"{self._what}: it is {now.size} bytes of {now.version}, not {self._obj.size} of {self._obj.version}; "
                "take a new snapshot"
            )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Tree:
    """One walk. A directory that a link leads back to is not entered again below itself."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._real = os.path.realpath(root).rstrip(b"/")
        self.left_out = 0

    def files(self, root: os.stat_result) -> Iterator[tuple[bytes, os.stat_result]]:
        pending = [(b"", frozenset(((root.st_dev, root.st_ino),)))]
        while pending:
            directory, above = pending.pop()
            for name, found in self._entries(directory):
                key = directory + name
                identity = (found.st_dev, found.st_ino)
                if modes.S_ISREG(found.st_mode):
                    yield key, found
                elif modes.S_ISDIR(found.st_mode) and identity not in above:
                    pending.append((key + b"/", above | {identity}))
                else:
                    self.left_out += 1

    def _entries(self, directory: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        path = os.path.join(self._root, directory)
        try:
            with os.scandir(path) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.is_symlink() and not self._inside(entry.path):
                        self.left_out += 1
                        continue
                    try:
                        yield entry.name, entry.stat()
                    except FileNotFoundError:
                        continue  # deleted since: as if we had come a moment later
        except FileNotFoundError as error:
            raise SourceUnavailable(f"{path!r} changed while it was listed: {error.strerror}") from error
        except OSError as error:
            raise _translated(error, repr(path)) from error

    def _inside(self, path: bytes) -> bool:
        real = os.path.realpath(path)
        return os.path.exists(real) and (real + b"/").startswith(self._real + b"/")


def _path_of(url: str) -> bytes:
    parts = urlsplit(url)
    path = unquote_to_bytes(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidValue(f"{url!r} must have the form file:///DIRECTORY; write % as %25, ? as %3F, # as %23")
    if not path.startswith(b"/") or b"\0" in path:
        raise InvalidValue(f"{url!r} must name an absolute path, such as file:///data/images")
    return os.path.normpath(path)


def _stat_of(found: os.stat_result) -> Stat:
    return Stat(found.st_size, f"mtime:{found.st_mtime_ns}", found.st_mtime_ns)


def _translated(error: OSError, what: str) -> AccessDenied | NotFound | SourceUnavailable:
    if isinstance(error, PermissionError):
        return AccessDenied(f"{what}: this process may not read it: {error.strerror}")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(f"{what}: there is no such file or directory")
    return SourceUnavailable(f"{what}: {error.strerror or error}")
