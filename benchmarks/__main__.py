"""`python -m benchmarks [NAME...] [--json]`: every file of this folder that states `questions`, or those named."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path

import benchmarks
from benchmarks.harness import Options, Question, Questions, Row
from benchmarks.report import run

_HERE = Path(__file__).resolve().parent


def benchmark_files() -> dict[str, Questions]:
    """By name; none is imported before it is asked."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.ispkg)
    return {name: _late(name) for name in found if "\ndef questions(" in (_HERE / f"{name}.py").read_text()}


def _late(name: str) -> Questions:
    def questions(options: Options) -> Iterable[Question | Row]:
        module = importlib.import_module(f"benchmarks.{name}")
        yield from module.questions(options)

    return questions


if __name__ == "__main__":
    sys.exit(run(benchmark_files()))
