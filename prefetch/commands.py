"""The verb that fills caches ahead of readers: `forebay warm`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from cache_engine.commands import INTERRUPTED, Opener, open_reading
from cache_engine.errors import InvalidValue
from cache_engine.output import add_output_option, count, show
from cache_engine.progress import ProgressLine
from cache_engine.sizes import format_size

if TYPE_CHECKING:
    from prefetch.warmup import WarmReport


def register(verbs: Any, opener: Opener = open_reading) -> None:
    """Add the verb to argparse's sub-parsers."""
    verb = verbs.add_parser("warm", help="fill the caches of a Dataset's workers", description=_WARM)
    verb.add_argument("name", metavar="NAME", help="a Dataset")
    verb.add_argument(
        "paths", metavar="PATH", nargs="*", default=[], help="files, directories, or patterns like 'img/**/*.jpg'"
    )
    verb.add_argument("--concurrency", type=int, default=4, metavar="N", help="requests at each worker (default 4)")
    add_output_option(verb)
    verb.set_defaults(run=partial(run_warm, opener))


_WARM = "Have every owner hold what it owns of these files (all, without a PATH), and check every byte."


def run_warm(opener: Opener, args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """1 where a file is not held at the end; each of them is named with its reason."""
    from prefetch.warmup import WarmConfig, warm

    if args.concurrency < 1:
        raise InvalidValue(f"--concurrency {args.concurrency} is too small; write 1 or more")
    name, slash, path = args.name.partition("/")
    if slash:
        raise InvalidValue(f"{args.name!r} is no name of a Dataset; write a path apart: forebay warm {name} {path}")
    line = ProgressLine(sys.stderr, f"warming {args.name}")
    with opener(args.name, environ) as client:
        try:
            report = warm(client, args.paths, line, WarmConfig(concurrency=args.concurrency))
        except KeyboardInterrupt:
            print("\nstopped; what the workers hold by now stays held", file=sys.stderr)
            return INTERRUPTED
    line.end()
    show(args.output, asdict(report), lambda: _line(report))
    for each in report.failed:
        print(f"not held: {each.path}: {each.reason}", file=sys.stderr)
    return 0 if report.complete else 1


def _line(report: WarmReport) -> str:
    held = f"{format_size(report.verified)} of {format_size(report.bytes)} held and verified"
    return f"{count(report.files, 'file')}, {held}"
