"""fsspec's own abstract suite: all of Get, and the reading part of Open.

The suite prepares its trees through the file system under test. A Dataset cannot be written, so `PreparedFileSystem`
writes to the source instead and shows its next snapshot; every read goes through ForebayFileSystem unchanged.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests, AbstractOpenTests

from cache_engine.filesystem import ForebayFileSystem
from tests.fakes.client import STORES, connect, publish


class PreparedFileSystem(ForebayFileSystem):
    """The source's owner: what it writes shows in a new snapshot. Empty directories are folder markers."""

    def mkdir(self, path: str, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.pipe(f"{path}/", b"")

    def makedirs(self, path: str, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.mkdir(path)

    def touch(self, path: str, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.pipe(path, b"")

    def pipe(self, path: str, value: bytes = b"", *_: Any, **__: Any) -> None:  # type: ignore[override]
        dataset, _, key = path.removeprefix("forebay://").partition("/")
        publish(dataset, {**STORES[dataset], key.encode(): value})
        self.invalidate_cache(dataset)

    def rm(self, path: str, *_: Any, **__: Any) -> None:  # type: ignore[override]
        dataset, inner = self._split(path)
        prefix = f"{inner}/".encode()
        publish(dataset, {k: v for k, v in STORES[dataset].items() if not k.startswith(prefix) and k != prefix[:-1]})
        self.invalidate_cache(dataset)


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self) -> Iterator[PreparedFileSystem]:
        publish("suite", {})
        yield PreparedFileSystem(connect=connect, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self) -> str:
        return "suite"


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    def test_open_exclusive(self, fs: PreparedFileSystem, fs_target: str) -> None:
        """The suite's test, with the two writes as what they have to be here: refused."""
        fs.pipe(fs_target, b"data")
        with fs.open(fs_target, "rb") as file:
            assert file.read() == b"data"
        for mode in ("wb", "xb"):
            with pytest.raises(OSError) as refusal:
                fs.open(fs_target, mode)
            assert refusal.value.errno == errno.EROFS
