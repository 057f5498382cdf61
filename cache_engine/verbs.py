"""What the verbs that read Datasets share: options, places on the command line, documents as output.

A package's `commands.py` registers its verbs with argparse; each sets `run`, a callable from the parsed arguments
to an exit code. Errors are raised; `dataset_controller.cli` prints them and turns them into exit codes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from cache_engine.errors import InvalidValue
from cache_engine.sharing import Connect

Run = Callable[[argparse.Namespace], int]
Verbs = Any
"""What `ArgumentParser.add_subparsers` returns; argparse has no public name for it."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def add_verb(verbs: Verbs, name: str, help_: str, run: Run) -> argparse.ArgumentParser:
    """A verb with the options that every one of them has: -o and --api."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help_, description=help_)
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the answer")
    parser.add_argument("--api", metavar="URL", help="the controller (default: $FOREBAY_API, else the local one)")
    parser.set_defaults(run=run)
    return parser


def split_place(place: str) -> tuple[str, str]:
    """'NAME/some/path' or 'forebay://NAME/some/path' -> (Dataset, path). Raises InvalidValue without a name."""
    name, _, path = place.removeprefix("forebay://").lstrip("/").partition("/")
    if not name:
        raise InvalidValue(f"{place!r} names no Dataset; write NAME or NAME/PATH")
    return name, path


def emit(document: Any, form: str) -> None:
    """Print a document as JSON or YAML."""
    if form == "yaml":
        import yaml

        yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        print(json.dumps(document, indent=2, ensure_ascii=False))


def default_connect() -> Connect:
    """`cache_engine.open`, looked up late: importing verbs must stay cheap."""
    import cache_engine

    return cache_engine.open
