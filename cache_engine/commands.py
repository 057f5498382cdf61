"""The verbs that read a Dataset: `forebay ls`, `cat` and `cp`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from cache_engine.errors import InvalidValue, NotFound
from cache_engine.sharing import Connect
from cache_engine.sizes import format_size
from cache_engine.verbs import INTERRUPTED, Verbs, add_verb, default_connect, emit, split_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cache_engine.client import FileEntry
    from cache_engine.reading import OpenDataset

PIECE = 4 << 20
"""Bytes that `cat` writes at a time."""
BROKEN_PIPE = 141
"""Exit code where the reader of our output went away, as shells have it."""


def register(verbs: Verbs, connect: Connect | None = None) -> None:
    """Add the verbs to the command line. `connect` opens a Dataset; `cache_engine.open` by default."""
    opener = connect or (lambda name, api=None: default_connect()(name, api=api))
    ls = add_verb(verbs, "ls", "List a directory of a Dataset.", lambda args: _ls(args, opener))
    ls.add_argument("place", metavar="NAME[/PATH]")
    ls.add_argument("-l", "--long", action="store_true", help="sizes and times too")
    ls.add_argument("-R", "--recursive", action="store_true", help="all below it")
    cat = add_verb(verbs, "cat", "Write files of a Dataset to standard output.", lambda args: _cat(args, opener))
    cat.add_argument("places", metavar="NAME/PATH", nargs="+")
    cp = add_verb(verbs, "cp", "Copy files or trees of Datasets to a local directory.", lambda args: _cp(args, opener))
    cp.add_argument("places", metavar="NAME[/PATH]", nargs="+", help="with a slash at its end: what is in it")
    cp.add_argument("target", metavar="TARGET", help="local file or directory")
    cp.add_argument("--concurrency", type=int, default=8, metavar="N", help="files at once (default 8)")


def _ls(args: argparse.Namespace, connect: Connect) -> int:
    name, path = split_place(args.place)
    with _opened(connect, name, args.api) as client:
        entries = _entries(client, path.rstrip("/"), args.recursive)
        if args.output != "text":
            emit([asdict(entry) for entry in entries], args.output)
            return 0
        for entry in entries:
            print(_line(entry, path.rstrip("/"), args.long))
    return 0


def _entries(client: OpenDataset, path: str, recursive: bool) -> Iterator[FileEntry]:
    entry = client.info(path) if path else None
    if entry is not None and entry.kind == "file":
        yield entry
        return
    for found in cast("Sequence[FileEntry]", client.ls(path, detail=True)):
        yield found
        if recursive and found.kind == "directory":
            yield from _entries(client, found.path, recursive)


def _line(entry: FileEntry, below: str, long: bool) -> str:
    shown = entry.path.removeprefix(f"{below}/") if below else entry.path
    shown += "/" if entry.kind == "directory" else ""
    if not long:
        return shown
    size = format_size(entry.size) if entry.kind == "file" else "-"
    when = datetime.fromtimestamp(entry.mtime_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M") if entry.mtime_ns else "-"
    return f"{size:>10}  {when:>16}  {shown}"


def _cat(args: argparse.Namespace, connect: Connect) -> int:
    from cache_engine.file_object import DatasetFile

    if args.output != "text":
        raise InvalidValue("cat writes the bytes of files as they are; leave out -o")
    try:
        for place in args.places:
            name, path = split_place(place)
            with _opened(connect, name, args.api) as client, DatasetFile(client, path) as file:
                buffer = memoryview(bytearray(min(PIECE, file.size)))
                while count := file.readinto(buffer):
                    sys.stdout.buffer.write(buffer[:count])
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail again
        return BROKEN_PIPE
    return 0


def _cp(args: argparse.Namespace, connect: Connect) -> int:
    from cache_engine.copying import carry_out, plan_copy
    from cache_engine.progress import ProgressLine

    into = os.path.isdir(args.target) or args.target.endswith("/") or len(args.places) > 1
    files = size = 0
    failed: list[tuple[str, str]] = []
    for place in args.places:
        name, path = split_place(place)
        path += "/" if place.endswith("/") and not path else ""
        with _opened(connect, name, args.api) as client:
            plan = plan_copy(client, path, args.target, into)
            line = ProgressLine(sys.stderr, f"copying {place}")
            try:
                faults = carry_out(client, plan, line, args.concurrency)
            except KeyboardInterrupt:
                line.end()
                print(f"stopped; whole files that were copied stay in {args.target}", file=sys.stderr)
                return INTERRUPTED
            line.end()
            files += len(plan.copies) + len(plan.failed) - len(faults)
            size += plan.bytes
            failed += [(f"{name}/{shown}", reason) for shown, reason in faults]
    _report({"files": files, "bytes": size, "failed": [{"path": p, "reason": r} for p, r in failed]}, args)
    return 1 if failed else 0


def _report(document: dict[str, Any], args: argparse.Namespace) -> None:
    if args.output != "text":
        emit(document, args.output)
        return
    print(f"{document['files']} files, {format_size(document['bytes'])} in {args.target}")
    for fault in document["failed"]:
        print(f"not copied: {fault['path']}: {fault['reason']}", file=sys.stderr)


def _opened(connect: Connect, name: str, api: str | None) -> Any:
    """The client, to use in a `with`. A path where a Dataset should stand gets a hint."""
    try:
        return connect(name, api=api)
    except NotFound as exc:
        exc.add_note(f"{name!r} was taken for the name of a Dataset, since it stands first in NAME/PATH")
        raise
