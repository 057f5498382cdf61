"""What verbs print, on all floors: an aligned table for people, JSON or YAML for programs.

A verb adds `-o` with `add_output_option` and prints one thing with `show`; the word "human" is the default.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

FORMATS = ("json", "yaml")


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """`-o json|yaml`, as args.output."""
    parser.add_argument("-o", "--output", choices=FORMATS, help="print JSON or YAML instead of text for people")


def show(output: str | None, document: Any, human: Callable[[], str]) -> None:
    """Print `document` in the format asked for; `human()` makes the text for people."""
    print(rendered(output, document) if output else human())


def rendered(output: str, document: Any) -> str:
    """`document` as JSON or YAML text, without a newline at the end."""
    if output == "json":
        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).rstrip("\n")


def count(number: int, noun: str) -> str:
    """1 -> '1 file', 2 -> '2 files'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned on the left, two blanks apart, no blanks at the ends of lines."""
    lines = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def facts(rows: Sequence[tuple[str, object]], indent: int = 0) -> str:
    """`name: value` lines with the values in one column."""
    width = max((len(name) for name, _ in rows), default=0) + 1
    return "\n".join(f"{' ' * indent}{name + ':':<{width}} {value}".rstrip() for name, value in rows)
