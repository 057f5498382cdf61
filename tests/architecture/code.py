"""What the architecture tests look at: the product's modules and functions, read as text and as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "cache_engine",
    "prefetch",
    "model_loader",
    "scheduler_hooks",
    "training",
    "serving",
    "dataset_controller",
)


@lru_cache
def modules() -> list[Path]:
    """Every Python file of the seven packages."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@lru_cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(file:function, its node) for every function and method."""
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name(path)}:{node.name}", node
