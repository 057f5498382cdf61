"""The command `forebay`: the verbs of every package under one parser.

A package offers verbs by a module `commands` with `register(verbs)`, where `verbs` is what argparse's
`add_subparsers` returns; a verb sets `run=function`, and `function(args, environ)` returns the exit code. Nothing
else is known here of any verb. `commands` modules import what is heavy inside `run`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from cache_engine.errors import CacheEngineError, InvalidValue

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


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence and where to look, like every other error here."""

    verbs: Mapping[str, argparse.ArgumentParser] = {}
    """Name -> its parser; on the parser of the whole command."""

    def error(self, message: str) -> NoReturn:
        self.exit(InvalidValue.exit_code, f"{self.prog}: {message}; `{self.prog} --help` shows how\n")


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    packages: Sequence[str] = PACKAGES,
) -> int:
    """Run one verb; returns the exit code. Errors of the family become a sentence on stderr, or one a wrong field."""
    try:
        _print_any_name()
        code = _run(sys.argv[1:] if argv is None else argv, os.environ if environ is None else environ, packages)
        sys.stdout.flush()
    except CacheEngineError as error:
        for line in str(error).splitlines() or [type(error).__name__]:
            print(f"forebay: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nforebay: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except OSError as error:  # of the local disk or of standard output: all others are of the family
        print(f"forebay: {error.filename or 'standard output'}: {error.strerror or error}", file=sys.stderr)
        _forget_output()
        return 1
    return code


def _run(argv: Sequence[str], environ: Mapping[str, str], packages: Sequence[str]) -> int:
    parser = make_parser(packages)
    if not argv:
        parser.print_help(sys.stderr)
        return InvalidValue.exit_code
    if not argv[0].startswith("-") and argv[0] not in parser.verbs:
        near = difflib.get_close_matches(argv[0], parser.verbs, n=1)
        meant = f"did you mean `forebay {near[0]}`? " if near else ""
        raise InvalidValue(f"there is no verb {argv[0]!r}; {meant}`forebay --help` lists them")
    args = parser.parse_args(argv)
    return int(args.run(args, environ) or 0)


def make_parser(packages: Sequence[str]) -> Parser:
    """All verbs of all packages that have some."""
    parser = Parser(
        prog="forebay",
        description="Data held in front of the accelerators: declare a Dataset, keep it warm, read it fast.",
        epilog="Start with `forebay up`, then `forebay apply -f dataset.yaml`. `forebay VERB --help` explains a verb.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for package in packages:
        if importlib.util.find_spec(f"{package}.commands"):
            importlib.import_module(f"{package}.commands").register(verbs)
    parser.verbs = verbs.choices
    return parser


class _Version(argparse.Action):
    """Looked up only when asked for: the import takes as long as all others together."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"forebay {version('forebay')}")
        parser.exit()


def _print_any_name() -> None:
    """A name that the terminal's encoding cannot show is printed escaped, not refused."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """What could not be written stays so: else the flush at exit complains a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
