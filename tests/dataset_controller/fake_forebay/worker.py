"""A worker that listens, says where, and beats ten times a second; what it says comes from <directory>/script.json.

{"datasets": {...}, "changed": [...], "mute": true}: reported as they stand; muted it lives and says nothing.
Epochs that it was told are written to <directory>/epochs.json.
"""

import argparse
import json
import os
import socket
import time
from pathlib import Path

from cache_engine.control import Control
from cache_engine.errors import CacheEngineError

BEAT = 0.1


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("id", "control", "directory", "quota", "node"):
        parser.add_argument(f"--{name}")
    args = parser.parse_args()
    directory = Path(args.directory)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    print(json.dumps({"url": url}), flush=True)
    control = Control(args.control)
    while True:
        script = read_script(directory / "script.json")
        if not script.pop("mute", False):
            facts = {"id": args.id, "url": url, "node": args.node, "directory": args.directory, "pid": os.getpid()}
            beat(control, {**facts, "capacity": int(args.quota), "used": 0, "datasets": {}, "changed": [], **script})
        time.sleep(BEAT)


def read_script(path: Path) -> dict[str, object]:
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return {}


def beat(control: Control, report: dict[str, object]) -> None:
    try:
        answer = control.heartbeat(str(report["id"]), report)
    except CacheEngineError:
        return
    target = Path(str(report["directory"])) / "epochs.json"
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(answer["epochs"]))
    partial.replace(target)


if __name__ == "__main__":
    main()
