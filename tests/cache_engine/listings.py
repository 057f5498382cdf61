"""Listings for the tests of manifests, and a plain model of what a manifest must say: dicts and sets, no index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cache_engine.block import ObjectId
from cache_engine.errors import CacheEngineError
from cache_engine.manifest import Manifest
from cache_engine.manifest_builder import ManifestBuilder
from cache_engine.names import showable
from cache_engine.source import Page, Stat, Stream

ETAG = 'etag:"%032x"'
Objects = Mapping[bytes, Stat]


def pages_of(objects: Objects, size: int = 1000) -> list[Page]:
    """The objects in the mapping's order, `size` of them a page."""
    pages = [Page()]
    for key, stat in objects.items():
        if len(pages[-1].keys) == size:
            pages.append(Page())
        pages[-1].add(key, stat)
    return pages


def plain(keys: Sequence[bytes]) -> dict[bytes, Stat]:
    """An object a key, each with a size, a version and a time of its own."""
    return {key: Stat(at, ETAG % at, 10**18 + at) for at, key in enumerate(keys)}


def build(directory: Path, *mounts: tuple[str, str, Objects], page: int = 1000) -> Manifest:
    """A manifest of (source name, mount path, objects) ..."""
    builder = ManifestBuilder([(source, path) for source, path, _ in mounts])
    for number, (_, _, objects) in enumerate(mounts):
        for each in pages_of(objects, page):
            builder.add(number, each)
    return builder.write(directory / "manifest")


class ScriptedSource:
    """A source whose listing is a script: pages to give, errors to raise."""

    def __init__(self, name: str, *script: Page | CacheEngineError) -> None:
        self.name = name
        self.script = script

    def list(self) -> Iterator[Page]:
        for step in self.script:
            if isinstance(step, CacheEngineError):
                raise step
            yield step

    def stat(self, key: bytes) -> Stat:
        raise NotImplementedError("a snapshot asks for no object")

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        raise NotImplementedError("a snapshot reads no object")

    def close(self) -> None:
        pass


class Model:
    """The rules of the tree written down once more, in the slowest and plainest way."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        self.paths = sorted(paths)
        shown = [path for path in paths if showable(path)]
        self.dirs = {b""}
        for path in paths:
            self.dirs |= self._parents(path)
        self.files = {path for path in shown if not self.is_marker(path) and path not in self.dirs}
        self.markers = sum(self.is_marker(path) and self.is_dir(path) for path in paths)
        self.hidden = sum(path in self.dirs for path in shown if not self.is_marker(path))
        self.unshowable = len(paths) - len(self.files) - self.markers - self.hidden

    def is_dir(self, path: bytes) -> bool:
        return path in self.dirs or (len(path) > 1 and path.endswith(b"/") and path[:-1] in self.dirs)

    @staticmethod
    def is_marker(path: bytes) -> bool:
        return path == b"" or path.endswith(b"/")

    @staticmethod
    def _parents(path: bytes) -> set[bytes]:
        """The directories above a path, from the root down to the first that cannot be shown."""
        found: set[bytes] = set()
        if path.startswith(b"/"):
            return found
        for at, byte in enumerate(path):
            if byte == ord("/"):
                if not showable(path[:at].rpartition(b"/")[2]):
                    break
                found.add(path[:at])
        return found

    def entries(self, directory: bytes) -> tuple[list[bytes], list[bytes]]:
        prefix = directory + b"/" if directory else b""
        names = [
            sorted(path[len(prefix) :] for path in paths if path.startswith(prefix) and path != directory)
            for paths in (self.dirs, self.files)
        ]
        direct = [[name for name in found if b"/" not in name] for found in names]
        return direct[0], direct[1]
