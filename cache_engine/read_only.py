"""The writing half of fsspec's interface, refused in the operating system's own words (EROFS).

A Dataset is a view of its sources at a moment; to change it, change the source and take a new snapshot.
"""

from __future__ import annotations

import errno
from typing import Any, NoReturn

from cache_engine.errors import ReadOnlyDataset


def refused(verb: str, path: object) -> ReadOnlyDataset:
    """The error for `verb` at `path`."""
    return ReadOnlyDataset(
        errno.EROFS, f"cannot {verb}: Datasets are read-only; change the source, then refresh the Dataset", str(path)
    )


class ReadOnly:
    """Mix in before fsspec's AbstractFileSystem, whose own defaults do nothing without saying so."""

    def mkdir(self, path: str, *_: Any, **__: Any) -> NoReturn:
        raise refused("make a directory", path)

    def makedirs(self, path: str, *_: Any, **__: Any) -> NoReturn:
        raise refused("make directories", path)

    def rmdir(self, path: str) -> NoReturn:
        raise refused("remove a directory", path)

    def rm(self, path: Any, *_: Any, **__: Any) -> NoReturn:
        raise refused("remove", path)

    def rm_file(self, path: str) -> NoReturn:
        raise refused("remove", path)

    def _rm(self, path: str) -> NoReturn:
        raise refused("remove", path)

    def touch(self, path: str, *_: Any, **__: Any) -> NoReturn:
        raise refused("touch", path)

    def pipe(self, path: Any, *_: Any, **__: Any) -> NoReturn:
        raise refused("write", path)

    def pipe_file(self, path: str, *_: Any, **__: Any) -> NoReturn:
        raise refused("write", path)

    def put(self, lpath: Any, rpath: Any, *_: Any, **__: Any) -> NoReturn:
        raise refused("put files", rpath)

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> NoReturn:
        raise refused("put a file", rpath)

    def copy(self, path1: Any, path2: Any, *_: Any, **__: Any) -> NoReturn:
        raise refused("copy", path2)

    def cp_file(self, path1: str, path2: str, **__: Any) -> NoReturn:
        raise refused("copy", path2)

    def mv(self, path1: Any, path2: Any, *_: Any, **__: Any) -> NoReturn:
        raise refused("move", path1)
