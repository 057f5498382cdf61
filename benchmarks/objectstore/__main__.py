"""`python -m benchmarks.objectstore`: a store as its own process; one JSON line on stdout says where it listens.

Credentials come from the environment: OBJECTSTORE_CREDENTIALS=ID:SECRET[:TOKEN].
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

from benchmarks.objectstore.dialects import DIALECTS
from benchmarks.objectstore.store import ObjectStore
from cache_engine.sizes import parse_duration, parse_size


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks.objectstore", description=__doc__)
    options.add_argument("--dialect", choices=sorted(DIALECTS), default="http")
    options.add_argument("--root", help="a directory; root/BUCKET/KEY is the object BUCKET/KEY")
    options.add_argument("--bucket", action="append", default=[], help="a bucket that exists though empty")
    options.add_argument("--port", type=int, default=0, help="0 (the default): a free one")
    options.add_argument("--first-byte", type=parse_duration, default=0.0, help="silence before each answer, as 20ms")
    options.add_argument("--rate", type=parse_size, default=None, help="bytes a second and connection, as 60MB")
    options.add_argument("--page", type=int, default=1000, help="keys in a page of a listing")
    options.add_argument("--checksums", action="store_true", help="S3: send x-amz-checksum-crc32c where wished")
    options.add_argument("--rule", action="append", default=[], type=json.loads, help='JSON: {"kind": "flaky", ...}')
    options.add_argument("--until-eof", action="store_true", help="end when stdin does (with the parent process)")
    return options


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serve until SIGINT, SIGTERM or (--until-eof) the end of stdin."""
    options = parser().parse_args(argv)
    secrets = environ.get("OBJECTSTORE_CREDENTIALS")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ObjectStore(
        options.dialect,
        root=options.root,
        buckets=options.bucket,
        credentials=tuple(secrets.split(":", 2)) if secrets else None,
        first_byte=options.first_byte,
        rate=options.rate,
        page=options.page,
        checksums=options.checksums,
        port=options.port,
    ) as store:
        rules = [store.rule(**rule) for rule in options.rule]
        seeds = [rule.args["seed"] for rule in rules if "seed" in rule.args]
        document = {"url": store.url, "dialect": store.name, "pid": os.getpid(), "seeds": seeds}
        print(json.dumps(document), flush=True)
        if options.until_eof:
            threading.Thread(target=_await_eof, args=(ended,), daemon=True).start()
        ended.wait()
    return 0


def _await_eof(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
