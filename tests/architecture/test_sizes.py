"""The tail is budgeted: modules of at most 300 lines, functions of at most 40, at most 6 parameters."""

from __future__ import annotations

from tests.architecture import code

LONG_MODULES: dict[str, str] = {}
"""file -> why it may be longer than 300 lines."""
LONG_FUNCTIONS: dict[str, str] = {}
"""file:function -> why it may be longer than 40 lines."""
MANY_PARAMETERS: dict[str, str] = {}
"""file:function -> why it may have more than 6 parameters besides self."""


def test_modules_are_short() -> None:
    lengths = {code.name(path): len(path.read_text().splitlines()) for path in code.modules()}
    print(sorted(lengths.items(), key=lambda item: -item[1])[:5])
    assert {file: lines for file, lines in lengths.items() if lines > 300 and file not in LONG_MODULES} == {}


def test_functions_are_short() -> None:
    lengths = {where: (node.end_lineno or 0) - node.lineno + 1 for where, node in code.functions()}
    print(sorted(lengths.items(), key=lambda item: -item[1])[:5])
    assert {where: lines for where, lines in lengths.items() if lines > 40 and where not in LONG_FUNCTIONS} == {}
    over_30 = [where for where, lines in lengths.items() if lines > 30]
    assert len(over_30) <= len(lengths) / 20


def test_parameters_are_few() -> None:
    counts = {}
    for where, node in code.functions():
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        counts[where] = len([name for name in names if name not in ("self", "cls")])
    assert {where: n for where, n in counts.items() if n > 6 and where not in MANY_PARAMETERS} == {}


def test_no_exception_outlives_its_reason() -> None:
    known = {code.name(path) for path in code.modules()} | {where for where, _ in code.functions()}
    assert [entry for entry in (*LONG_MODULES, *LONG_FUNCTIONS, *MANY_PARAMETERS) if entry not in known] == []
