"""The reference pages as Markdown: fields of a Dataset, metrics, verbs. Pure, out of what the code itself declares.

`generate.py` writes them down and compares them; the tests of the surface read the same lists.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataset_controller.structural_schema import FORM

MADE = "<!-- Written by `make generate`; a change made here is lost. -->"


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or operand of a verb. `names` as typed, such as '-o, --output json|yaml'."""

    names: str
    means: str


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the command line."""

    name: str
    means: str
    usage: str
    arguments: tuple[Argument, ...]


def verbs_of(parsers: Mapping[str, argparse.ArgumentParser]) -> list[Verb]:
    """What `cli.Parser.verbs` holds, in the order of --help."""
    return [_verb(name, verb) for name, verb in parsers.items()]


def _verb(name: str, parser: argparse.ArgumentParser) -> Verb:
    # argparse has no public list of what was added to a parser
    shown = [one for one in parser._actions if one.help != argparse.SUPPRESS and one.dest != "help"]
    operands = [one for one in shown if not one.option_strings]
    options = [one for one in shown if one.option_strings]
    words = [f"forebay {name}", *(_option_usage(one) for one in options), *(_operand(one) for one in operands)]
    means = " ".join((parser.description or "").split())
    listed = [Argument(_names(one), one.help or "") for one in (*operands, *options)]
    return Verb(name, means, " ".join(words), tuple(listed))


def _operand(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest.upper())
    if action.nargs == "+":
        return f"{name} [{name} ...]" if " " not in name else name
    return {"*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices:
        return " " + "|".join(str(choice) for choice in action.choices)
    return f" {action.metavar or action.dest.upper()}"


def _option_usage(action: argparse.Action) -> str:
    text = f"{action.option_strings[0]}{_value(action)}"
    return text if action.required else f"[{text}]"


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest.upper())
    return ", ".join(action.option_strings) + _value(action)


def cli_page(verbs: Iterable[Verb]) -> str:
    """docs/CLI.md."""
    parts = [
        f"# The command `forebay`\n\n{MADE}\n\n"
        "Every verb speaks to the controller that `FOREBAY_API` names, else to the one that `forebay up` started on\n"
        "this machine (`$FOREBAY_HOME`, default `~/.local/state/forebay`). Exit codes: 0 done, 1 failed or done in\n"
        "part, 2 and above as in the [table of errors](SEMANTICS.md#11-errors), 130 after Ctrl-C.\n"
    ]
    for verb in verbs:
        rows = [(f"`{_cell(one.names)}`", _cell(one.means)) for one in verb.arguments]
        table = f"\n{_table(('argument', 'means'), rows)}\n" if rows else ""
        parts.append(f"\n## {verb.name}\n\n{verb.means}\n\n```\n{verb.usage}\n```\n{table}")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric as it is scraped."""

    name: str
    type: str
    labels: tuple[str, ...]
    means: str


def metrics_page(worker: Iterable[MetricRow], controller: Iterable[MetricRow]) -> str:
    """docs/METRICS.md."""
    head = ("metric", "type", "labels", "means")
    parts = [f"# Metrics\n\n{MADE}\n\nIn the text format of Prometheus. All sizes are bytes.\n"]
    for title, rows in (
        ("Of a worker: `GET /metrics` on its port (`forebay get workers` shows it)", worker),
        ("Of the controller: `GET /metrics` on its port", controller),
    ):
        cells = [(f"`{row.name}`", row.type, ", ".join(row.labels) or "-", row.means) for row in rows]
        parts.append(f"\n## {title}\n\n{_table(head, cells)}\n")
    return "".join(parts)


def fields_page(schema: Mapping[str, Any], resource: str) -> str:
    """docs/CRDS.md, from the schema of `structural_schema.inlined`."""
    parts = [
        f"# {resource}: every field\n\n{MADE}\n\n"
        "A field that is not listed here is refused. `[]` stands for any item of a list, `{...}` for one of the names\n"
        "that are allowed. What stands in `metadata` beside name, labels and annotations, and all of `status`, is\n"
        "written by the controller; what an `apply` says there is passed over.\n"
    ]
    head = ("field", "type", "default", "allowed", "means")
    for part, node in schema["properties"].items():
        if node["type"] == "object":
            rows = [tuple(map(_cell, row)) for row in field_rows(node, part)]
            parts.append(f"\n## {part}\n\n{node['description']}\n\n{_table(head, rows)}\n")
    return "".join(parts)


def field_rows(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str, str, str]]:
    """(path, type, default, allowed, meaning) of every field below `path`."""
    required = node.get("required", ())
    for name, part in _children(node):
        here = f"{path}.{name}"
        yield _field_row(part, here, required=name in required)
        yield from field_rows(part["items"], f"{here}[]") if part["type"] == "array" else field_rows(part, here)


def _children(node: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The fields of a mapping; names that all hold the same kind of mapping are one row."""
    fields = node.get("properties", {})
    parts = list(fields.values())
    if len(parts) > 1 and parts[0]["type"] == "object" and all(part == parts[0] for part in parts):
        return [("{name}", parts[0])]
    return list(fields.items())


def _field_row(part: Mapping[str, Any], path: str, required: bool) -> tuple[str, str, str, str, str]:
    default = f"`{json.dumps(part['default'])}`" if "default" in part else "required" if required else "-"
    allowed = part.get(FORM) or ", ".join(part.get("enum", ())) or "-"
    return f"`{path}`", _type(part), default, allowed, part.get("description", "-")


def _type(part: Mapping[str, Any]) -> str:
    if part["type"] == "array":
        return f"list of {_type(part['items'])}s"
    if "additionalProperties" in part:
        return f"mapping of names to {_type(part['additionalProperties'])}s"
    return {"object": "mapping", "string": "text", "integer": "whole number", "boolean": "true or false"}[part["type"]]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join('---' for _ in head)}|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
