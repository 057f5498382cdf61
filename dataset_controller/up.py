"""The verbs `up` and `down`: the only ones that start and stop processes. `serve.py` is what `up` runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cache_engine.errors import InvalidValue
from cache_engine.output import add_output_option, count, show
from cache_engine.sizes import format_size, parse_size

if TYPE_CHECKING:
    from dataset_controller.serve import Outside, UpOptions

DOWN_WITHIN = 30.0
"""Seconds that `down` waits: workers get 5 s to write their clean marks."""

Environ = Mapping[str, str]


def register_up(verbs: Any, outside: Outside | None) -> None:
    """Add both; `outside` is what `up` starts, the real things by default."""
    verb = verbs.add_parser("up", help="start the controller and its workers", description=_UP)
    verb.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes (default 1)")
    verb.add_argument("--cache-size", default="10GiB", metavar="SIZE", help="disk for each worker (default 10GiB)")
    verb.add_argument(
        "--state", metavar="DIR", help="state directory (default $FOREBAY_HOME or ~/.local/state/forebay)"
    )
    verb.add_argument("--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (default: any that is free)")
    verb.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="the workers' host; repeatable, in turn"
    )
    verb.add_argument("--detach", action="store_true", help="return when it is ready and leave it running")
    verb.add_argument("-v", "--verbose", action="store_true", help="log every decision")
    verb.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    add_output_option(verb)
    verb.set_defaults(run=partial(run_up, outside))
    verb = verbs.add_parser("down", help="stop the controller and its workers", description="Stop what `up` started.")
    verb.add_argument("--state", metavar="DIR", help="its state directory")
    add_output_option(verb)
    verb.set_defaults(run=run_down)


def run_up(outside: Outside | None, args: argparse.Namespace, environ: Environ) -> int:
    """Until it is stopped; with --detach until it is ready."""
    from dataset_controller import serve

    options = _up_options(args, environ)
    outside = outside or serve.real_outside()
    if args.detach:
        from dataset_controller.detach import detach

        document = detach(_again(outside.program, args, options), environ, options.state / "logs" / "up.log")
        show(args.output, document, lambda: _banner(document, environ))
        return 0
    _log_to_stderr(verbose=args.verbose or args.ready_fd is not None)
    return serve.up(options, outside, environ, partial(_announce, args, environ))


def run_down(args: argparse.Namespace, environ: Environ) -> int:
    """Idempotent: nothing to stop is no error."""
    from dataset_controller.clusters.local.state import stop_owner

    state = _state(args, environ)
    pid = stop_owner(state, DOWN_WITHIN)
    said = f"stopped process {pid} on {state}" if pid else f"no controller runs on {state}"
    show(args.output, {"stopped": pid or None, "state": str(state)}, lambda: said)
    return 0


def _up_options(args: argparse.Namespace, environ: Environ) -> UpOptions:
    from dataset_controller.serve import UpOptions

    if not 1 <= args.workers <= 64:
        raise InvalidValue(f"--workers {args.workers} is not allowed; write a whole number from 1 to 64")
    if not 0 <= args.port <= 65535:
        raise InvalidValue(f"--port {args.port} is not allowed; write a whole number from 0 to 65535")
    try:
        quota = parse_size(args.cache_size)
    except InvalidValue as error:
        raise InvalidValue(f"--cache-size: {error}") from error
    return UpOptions(_state(args, environ), args.workers, quota, args.port, tuple(args.node))


def _again(program: Sequence[str], args: argparse.Namespace, options: UpOptions) -> list[str]:
    """The command line of the detached one."""
    command = [*program, "up", "--workers", str(options.workers), "--cache-size", str(options.quota)]
    command += ["--state", str(options.state), "--port", str(options.port)]
    return command + [part for node in args.node for part in ("--node", node)]


def _announce(args: argparse.Namespace, environ: Environ, document: dict[str, Any]) -> None:
    from dataset_controller.detach import tell_ready

    if args.ready_fd is not None:
        tell_ready(args.ready_fd, document)
    else:
        show(args.output, document, lambda: _banner(document, environ))
        sys.stdout.flush()


def _banner(document: Mapping[str, Any], environ: Environ) -> str:
    """What `up` prints when it is ready; other verbs look in the environment's state directory only."""
    from cache_engine.discovery import state_directory

    size = f"{count(document['workers'], 'worker')}, {format_size(document['cacheSize'])} of cache each"
    lines = [f"Forebay answers at {document['url']} (pid {document['pid']}, state in {document['state']})", size]
    if environ.get("FOREBAY_API") or document["state"] != str(state_directory(environ)):
        lines.append(f"In other shells: unset FOREBAY_API; export FOREBAY_HOME={document['state']}")
    lines.append("Next: forebay apply -f dataset.yaml, then forebay get datasets; stop with forebay down")
    return "\n".join(lines)


def _state(args: argparse.Namespace, environ: Environ) -> Path:
    from cache_engine.discovery import state_directory

    return Path(args.state).absolute() if args.state else state_directory(environ)


def _log_to_stderr(verbose: bool) -> None:
    import logging

    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if verbose else logging.WARNING, format=form)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


_UP = """Start one controller, its workers and the REST API on 127.0.0.1, in the foreground. Datasets and their cached
bytes survive a restart on the same state directory. Ctrl-C or `forebay down` stops everything."""
