"""The one harness: a benchmark states its question, its arms and its goal; this asks it fairly and writes the answer.

    def questions(options: Options) -> Iterator[Question | Row]:
        with StoreProcess(...) as store:
            yield Question("wire: 1 reader", "GB/s", {"forebay": ours, "sockets": peer}, at_least(0.8, of="sockets"))

An arm is a callable that does the work once and returns what it measured, in the question's unit. The first arm is
ours. In each round the arms run in order and then in reverse (A B C C B A), so that a drift of the machine's speed
cancels; an arm's value in a round is the mean of its two runs. Against a peer, the value is the median over the
rounds of ours / peer within one round (peer / ours where less is better), never a ratio of medians. What a
benchmark measured in its own way is a `Row`, made by `row`. `report.py` prints, `arms.py` runs arms in processes.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Arm = Callable[[], float]
_TREE = Path(__file__).resolve().parents[1]
ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Goal:
    """`value >= bound` or `value <= bound`; `of` names the peer that ours is divided by, None the value itself."""

    sign: str
    bound: float
    of: str | None = None

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.sign == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}" + (f" of {self.of}" if self.of else "")


def at_least(bound: float, of: str | None = None) -> Goal:
    return Goal(">=", bound, of)


def at_most(bound: float, of: str | None = None) -> Goal:
    return Goal("<=", bound, of)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of whom, and what would be good."""

    text: str
    unit: str
    """Of what the arms return, such as GB/s, files/s, s."""
    arms: Mapping[str, Arm]
    """By name; the first is ours."""
    goal: Goal | None = None
    less_is_better: bool = False
    """True for seconds: then a ratio is peer / ours, so that above 1 always means that we are better."""
    rounds: int | None = None
    """How often; None: as the command line says."""
    mirrored: bool = True
    """False: one run an arm and round, the direction alternating from round to round; for arms of many seconds."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Goes into the row's conditions: sizes, concurrency, caps."""


@dataclass(frozen=True, slots=True)
class Row:
    """One answer, one line of the table, one JSON object."""

    question: str
    unit: str
    value: float
    goal: str = ""
    holds: bool | None = None
    """None where there is no goal."""
    peers: Mapping[str, float] = field(default_factory=dict)
    """The median of every arm in the question's own unit, ours included."""
    conditions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says to every benchmark."""

    rounds: int = ROUNDS
    quick: bool = False
    """Smaller inputs and few rounds: to see that it runs, not to be quoted."""


def ask(question: Question, options: Options) -> Row:
    """Run the rounds and judge the goal."""
    rounds = question.rounds or options.rounds
    began = os.getloadavg()[0]
    measured = interleave(question.arms, rounds, mirrored=question.mirrored)
    return judge(question, measured, {**question.notes, "rounds": rounds, "load_before": round(began, 2)})


def interleave(arms: Mapping[str, Arm], rounds: int, *, mirrored: bool) -> dict[str, list[float]]:
    """Each arm's value by round."""
    values: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        runs: dict[str, list[float]] = {name: [] for name in arms}
        for name in order(list(arms), number, mirrored=mirrored):
            runs[name].append(arms[name]())
        for name, seen in runs.items():
            values[name].append(statistics.fmean(seen))
    return values


def order(names: Sequence[str], number: int, *, mirrored: bool) -> list[str]:
    """The order of runs in round `number`: there and back again, or one way in turns."""
    back = list(reversed(names))
    if mirrored:
        return [*names, *back]
    return back if number % 2 else list(names)


def judge(question: Question, measured: Mapping[str, Sequence[float]], notes: Mapping[str, Any]) -> Row:
    """The row of what was measured."""
    ours = next(iter(measured))
    peer = question.goal.of if question.goal else None
    unit = question.unit if peer is None else f"of {peer}"
    if peer is None:
        value = statistics.median(measured[ours])
    else:
        value = median_ratio(measured[ours], measured[peer], less_is_better=question.less_is_better)
    medians = {f"{name} ({question.unit})": statistics.median(values) for name, values in measured.items()}
    return row(question.text, unit, value, question.goal, peers=medians, notes=notes)


def row(
    question: str,
    unit: str,
    value: float,
    goal: Goal | None = None,
    *,
    peers: Mapping[str, float] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Row:
    """A row out of one value that the benchmark measured in its own way."""
    text, holds = ("", None) if goal is None else (str(goal), goal.holds(value))
    return Row(question, unit, value, text, holds, dict(peers or {}), {**conditions(), **(notes or {})})


def median_ratio(ours: Sequence[float], peer: Sequence[float], *, less_is_better: bool = False) -> float:
    """The median over the rounds of the ratio within a round. Raises ValueError for unequal numbers of rounds."""
    pairs = zip(ours, peer, strict=True)
    return statistics.median(b / a if less_is_better else a / b for a, b in pairs)


def conditions() -> dict[str, Any]:
    """Where and when this was measured."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit of the tree, with a plus sign where files differ from it; empty outside a repository."""
    command = ["git", "-C", str(_TREE), "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


Questions = Callable[[Options], Iterable[Question | Row]]


def answers(questions: Questions, options: Options) -> Iterator[Row]:
    """The rows of one benchmark, each as soon as it is known; its set-up stays until the next one is asked for."""
    for item in questions(options):
        yield item if isinstance(item, Row) else ask(item, options)
