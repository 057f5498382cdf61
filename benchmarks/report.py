"""How answers look, and the command line of benchmarks: `python -m benchmarks` and `python -m benchmarks.NAME`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.harness import ROUNDS, Options, Questions, Row, answers

_QUICK_ROUNDS = 2
_HEAD = ("question", "value", "", "goal", "holds", "medians")


def run(benchmarks: Mapping[str, Questions], argv: Sequence[str] | None = None) -> int:
    """Ask the benchmarks named on the command line (all where none is); exit code 1 under --strict if a goal fails."""
    words = parser(sorted(benchmarks))
    options = words.parse_args(argv)
    unknown = sorted(set(options.names) - set(benchmarks))
    if unknown:
        words.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(sorted(benchmarks))}")
    chosen = options.names or sorted(benchmarks)
    rounds = options.rounds or (_QUICK_ROUNDS if options.quick else ROUNDS)
    rows: list[Row] = []
    for name in chosen:
        for row in answers(benchmarks[name], Options(rounds, options.quick)):
            rows.append(row)
            print(to_json(row) if options.json else f"... {line(row)}", file=sys.stdout if options.json else sys.stderr)
            sys.stdout.flush()
    if not options.json:
        print(table(rows))
    return 1 if options.strict and any(row.holds is False for row in rows) else 0


def parser(names: Sequence[str]) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure; one file a question.")
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    options.add_argument("--json", action="store_true", help="one JSON object a line instead of the table")
    options.add_argument("--rounds", type=int, help=f"interleaved rounds (default {ROUNDS})")
    options.add_argument("--quick", action="store_true", help="small inputs, few rounds: only to see that it runs")
    options.add_argument("--strict", action="store_true", help="exit code 1 where a goal does not hold")
    return options


def to_json(row: Row) -> str:
    return json.dumps({**asdict(row), "value": _figures(row.value)}, default=str)


def line(row: Row) -> str:
    return " ".join(filter(None, cells(row)))


def cells(row: Row) -> tuple[str, ...]:
    holds = {True: "yes", False: "NO", None: ""}[row.holds]
    return row.question, figure(row.value), row.unit, row.goal, holds, medians(row.peers)


def medians(peers: Mapping[str, float]) -> str:
    """'ours 3.2, sockets 4 GB/s': a unit that all share, in brackets behind each name, is written once."""
    units = {name.rpartition(" (")[2] for name in peers}
    shared = units.pop() if len(units) == 1 else ""
    if not shared.endswith(")"):
        return ", ".join(f"{name} {figure(value)}" for name, value in peers.items())
    shown = ", ".join(f"{name.rpartition(' (')[0]} {figure(value)}" for name, value in peers.items())
    return f"{shown} {shared[:-1]}"


def table(rows: Sequence[Row]) -> str:
    """Aligned columns, a rule below the head, and the conditions of the last row below all."""
    body = [cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(_HEAD, *body, strict=True)]
    rule = tuple("-" * width for width in widths)
    lines = [_joined(cells, widths) for cells in (_HEAD, rule, *body)]
    shared = ("date", "cpus", "kernel", "python", "load", "commit")
    if rows:
        lines += [
            "",
            ", ".join(f"{name} {rows[-1].conditions[name]}" for name in shared if name in rows[-1].conditions),
        ]
    return "\n".join(lines)


def figure(value: float) -> str:
    """Three significant figures, without an exponent: 0.812, 12.3, 431, 120,000."""
    if value == 0:
        return "0"
    rounded = _figures(value, 3)
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.{2 if abs(rounded) >= 1 else 6}f}".rstrip("0").rstrip(".")


def _figures(value: float, n: int = 6) -> float:
    return float(f"{value:.{n}g}")


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        cell.rjust(width) if title == "value" else cell.ljust(width)
        for cell, width, title in zip(row, widths, _HEAD, strict=True)
    )
    return "  ".join(aligned).rstrip()
