"""Environment, arguments, clock and randomness enter at the edge; modules marked pure do no I/O."""

from __future__ import annotations

import ast

from tests.architecture import code

EDGES = {
    "cache_engine/__init__.py",
    "cache_engine/client.py",
    "cache_engine/discovery.py",
    "cache_engine/worker_process.py",
    "dataset_controller/cli.py",
    "dataset_controller/clusters/local/leash.py",
}
"""Besides every commands.py: where the environment may be read."""
PURE = (
    "cache_engine/block.py",
    "cache_engine/sizes.py",
    "cache_engine/errors.py",
    "cache_engine/ring.py",
    "cache_engine/wire.py",
    "cache_engine/pieces.py",
    "cache_engine/access.py",
    "cache_engine/names.py",
    "dataset_controller/reconcile.py",
)
IMPURE = {"time", "random", "os", "socket", "asyncio", "logging", "pathlib", "subprocess", "tempfile"}


def _imports(path: str) -> set[str]:
    found = set()
    for node in ast.walk(code.tree(code.ROOT / path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_pure_modules_import_nothing_that_acts() -> None:
    assert {path: bad for path in PURE if (bad := _imports(path) & IMPURE)} == {}


def test_the_environment_is_read_at_the_edge_alone() -> None:
    readers = {
        code.name(path)
        for path in code.modules()
        for node in ast.walk(code.tree(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("os", "environ"), ("os", "getenv"), ("sys", "argv")}
    }
    assert {path for path in readers if not path.endswith("/commands.py")} - EDGES == set()
