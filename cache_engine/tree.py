"""Walks over a manifest's tree: every directory, and what no directory can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cache_engine.manifest import Directory, Manifest


def walk(manifest: Manifest, directory: bytes = b"") -> Iterator[tuple[bytes, Directory]]:
    """(path, entries) of the directory and of all below it, each before its children. Raises NotFound."""
    waiting = [directory]
    while waiting:
        path = waiting.pop()
        found = manifest.list(path)
        yield path, found
        waiting += [join(path, name) for name in reversed(found.dirs)]


def join(directory: bytes, name: bytes) -> bytes:
    """The path of an entry of a directory; the root is b""."""
    return directory + b"/" + name if directory else name


@dataclass(frozen=True, slots=True)
class Unshown:
    """A file that the tree does not show, and why. By its exact key it can be read all the same."""

    index: int
    reason: str


def unshown(manifest: Manifest, directory: bytes = b"") -> Iterator[Unshown]:
    """The files below a directory that no walk meets; folder markers, which are directories, are left out."""
    if not (manifest.hidden or manifest.unshowable):
        return
    below = manifest.below(directory)
    met = bytearray(len(below))
    for _, found in walk(manifest, directory):
        for index in found.indices:
            met[index - below.start] = 1
    for index in below:
        path = manifest.path(index)
        if met[index - below.start] or path.endswith(b"/"):
            continue
        hidden = manifest.is_dir(path)
        yield Unshown(index, "hidden by the directory of the same name" if hidden else "its name cannot be shown")
