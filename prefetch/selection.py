"""Which files of a snapshot somebody means by a few paths: files, directories, or patterns.

Shared by `forebay warm` and whatever else takes paths of a Dataset from people. Pure, but for reading the manifest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from cache_engine import names
from cache_engine.errors import NotFound
from cache_engine.globs import compile_globs
from cache_engine.manifest import Manifest

_TURN = 8192
"""Paths taken out of the manifest at a time: enough to be fast, little in memory."""


def select(manifest: Manifest, paths: Sequence[str] | None) -> array[int]:
    """File numbers in order, each once; all files where `paths` is None or empty.

    A path is a file, a directory (all below it), or a pattern of `globs.py` where neither of that name exists.
    Raises NotFound for a path that means no file, InvalidValue for what is not a path or a pattern.
    """
    if not paths:
        return array("L", range(manifest.files))
    chosen: set[int] = set()
    for path in paths:
        found = list(_meant(manifest, path))
        if not found:
            raise NotFound(f"no file of this snapshot is meant by {path!r}; `forebay ls` shows what there is")
        chosen.update(found)
    return array("L", sorted(chosen))


def _meant(manifest: Manifest, path: str) -> Iterable[int]:
    plain = path.strip("/")
    if not any(sign in plain for sign in "*?["):
        return _named(manifest, plain)
    return _named(manifest, plain) or _matching(manifest, path.lstrip("/"))


def _named(manifest: Manifest, plain: str) -> list[int]:
    key = names.parse(plain)
    below = list(manifest.below(key)) if manifest.is_dir(key) else []
    try:
        return [manifest.find(key), *below]
    except NotFound:
        return below


def _matching(manifest: Manifest, pattern: str) -> Iterable[int]:
    match = compile_globs([pattern], ())
    assert match is not None  # only without any pattern
    for start in range(0, manifest.files, _TURN):
        keys = manifest.paths_between(start, min(manifest.files, start + _TURN))
        yield from (start + n for n, key in enumerate(keys) if match(key))
