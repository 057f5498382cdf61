"""A store in a process of its own, and the client of its control endpoint."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

_TREE = Path(__file__).resolve().parents[2]
STOP_SECONDS = 10


class RemoteStore:
    """The verbs of a running store, over /-/; every call is one short connection."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"<RemoteStore {self.url}>"

    def stats(self) -> dict[str, Any]:
        return dict(self._call("GET", "stats"))

    def log(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "log"))

    @property
    def sent(self) -> int:
        return int(self.stats()["sent"])

    def reset(self) -> None:
        self._call("POST", "reset")

    def rescan(self) -> None:
        self._call("POST", "rescan")

    def clear_rules(self) -> None:
        self._call("POST", "clear")

    def rule(self, kind: str, match: str = "GET *", **args: Any) -> int:
        """As `ObjectStore.rule`; returns the rule's number."""
        return int(self._call("POST", "rule", json.dumps({"kind": kind, "match": match, **args}).encode())["number"])

    def put(self, key: str, body: bytes, etag: str | None = None) -> str:
        """Returns the ETag."""
        query = {"key": key} | ({"etag": etag} if etag else {})
        return str(self._call("PUT", f"put?{urlencode(query)}", body)["etag"])

    def stat(self, key: str) -> dict[str, Any]:
        """{"etag", "size"} of an object. Raises ValueError where there is none."""
        return dict(self._call("GET", f"stat?{urlencode({'key': key})}"))

    def delete(self, key: str) -> bool:
        return bool(self._call("DELETE", f"put?{urlencode({'key': key})}")["deleted"])

    def _call(self, method: str, verb: str, body: bytes = b"") -> Any:
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=30)
        try:
            connection.request(method, f"/-/{verb}", body)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(document["error"])
        return document


class StoreProcess(RemoteStore):
    """`python -m benchmarks.objectstore` as a child; a context manager. It ends with us, also after a kill -9 of us."""

    def __init__(
        self,
        dialect: str = "http",
        *,
        root: str | os.PathLike[str] | None = None,
        credentials: tuple[str, ...] | None = None,
        first_byte: float = 0.0,
        rate: float | None = None,
        page: int = 1000,
        python: str = sys.executable,
    ) -> None:
        options = ["--dialect", dialect, "--page", str(page), "--first-byte", f"{first_byte * 1000:.3f}ms"]
        options += ["--root", os.fspath(root)] if root is not None else []
        options += ["--rate", str(int(rate))] if rate else []
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(_TREE), os.environ.get("PYTHONPATH", "")]))
        environment |= _secrets(credentials)
        command = [python, "-m", "benchmarks.objectstore", "--until-eof", *options]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, cwd=_TREE
        )
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the object store did not start (exit code {self._child.wait()}); see its messages above"
            )
        super().__init__(json.loads(line)["url"])

    @property
    def pid(self) -> int:
        return self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _secrets(credentials: tuple[str, ...] | None) -> Mapping[str, str]:
    """By the environment: a command line is shown to everybody on the machine."""
    return {"OBJECTSTORE_CREDENTIALS": ":".join(credentials)} if credentials else {}
