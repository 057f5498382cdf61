"""The verbs of the controller: up, down, apply, get, describe, delete, refresh, explain.

Only `up` runs the controller; the others speak to it through `cache_engine.control` and load neither pydantic nor
FastAPI. Environment, clock and terminal enter here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cache_engine.errors import CacheEngineError, InvalidValue
from cache_engine.output import FORMATS, TEXT, count, show
from cache_engine.sizes import format_duration, format_size, parse_duration, parse_size
from cache_engine.verbs import Verbs, add_verb

if TYPE_CHECKING:
    from cache_engine.control import Control
    from dataset_controller.serve import Outside

DATASETS = ("datasets", "dataset", "ds")
WORKERS = ("workers", "worker")
POLL = 0.05
"""Seconds between looks of `apply --wait`."""
DOWN_WITHIN = 30.0
"""Seconds that `down` waits: workers get 5 s to write their clean marks."""


def register(verbs: Verbs, outside: Outside | None = None) -> None:
    """Add the verbs; `outside` is what `up` starts, the real things by default."""
    _register_up(verbs, outside)
    _register_declaring(verbs)
    _register_looking(verbs)


def _register_up(verbs: Verbs, outside: Outside | None) -> None:
    verb = verbs.add_parser("up", help="Start the controller and its workers.", description=_UP)
    verb.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes (default 1)")
    verb.add_argument("--cache-size", default="10GiB", metavar="SIZE", help="disk for each worker (default 10GiB)")
    verb.add_argument(
        "--state", metavar="DIR", help="state directory (default $FOREBAY_HOME or ~/.local/state/forebay)"
    )
    verb.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: any that is free)")
    verb.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="the workers' host; repeatable, in turn"
    )
    verb.add_argument("--detach", action="store_true", help="return when it is ready and leave it running")
    verb.add_argument("-v", "--verbose", action="store_true", help="log every decision")
    verb.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    verb.add_argument("-o", "--output", choices=FORMATS, default=TEXT, help="form of what is said when it is ready")
    verb.set_defaults(run=partial(run_up, outside))
    verb = verbs.add_parser("down", help="Stop the controller and its workers.", description="Stop what `up` started.")
    verb.add_argument("--state", metavar="DIR", help="its state directory")
    verb.set_defaults(run=run_down)


def _register_declaring(verbs: Verbs) -> None:
    verb = add_verb(verbs, "apply", "Create or change Datasets from YAML.", run_apply)
    verb.description = _APPLY
    verb.add_argument("-f", "--file", action="append", required=True, metavar="FILE", help="YAML file, - for stdin")
    verb.add_argument("--wait", action="store_true", help="return when all of them are Ready")
    verb.add_argument("--timeout", default="10m", metavar="DURATION", help="how long --wait waits (default 10m)")
    verb = add_verb(verbs, "delete", "Delete Datasets; their cells are dropped.", run_delete)
    verb.description = _DELETE
    verb.add_argument("names", nargs="+", metavar="NAME")
    verb = add_verb(verbs, "refresh", "Take a new snapshot and say what changed.", run_refresh)
    verb.description = _REFRESH
    verb.add_argument("name", metavar="NAME")


def _register_looking(verbs: Verbs) -> None:
    verb = add_verb(verbs, "get", "List Datasets or workers.", run_get)
    verb.add_argument("kind", choices=(*DATASETS, *WORKERS), metavar="datasets|workers")
    verb.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    verb = add_verb(verbs, "describe", "Show a Dataset with its mounts and conditions.", run_describe)
    verb.add_argument("name", metavar="NAME")
    verb = add_verb(verbs, "explain", "Say why a Dataset is not ready, or cold, in numbers.", run_explain)
    verb.add_argument("name", metavar="NAME")


def run_up(outside: Outside | None, args: argparse.Namespace) -> int:
    """Until it is stopped; with --detach until it is ready."""
    from dataset_controller import serve

    options = _up_options(args)
    outside = outside or serve.real_outside()
    if args.detach:
        from dataset_controller.detach import detach

        document = detach(_again(outside.program, args, options), args.environ, options.state / "logs" / "up.log")
        show(args.output, document, lambda: _banner(document, args.environ))
        return 0
    _log_to_stderr(verbose=args.verbose or args.ready_fd is not None)
    return serve.up(options, outside, args.environ, partial(_announce, args))


def run_down(args: argparse.Namespace) -> int:
    """Idempotent: nothing to stop is no error."""
    from dataset_controller.clusters.local.state import stop_owner

    state = _state(args)
    pid = stop_owner(state, DOWN_WITHIN)
    print(f"stopped process {pid} on {state}" if pid else f"no controller runs on {state}")
    return 0


def run_apply(args: argparse.Namespace) -> int:
    """All documents of all files, or none."""
    from dataset_controller.documents import read_documents

    timeout = parse_duration(args.timeout)
    documents = [document.body for file in args.file for document in read_documents(_text(file), file)]
    control = _control(args)
    items = control.call("POST", "/v1/datasets", {"kind": "List", "items": documents})["items"]
    if args.wait:
        for item in items:
            item["dataset"] = _wait_ready(control, item["dataset"], timeout)
    show(args.output, {"items": items}, lambda: "\n".join(_applied(item, wait=args.wait) for item in items))
    return 0


def run_get(args: argparse.Namespace) -> int:
    from dataset_controller import printing

    control = _control(args)
    if args.kind in WORKERS:
        document = control.call("GET", "/v1/workers")
        if args.name:
            document = _one_worker(document["items"], args.name)
        show(args.output, document, lambda: printing.workers_table(document.get("items", [document])))
    else:
        document = control.call("GET", _path(args.name) if args.name else "/v1/datasets")
        show(args.output, document, lambda: printing.datasets_table(document.get("items", [document]), time.time()))
    return 0


def run_describe(args: argparse.Namespace) -> int:
    from dataset_controller import printing

    document = _control(args).call("GET", _path(args.name))
    show(args.output, document, lambda: printing.description(document, time.time()))
    return 0


def run_explain(args: argparse.Namespace) -> int:
    from dataset_controller import printing

    document = _control(args).call("GET", f"{_path(args.name)}/explain")
    show(args.output, document, lambda: printing.explanation(document))
    return 0


def run_refresh(args: argparse.Namespace) -> int:
    from dataset_controller import printing

    document = _control(args).refresh(args.name)
    show(args.output, document, lambda: printing.refreshed(document))
    return 0


def run_delete(args: argparse.Namespace) -> int:
    control = _control(args)
    deleted = []
    for name in args.names:
        deleted.append(control.call("DELETE", _path(name)))
        if args.output == TEXT:
            print(f"dataset/{name} deleted")
    if args.output != TEXT:
        show(args.output, {"items": deleted}, str)
    return 0


def _up_options(args: argparse.Namespace) -> Any:
    from dataset_controller.serve import UpOptions

    if not 1 <= args.workers <= 64:
        raise InvalidValue(f"--workers {args.workers} is not allowed; write a whole number from 1 to 64")
    if not 0 <= args.port <= 65535:
        raise InvalidValue(f"--port {args.port} is not allowed; write a whole number from 0 to 65535")
    try:
        quota = parse_size(args.cache_size)
    except InvalidValue as error:
        raise InvalidValue(f"--cache-size: {error}") from error
    return UpOptions(_state(args), args.workers, quota, args.port, tuple(args.node))


def _again(program: Sequence[str], args: argparse.Namespace, options: Any) -> list[str]:
    """The command line of the detached one."""
    command = [*program, "up", "--workers", str(options.workers), "--cache-size", str(options.quota)]
    command += ["--state", str(options.state), "--port", str(options.port)]
    return command + [part for node in args.node for part in ("--node", node)]


def _announce(args: argparse.Namespace, document: dict[str, Any]) -> None:
    from dataset_controller.detach import tell_ready

    if args.ready_fd is not None:
        tell_ready(args.ready_fd, document)
    else:
        show(args.output, document, lambda: _banner(document, args.environ))
        sys.stdout.flush()


def _banner(document: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """What `up` prints when it is ready; other verbs look in the environment's state directory only."""
    from cache_engine.discovery import state_directory

    size = f"{count(document['workers'], 'worker')}, {format_size(document['cacheSize'])} of cache each"
    lines = [f"Forebay answers at {document['url']} (pid {document['pid']}, state in {document['state']})", size]
    if environ.get("FOREBAY_API") or document["state"] != str(state_directory(environ)):
        lines.append(f"In other shells: unset FOREBAY_API; export FOREBAY_HOME={document['state']}")
    lines.append("Next: forebay apply -f dataset.yaml, then forebay get datasets; stop with forebay down")
    return "\n".join(lines)


def _control(args: argparse.Namespace) -> Control:
    from cache_engine.control import Control
    from cache_engine.discovery import find_control

    return Control(args.api, origin="named by --api") if args.api else find_control(args.environ)


def _state(args: argparse.Namespace) -> Path:
    from cache_engine.discovery import state_directory

    return Path(args.state).absolute() if args.state else state_directory(args.environ)


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidValue(f"{file} cannot be read: {reason}") from error


def _path(name: str) -> str:
    return f"/v1/datasets/{quote(name, safe='')}"


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


def _log_to_stderr(verbose: bool) -> None:
    import logging

    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if verbose else logging.WARNING, format=form)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


_UP = """Start one controller, its workers and the REST API on 127.0.0.1, in the foreground. Datasets and their cached
bytes survive a restart on the same state directory. Ctrl-C or `forebay down` stops everything."""
_APPLY = """Create or change the Datasets of YAML files (several documents in a file are welcome). All are checked
first: if a field is wrong, nothing is stored, and each wrong field is named with the allowed form."""
_DELETE = "Delete Datasets. Workers drop their cached bytes; the source is never touched."
_REFRESH = "List the source again, wait for it, and print how many files were added, changed and are gone."
