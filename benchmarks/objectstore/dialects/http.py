"""A plain web server: files by path, folders as an index page, Basic or bearer authentication."""

from __future__ import annotations

import base64
import hmac
from html import escape
from urllib.parse import quote

from benchmarks.objectstore.answer import Answer, object_answer, text_answer
from benchmarks.objectstore.dialect import Credentials, DialectConfig
from benchmarks.objectstore.objects import StoredObject, bounds
from benchmarks.objectstore.request import Request


class Http:
    """The dialect `http`. A path that ends in a slash, or is a folder's, lists the folder; a key may be any path."""

    def __init__(self, config: DialectConfig) -> None:
        self._config = config

    def __repr__(self) -> str:
        return f"<Http over {self._config.shelf!r}>"

    def refuse(self, request: Request) -> Answer | None:
        credentials = self._config.credentials
        if credentials is None or hmac.compare_digest(request.headers.get("authorization", ""), wanted(credentials)):
            return None
        scheme = 'Basic realm="objectstore"' if credentials.id else "Bearer"
        return text_answer(401, "Unauthorized\n", "text/plain", {"WWW-Authenticate": scheme})

    def answer(self, request: Request) -> Answer:
        key = request.path[1:]
        if request.method == "PUT":
            stored = StoredObject.of(request.body)
            self._config.shelf.put(key, stored)
            return Answer(201, {"ETag": stored.etag})
        if request.method == "DELETE":
            return Answer(204) if self._config.shelf.delete(key) else self.error(request, 404, "Not Found")
        if request.method not in ("GET", "HEAD"):
            return self.error(request, 405, "Method Not Allowed")
        stored_now = self._config.shelf.get(key)
        if stored_now is None:
            return self._folder(request, key)
        return object_answer(stored_now, request)

    def error(self, request: Request, status: int, code: str, message: str = "") -> Answer:
        return text_answer(status, f"{message or code}\n", "text/plain")

    def key(self, request: Request) -> bytes:
        return request.path[1:]

    def listing(self, request: Request) -> bytes | None:
        path = request.path[1:]
        return path if not path or path.endswith(b"/") else None

    def _folder(self, request: Request, key: bytes) -> Answer:
        prefix = key if not key or key.endswith(b"/") else key + b"/"
        keys = self._config.shelf.keys()
        start, stop = bounds(keys, prefix)
        if start == stop and key:
            return self.error(request, 404, "Not Found")
        if prefix != key:
            return text_answer(301, "", "text/plain", {"Location": request.raw_path + "/"})
        return text_answer(200, index_page(prefix, keys[start:stop]), "text/html; charset=utf-8")


def index_page(prefix: bytes, keys: list[bytes]) -> str:
    """The usual page of links: folders once, with a slash; names percent-encoded."""
    names = dict.fromkeys(_child(key[len(prefix) :]) for key in keys if key != prefix)
    rows = "".join(f'<a href="{_reference(name)}">{_shown(name)}</a>\n' for name in names)
    title = f"Index of /{_shown(prefix)}"
    return f"<html><head><title>{title}</title></head><body><h1>{title}</h1><pre>\n{rows}</pre></body></html>\n"


def wanted(credentials: Credentials) -> str:
    """The Authorization header that opens."""
    if not credentials.id:
        return f"Bearer {credentials.secret}"
    pair = f"{credentials.id}:{credentials.secret}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _child(rest: bytes) -> bytes:
    name, slash, _ = rest.partition(b"/")
    return name + slash


def _reference(name: bytes) -> str:
    # A colon in the first segment would read as a scheme, a leading slash as another place.
    return quote(name, safe="/") if name != b"/" else ".//"


def _shown(name: bytes) -> str:
    return escape(name.decode("utf-8", "replace"))
