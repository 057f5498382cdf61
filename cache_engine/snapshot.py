"""Takes a snapshot: lists every mount of a Dataset, filters by its globs, writes the manifest.

The listing is the truth: what appears or vanishes meanwhile is in it or not, and a later read of a vanished object
is ObjectChanged. A snapshot is whole or it is not there. Four ways to have none are told apart, because what to do
differs: AccessDenied (credentials), EmptySnapshot (URL or globs), SourceUnavailable (the source is down), and its
kind ListingCutShort (the source went away in the middle).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import compress

from cache_engine.access import MountAccess
from cache_engine.errors import AccessDenied, CacheEngineError, NotFound, SourceThrottled, SourceUnavailable
from cache_engine.globs import Match, compile_globs
from cache_engine.manifest import Manifest
from cache_engine.manifest_builder import ManifestBuilder
from cache_engine.source import Page, Source

Progress = Callable[[int], None]
"""Called after each page with the files taken so far, over all mounts."""


class EmptySnapshot(CacheEngineError):
    """A mount lists nothing, or its globs leave nothing: never a Dataset that is ready."""

    exit_code = 11


class ListingCutShort(SourceUnavailable):
    """The source failed after it had listed `files` objects. No part of the listing is used."""

    def __init__(self, message: str, files: int) -> None:
        super().__init__(message)
        self.files = files


def take(
    mounts: Sequence[tuple[MountAccess, Source]],
    path: str | os.PathLike[str],
    progress: Progress | None = None,
) -> Manifest:
    """List `mounts`, write the manifest to the file `path` and open it. The file appears only if all went well.

    Raises the four errors of the module; InvalidValue for a wrong glob or mount path (before anything is listed)
    and for two files of one path; NotFound where a bucket or directory is not there; OSError of the disk.
    """
    builder = ManifestBuilder([(source.name, access.path) for access, source in mounts])
    takes = [compile_globs(access.include, access.exclude) for access, _ in mounts]
    for number, (access, source) in enumerate(mounts):
        before = builder.files
        listed = _list_mount(builder, number, source, takes[number], progress)
        if builder.files == before:
            raise EmptySnapshot(_why_empty(access, source, listed))
    return builder.write(path)


def _list_mount(
    builder: ManifestBuilder, number: int, source: Source, match: Match | None, progress: Progress | None
) -> int:
    """How many objects the source listed; the ones that match are in the builder."""
    listed = 0
    try:
        for page in source.list():
            listed += len(page.keys)
            builder.add(number, _filtered(page, match) if match else page)
            if progress:
                progress(builder.files)
    except (AccessDenied, NotFound, SourceUnavailable) as fault:
        raise _named(fault, source.name, listed) from fault
    return listed


def _filtered(page: Page, match: Match) -> Page:
    chosen = list(map(match, page.keys))
    columns = page.keys, page.sizes, page.versions, page.mtimes_ns
    return Page(*(list(compress(column, chosen)) for column in columns))  # type: ignore[arg-type]


def _named(fault: CacheEngineError, source: str, listed: int) -> CacheEngineError:
    """The same outcome with the mount and what to do in the message."""
    if isinstance(fault, SourceUnavailable) and listed:
        return ListingCutShort(
            f"the listing of {source} broke off after {listed} objects ({fault}); nothing of it is used, try again",
            listed,
        )
    if isinstance(fault, SourceThrottled):
        return SourceThrottled(f"{source} asks for fewer requests than a listing needs ({fault})", fault.retry_after)
    if isinstance(fault, SourceUnavailable):
        return SourceUnavailable(f"{source} cannot be listed now ({fault}); try again when it answers")
    if isinstance(fault, AccessDenied):
        return type(fault)(f"{source} does not let these credentials list it ({fault}); grant them the right to list")
    said = str(fault).rstrip(".")
    return NotFound(f"{said if source in said else f'{source} is not there ({said})'}; check the URL of the mount")


def _why_empty(access: MountAccess, source: Source, listed: int) -> str:
    if not listed:
        return f"{source.name} lists no object; check the URL of the mount and its prefix"
    globs = f"include {list(access.include)}, exclude {list(access.exclude)}"
    return (
        f"{source.name} lists {listed} objects, and the globs of the mount leave none of them ({globs}); "
        "a pattern is for the whole path below the mount: *.py means its root, **/*.py any depth"
    )
