"""The verbs of the controller: apply, get, describe, delete, refresh, explain; and `up.py` adds up and down.

Only `up` runs the controller; these speak to it through `cache_engine.control` and load neither pydantic nor
FastAPI. Environment, clock and terminal enter here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cache_engine.errors import CacheEngineError, InvalidValue
from cache_engine.output import add_output_option, show
from cache_engine.sizes import format_duration, parse_duration
from dataset_controller.up import register_up

if TYPE_CHECKING:
    from cache_engine.control import Control
    from dataset_controller.serve import Outside

DATASETS = ("datasets", "dataset", "ds")
WORKERS = ("workers", "worker")
POLL = 0.05
"""Seconds between looks of `apply --wait`."""


Environ = Mapping[str, str]
Run = Callable[[argparse.Namespace, Environ], int]


def register(verbs: Any, outside: Outside | None = None) -> None:
    """Add the verbs; `outside` is what `up` starts, the real things by default."""
    register_up(verbs, outside)
    _register_declaring(verbs)
    _register_looking(verbs)


def _register_declaring(verbs: Any) -> None:
    verb = _add_verb(verbs, "apply", "create or change Datasets from YAML", run_apply)
    verb.description = _APPLY
    verb.add_argument("-f", "--file", action="append", required=True, metavar="FILE", help="YAML file, - for stdin")
    verb.add_argument("--wait", action="store_true", help="return when all of them are Ready")
    verb.add_argument("--timeout", default="10m", metavar="DURATION", help="how long --wait waits (default 10m)")
    verb = _add_verb(verbs, "delete", "delete Datasets; their cells are dropped", run_delete)
    verb.description = _DELETE
    verb.add_argument("names", nargs="+", metavar="NAME", help=_NAME)
    verb = _add_verb(verbs, "refresh", "take a new snapshot and say what changed", run_refresh)
    verb.description = _REFRESH
    verb.add_argument("name", metavar="NAME", help=_NAME)


def _register_looking(verbs: Any) -> None:
    verb = _add_verb(verbs, "get", "list Datasets or workers", run_get)
    verb.add_argument("kind", choices=(*DATASETS, *WORKERS), metavar="datasets|workers", help="what to list")
    verb.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    verb = _add_verb(verbs, "describe", "show a Dataset with its mounts and conditions", run_describe)
    verb.add_argument("name", metavar="NAME", help=_NAME)
    verb = _add_verb(verbs, "explain", "say why a Dataset is not ready, or cold, in numbers", run_explain)
    verb.add_argument("name", metavar="NAME", help=_NAME)


def _add_verb(verbs: Any, name: str, text: str, run: Run) -> argparse.ArgumentParser:
    """A verb that asks the controller and prints its answer."""
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    add_output_option(verb)
    verb.set_defaults(run=run)
    return verb


def run_apply(args: argparse.Namespace, environ: Environ) -> int:
    """All documents of all files, or none."""
    from dataset_controller.documents import read_documents

    timeout = parse_duration(args.timeout)
    documents = [document.body for file in args.file for document in read_documents(_text(file), file)]
    control = _control(environ)
    items = control.call("POST", "/v1/datasets", {"kind": "List", "items": documents})["items"]
    if args.wait:
        for item in items:
            item["dataset"] = _wait_ready(control, item["dataset"], timeout)
    show(args.output, {"items": items}, lambda: "\n".join(_applied(item, wait=args.wait) for item in items))
    return 0


def run_get(args: argparse.Namespace, environ: Environ) -> int:
    from dataset_controller import printing

    control = _control(environ)
    if args.kind in WORKERS:
        document = control.call("GET", "/v1/workers")
        if args.name is not None:
            document = _one_worker(document["items"], args.name)
        show(args.output, document, lambda: printing.workers_table(document.get("items", [document])))
    else:
        document = control.call("GET", "/v1/datasets" if args.name is None else _path(args.name))
        show(args.output, document, lambda: printing.datasets_table(document.get("items", [document]), time.time()))
    return 0


def run_describe(args: argparse.Namespace, environ: Environ) -> int:
    from dataset_controller import printing

    document = _control(environ).call("GET", _path(args.name))
    show(args.output, document, lambda: printing.description(document, time.time()))
    return 0


def run_explain(args: argparse.Namespace, environ: Environ) -> int:
    from dataset_controller import printing

    document = _control(environ).call("GET", f"{_path(args.name)}/explain")
    show(args.output, document, lambda: printing.explanation(document))
    return 0


def run_refresh(args: argparse.Namespace, environ: Environ) -> int:
    from dataset_controller import printing

    document = _control(environ).refresh(_checked(args.name))
    show(args.output, document, lambda: printing.refreshed(document))
    return 0


def run_delete(args: argparse.Namespace, environ: Environ) -> int:
    control = _control(environ)
    deleted = []
    for name in args.names:
        deleted.append(control.call("DELETE", _path(name)))
        if not args.output:
            print(f"dataset/{name} deleted")
    if args.output:
        show(args.output, {"items": deleted}, str)
    return 0


def _control(environ: Environ) -> Control:
    from cache_engine.discovery import find_control

    return find_control(environ)


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidValue(f"{file} cannot be read: {reason}") from error


def _path(name: str) -> str:
    return f"/v1/datasets/{quote(_checked(name), safe='')}"


def _checked(name: str) -> str:
    """A name that can stand in a URL of the API."""
    if not name or "/" in name:
        raise InvalidValue(f"{name!r} is no name of a Dataset; `forebay get datasets` lists those that exist")
    return name


def _one_worker(items: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    from cache_engine.errors import NotFound

    for item in items:
        if item["id"] == name:
            return item
    raise NotFound(f"there is no worker {name!r}; there are {', '.join(item['id'] for item in items)}")


def _applied(item: Mapping[str, Any], wait: bool) -> str:
    dataset = item["dataset"]
    line = f"dataset/{dataset['metadata']['name']} {item['change']}"
    return f"{line}, {dataset['status']['phase']}: {_why(dataset)}" if wait else line


def _why(dataset: Mapping[str, Any]) -> str:
    ready = next((one for one in dataset["status"]["conditions"] if one["type"] == "Ready"), None)
    if ready is None:
        return "not looked at yet"
    return str(ready["message"] if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}")


def _wait_ready(control: Control, dataset: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The Dataset once it is Ready. Raises CacheEngineError where it fails or the time is over."""
    metadata, deadline = dataset["metadata"], time.monotonic() + timeout
    while True:
        status = dataset["status"]
        if status["observedGeneration"] == metadata["generation"]:
            if status["phase"] == "Ready":
                return dataset
            if status["phase"] == "Failed":
                raise CacheEngineError(f"dataset/{metadata['name']} is Failed: {_why(dataset)}")
        if time.monotonic() >= deadline:
            after = format_duration(timeout)
            raise CacheEngineError(f"dataset/{metadata['name']} is {status['phase']} after {after}: {_why(dataset)}")
        time.sleep(POLL)
        dataset = control.call("GET", _path(metadata["name"]))


_NAME = "a Dataset"
_APPLY = """Create or change the Datasets of YAML files (several documents in a file are welcome). All are checked
first: if a field is wrong, nothing is stored, and each wrong field is named with the allowed form."""
_DELETE = "Delete Datasets. Workers drop their cached bytes; the source is never touched."
_REFRESH = "List the source again, wait for it, and print how many files were added, changed and are gone."
