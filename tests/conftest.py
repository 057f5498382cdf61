"""The order of all tests: what everything else stands on first, real processes last, so that the first failure names
the cause. And `-m soak` where there is no soak test is no failure. Nothing here touches an outcome.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ORDER = (
    "cache_engine",
    "contracts",
    "prefetch",
    "model_loader",
    "scheduler_hooks",
    "training",
    "serving",
    "dataset_controller",
    "benchmarks",
    "architecture",
    "test_semantics.py",
    "e2e",
)
"""Folders and files of tests/ by floor; what is not named here comes before `architecture`."""
LAST = "test_wheel.py"
"""Builds and installs: slow, and worth it only when all else holds."""

TESTS = Path(__file__).parent


def rank(path: Path) -> tuple[bool, int]:
    """Where a test file comes; files of one rank keep their order."""
    first = path.relative_to(TESTS).parts[0]
    return path.name == LAST, ORDER.index(first if first in ORDER else "architecture")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.path))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    only_soak = session.config.option.markexpr == "soak"
    if only_soak and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
