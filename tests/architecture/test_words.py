"""One word an idea: the banned ones do not appear in names, and nothing is called utils."""

from __future__ import annotations

import ast

from tests.architecture import code

SUFFIXES = ("Manager", "Handler", "Helper", "Util", "Utils", "Service", "Processor", "Info", "Data", "Base", "Impl")
FILES = {"utils", "util", "common", "helpers", "misc", "base", "core"}


def test_classes_do_not_hide_behind_empty_suffixes() -> None:
    bad = [
        f"{code.name(path)}:{node.name}"
        for path in code.modules()
        for node in ast.walk(code.tree(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith(SUFFIXES)
    ]
    assert bad == []


def test_no_module_is_a_drawer() -> None:
    assert [code.name(path) for path in code.modules() if path.stem in FILES] == []


def test_every_module_says_why_it_exists() -> None:
    silent = [code.name(path) for path in code.modules() if not ast.get_docstring(code.tree(path))]
    assert silent == []
