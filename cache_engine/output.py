"""What verbs print, on all floors: an aligned table for people, JSON or YAML for programs.

`verbs.py` gives every verb its `-o`; a verb prints one thing with `show`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cache_engine.verbs import emit

TEXT = "text"
FORMATS = (TEXT, "json", "yaml")


def show(form: str, document: Any, human: Callable[[], str]) -> None:
    """Print `document` in the form asked for; `human()` makes the text for people."""
    if form == TEXT:
        print(human())
    else:
        emit(document, form)


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
