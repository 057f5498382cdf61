"""The command `forebay`: the verbs of every package under one parser.

A package offers verbs by a module `commands` with `register(verbs)`, where `verbs` is what argparse's
`add_subparsers` returns; a verb sets `run=function`, and `function(args, environ)` returns the exit code. Nothing
else is known here of any verb. `commands` modules import what is heavy inside `run`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence

from cache_engine.errors import CacheEngineError

PACKAGES = (
    "dataset_controller",
    "cache_engine",
    "prefetch",
    "model_loader",
    "scheduler_hooks",
    "training",
    "serving",
)
"""In the order in which --help shows their verbs."""

INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell says of a program that Ctrl-C or a closed pipe ended."""


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    packages: Sequence[str] = PACKAGES,
) -> int:
    """Run one verb; returns the exit code. Errors of the family become a sentence on stderr, or one a wrong field."""
    parser = make_parser(packages)
    args = parser.parse_args(argv)
    try:
        code = args.run(args, os.environ if environ is None else environ)
        sys.stdout.flush()
    except CacheEngineError as error:
        for line in str(error).splitlines() or [type(error).__name__]:
            print(f"forebay: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit complains
        return BROKEN_PIPE
    return int(code or 0)


def make_parser(packages: Sequence[str]) -> argparse.ArgumentParser:
    """All verbs of all packages that have some."""
    parser = argparse.ArgumentParser(
        prog="forebay",
        description="Data held in front of the accelerators: declare a Dataset, keep it warm, read it fast.",
        epilog="Start with `forebay up`, then `forebay apply -f dataset.yaml`. `forebay VERB --help` explains a verb.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for package in packages:
        if importlib.util.find_spec(f"{package}.commands"):
            importlib.import_module(f"{package}.commands").register(verbs)
    return parser


if __name__ == "__main__":
    sys.exit(main())
