"""The verb that fills caches ahead of readers: `forebay warm`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from cache_engine.errors import InvalidValue
from cache_engine.progress import ProgressLine
from cache_engine.sharing import Connect
from cache_engine.sizes import format_size
from cache_engine.verbs import INTERRUPTED, Verbs, add_verb, default_connect, emit

if TYPE_CHECKING:
    from prefetch.warmup import WarmReport


def register(verbs: Verbs, connect: Connect | None = None) -> None:
    """Add the verb to the command line. `connect` opens a Dataset; `cache_engine.open` by default."""
    opener = connect or (lambda name, api=None: default_connect()(name, api=api))
    parser = add_verb(
        verbs, "warm", "Fill the caches of a Dataset's owners and check every byte.", lambda args: _warm(args, opener)
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="files, directories, or patterns like 'img/**/*.jpg'")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="requests at each worker (default 4)")


def _warm(args: argparse.Namespace, connect: Connect) -> int:
    from prefetch.warmup import WarmConfig, warm

    if args.concurrency < 1:
        raise InvalidValue(f"--concurrency {args.concurrency} is too small; write 1 or more")
    line = ProgressLine(sys.stderr, f"warming {args.name}")
    with connect(args.name, api=args.api) as client:
        try:
            report = warm(client, args.paths or None, line, WarmConfig(concurrency=args.concurrency))
        except KeyboardInterrupt:
            line.end()
            print("stopped; what the workers hold by now stays held, and warm goes on from there", file=sys.stderr)
            return INTERRUPTED
    line.end()
    _print(report, args.output)
    return 0 if report.complete else 1


def _print(report: WarmReport, form: str) -> None:
    if form != "text":
        emit(asdict(report) | {"failed": [asdict(each) for each in report.failed]}, form)
        return
    print(f"{report.files} files, {format_size(report.verified)} of {format_size(report.bytes)} held and verified")
    for each in report.failed:
        print(f"not held: {each.path}: {each.reason}", file=sys.stderr)
