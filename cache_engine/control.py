"""The one client of the control API, used by the verbs of all floors, by workers and by readers.

Plain http.client and nothing else: importing this costs a command line 15 ms, not the second of an HTTP framework,
and a connection a call makes it safe in threads and after a fork (the busiest caller is a worker's heartbeat, one
a second). `discovery.py` finds the address; `access.py` is the document that most callers want.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from cache_engine import errors
from cache_engine.access import Access, SnapshotRef
from cache_engine.errors import CacheEngineError, ControllerUnavailable, InvalidValue, NotFound

TIMEOUT = 10.0
"""Seconds without a byte from the controller before a call fails; all but `refresh` answer in milliseconds."""
REFRESH_TIMEOUT = 3600.0
"""Seconds for a new snapshot: listing 10 million objects at 1,000 a page and 50 ms a page takes nine minutes."""
COPY = 1 << 20
"""Bytes of a manifest received at a time."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Control:
    """The control API at `url`. `origin` says where the address came from, for messages. No state beyond that."""

    def __init__(self, url: str, *, origin: str = "", timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidValue(f"{url!r} is not the address of a controller; write one like http://127.0.0.1:7070")
        self.url = url.rstrip("/")
        self._origin = f" ({origin})" if origin else ""
        self._timeout = timeout
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = _port(url)
        self._prefix = parts.path.rstrip("/")

    def __repr__(self) -> str:
        return f"<Control {self.url}{self._origin}>"

    def access(self, name: str) -> Access:
        """What a reader needs to know of Dataset `name`. Raises NotFound, ControllerUnavailable."""
        return Access.from_json(self.call("GET", f"/v1/datasets/{quote(name, safe='')}/access"))

    def heartbeat(self, worker_id: str, report: Mapping[str, Any]) -> dict[str, Any]:
        """Tell the controller what a worker holds; its answer says which epochs are current."""
        answer = self.call("POST", f"/v1/workers/{quote(worker_id, safe='')}/heartbeat", dict(report))
        return dict(answer)

    def refresh(self, name: str) -> dict[str, Any]:
        """Take a new snapshot and wait for it: its digest, and how many files are added, changed and gone."""
        path = f"/v1/datasets/{quote(name, safe='')}/refresh"
        return dict(self.call("POST", path, timeout=REFRESH_TIMEOUT))

    def fetch_manifest(self, ref: SnapshotRef, into: Path) -> Path:
        """Download the manifest to the file `into`, which appears whole or not at all; returns it."""
        if not _DIGEST.fullmatch(ref.digest):
            raise InvalidValue(f"{ref.digest!r} is not a manifest's digest; it must be 64 hex digits")
        self._download(ref.url or f"/v1/manifests/{ref.digest}", into)
        return into

    def call(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """One JSON request. Raises the error that the controller names, or ControllerUnavailable."""
        with self._request(method, path, body, timeout) as response:
            content = response.read()
        try:
            return json.loads(content) if content else None
        except ValueError as error:
            raise ControllerUnavailable(f"{self.url} answers {path} with something other than JSON") from error

    @contextmanager
    def _request(
        self, method: str, path: str, body: Any = None, timeout: float | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection(timeout or self._timeout)
        payload = None if body is None else json.dumps(body).encode()
        headers = {"accept": "application/json", "content-type": "application/json"}
        try:
            connection.request(method, self._prefix + path, payload, headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise error_of(response.status, response.read(), f"{method} {path}")
            yield response
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, CacheEngineError):
                raise
            raise ControllerUnavailable(self._silence(error)) from error
        finally:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=timeout)

    def _silence(self, error: Exception) -> str:
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return f"no controller answers at {self.url}{self._origin}; start one with `forebay up`"
        if isinstance(error, TimeoutError):
            return f"the controller at {self.url}{self._origin} does not answer in time; look at its log"
        return f"the controller at {self.url}{self._origin} broke the connection ({error}); look at its log"

    def _download(self, path: str, target: Path) -> None:
        """Receive into a file of its own name first, so that a half one is never taken for the manifest."""
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(prefix=".manifest-", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file, self._request("GET", path) as response:
                while piece := response.read(COPY):
                    file.write(piece)
                if response.length:  # read(n) takes the end of the connection for the end of the body
                    raise http.client.IncompleteRead(b"", response.length)
            os.replace(partial, target)
        except BaseException:
            os.unlink(partial)
            raise


def error_of(status: int, content: bytes, what: str) -> CacheEngineError:
    """The error that an answer of the controller stands for: its body names the class, else the status decides."""
    try:
        body: Any = json.loads(content)
        name, message = str(body["error"]), str(body["message"])
    except (ValueError, KeyError, TypeError):
        name, message = "", f"the controller answers {status} to {what}"
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, CacheEngineError):
        error = kind(message)
        error.exit_code = _exit_code(body, kind.exit_code)
        return error
    if status == 404:
        return NotFound(message)
    return InvalidValue(message) if status < 500 else ControllerUnavailable(message)


def _exit_code(body: Mapping[str, Any], otherwise: int) -> int:
    """Errors of single modules come as the nearest class of the family, with an exit code of their own."""
    code = body.get("exitCode")
    return code if isinstance(code, int) else otherwise


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError as error:
        raise InvalidValue(f"{url!r} has no valid port; write an address like http://127.0.0.1:7070") from error
