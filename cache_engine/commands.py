"""The verbs that read a Dataset: `forebay ls`, `cat` and `cp`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from cache_engine.errors import InvalidValue
from cache_engine.output import add_output_option, count, show
from cache_engine.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cache_engine.client import FileEntry
    from cache_engine.reading import OpenDataset

PIECE = 4 << 20
"""Bytes that `cat` writes at a time."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

Environ = Mapping[str, str]
Opener = Callable[[str, Environ], Any]
"""Opens a Dataset by name, for use in a `with`."""


def open_reading(name: str, environ: Environ) -> Any:
    """`opening.open_dataset`, imported late: the command line imports every verb."""
    from cache_engine.opening import open_dataset

    return open_dataset(name, environ)


def register(verbs: Any, opener: Opener = open_reading) -> None:
    """Add the verbs to argparse's sub-parsers."""
    verb = verbs.add_parser("ls", help="list a directory of a Dataset", description="List a directory of a Dataset.")
    verb.add_argument("place", metavar="NAME[/PATH]", help="a Dataset, a directory or a file in it")
    verb.add_argument("-l", "--long", action="store_true", help="sizes and times (UTC) too")
    verb.add_argument("-R", "--recursive", action="store_true", help="everything below it")
    add_output_option(verb)
    verb.set_defaults(run=partial(run_ls, opener))
    verb = verbs.add_parser("cat", help="write files to standard output", description="Write files to standard output.")
    verb.add_argument("places", metavar="NAME/PATH", nargs="+", help="files of Datasets, in this order")
    verb.set_defaults(run=partial(run_cat, opener))
    verb = verbs.add_parser("cp", help="copy files or trees to a local directory", description=_CP)
    verb.add_argument("places", metavar="NAME[/PATH]", nargs="+", help="with a slash at its end: what is in it")
    verb.add_argument("target", metavar="TARGET", help="local file or directory")
    verb.add_argument("--concurrency", type=int, default=8, metavar="N", help="files at once (default 8)")
    add_output_option(verb)
    verb.set_defaults(run=partial(run_cp, opener))


_CP = "Copy files or trees to a local directory. Every file arrives whole or not at all."


def split_place(place: str) -> tuple[str, str]:
    """'NAME/some/path' or 'forebay://NAME/some/path' -> (Dataset, path). Raises InvalidValue without a name."""
    name, _, path = place.removeprefix("forebay://").lstrip("/").partition("/")
    if not name:
        raise InvalidValue(f"{place!r} names no Dataset; write NAME or NAME/PATH")
    return name, path


def run_ls(opener: Opener, args: argparse.Namespace, environ: Environ) -> int:
    name, path = split_place(args.place)
    path = path.rstrip("/")
    with opener(name, environ) as client:
        entries = _entries(client, path, args.recursive)
        if args.output:
            document = [asdict(entry) for entry in entries]
            show(args.output, document, str)
        else:
            for entry in entries:
                print(_line(entry, path, args.long))
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


def run_cat(opener: Opener, args: argparse.Namespace, environ: Environ) -> int:
    from cache_engine.file_object import DatasetFile

    for place in args.places:
        name, path = split_place(place)
        if not path:
            raise InvalidValue(f"{place!r} names no file; write NAME/PATH, `forebay ls {name}` shows what there is")
        with opener(name, environ) as client, DatasetFile(client, path) as file:
            buffer = memoryview(bytearray(min(PIECE, file.size)))
            while size := file.readinto(buffer):
                sys.stdout.buffer.write(buffer[:size])
    return 0


def run_cp(opener: Opener, args: argparse.Namespace, environ: Environ) -> int:
    """1 where a file could not be copied, after all others were."""
    if args.concurrency < 1:
        raise InvalidValue(f"--concurrency {args.concurrency} is too small; write 1 or more")
    if not args.target:
        raise InvalidValue("the target is empty; write a file or directory, such as .")
    into = os.path.isdir(args.target) or args.target.endswith("/") or len(args.places) > 1
    document: dict[str, Any] = {"files": 0, "bytes": 0, "failed": []}
    for place in args.places:
        try:
            _copy(opener, environ, place, into, args, document)
        except KeyboardInterrupt:
            print(f"\nstopped; files that were copied whole stay in {args.target}", file=sys.stderr)
            return INTERRUPTED
    show(args.output, document, lambda: f"{count(document['files'], 'file')}, {format_size(document['bytes'])} copied")
    for fault in document["failed"]:
        print(f"not copied: {fault['path']}: {fault['reason']}", file=sys.stderr)
    return 1 if document["failed"] else 0


def _copy(
    opener: Opener, environ: Environ, place: str, into: bool, args: argparse.Namespace, document: dict[str, Any]
) -> None:
    """One place of the command line; what came of it is added to the document."""
    from cache_engine.copying import carry_out, plan_copy
    from cache_engine.progress import ProgressLine

    name, path = split_place(place)
    path = path or "/" * place.endswith("/")
    with opener(name, environ) as client:
        plan = plan_copy(client, path, args.target, into)
        line = ProgressLine(sys.stderr, f"copying {place}")
        done = carry_out(client, plan, line, args.concurrency)
        line.end()
    document["files"] += done.files
    document["bytes"] += done.bytes
    document["failed"] += [{"path": f"{name}/{shown}", "reason": reason} for shown, reason in done.failed]
