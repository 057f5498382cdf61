"""One signed HTTP request at a time: pools by origin, the signature, redirects, and errors in our words.

Sits on `http1` (which knows no credentials and follows nothing) and below `ranged`, which asks for bytes.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import quote, urljoin, urlsplit

from cache_engine.errors import UnsupportedSource
from cache_engine.fork_lock import ForkLock
from cache_engine.http1 import Pool, Response, Timeouts, TransportError
from cache_engine.signing import Signer
from cache_engine.sources.translation import from_transport

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_URL_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"
"""What stays as it is in a Location; servers send names in it that nobody encoded."""
_MOST_ORIGINS = 32
"""Pools kept: a source has one origin and, behind redirects, a few; a store that makes up hosts stays bounded."""


class Requester:
    """Sends signed requests. `follow`: redirects to follow at most; a signature never leaves its first origin."""

    def __init__(
        self, signer: Signer, *, timeouts: Timeouts, tls: ssl.SSLContext | None = None, follow: int = 0
    ) -> None:
        self._signer = signer
        self._timeouts = timeouts
        self._tls = tls
        self._follow = follow
        self._lock = ForkLock()
        self._pools: dict[str, Pool] = {}
        """Origin -> its connections; written under _lock, read without."""

    def __repr__(self) -> str:
        return f"<Requester follow={self._follow} {list(self._pools.values())}>"

    def send(self, method: str, url: str, headers: Mapping[str, str]) -> Response:
        """The answer, whatever its status. `headers`: lower-case names. Raises SourceUnavailable."""
        origin, target = split_origin(url)
        home = origin
        for _ in range(self._follow + 1):
            sent = {**headers, "user-agent": "forebay"}
            signature = self._signer(method, url, sent) if origin == home else []
            try:
                response = self._pool(origin).request(method, target, [*sent.items(), *signature])
            except TransportError as error:
                raise from_transport(error, f"{method} {without_query(url)}") from error
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not self._follow or not location:
                return response
            response.close()
            url = _next(url, location)
            origin, target = split_origin(url)
        raise UnsupportedSource(f"{method} {without_query(url)}: redirected more than {self._follow} times")

    def close(self) -> None:
        """Drop idle connections."""
        for pool in list(self._pools.values()):
            pool.close()

    def _pool(self, origin: str) -> Pool:
        pool = self._pools.get(origin)
        if pool is None:
            pool = Pool(origin, timeouts=self._timeouts, tls=self._tls)
            with self._lock:
                if len(self._pools) >= _MOST_ORIGINS:
                    self._pools.pop(next(reversed(self._pools)))
                pool = self._pools.setdefault(origin, pool)
        return pool


def split_origin(url: str) -> tuple[str, str]:
    """'http://host:80/a?b' -> ('http://host:80', '/a?b')."""
    at = url.find("/", url.find("://") + 3)
    return (url[:at], url[at:]) if at > 0 else (url, "/")


def without_query(url: str) -> str:
    """The URL as it may be shown: queries of signed URLs are secrets."""
    return url.partition("?")[0]


def _next(url: str, location: str) -> str:
    try:
        target = urljoin(url, quote(location.encode("latin-1"), safe=_URL_CHARACTERS)).partition("#")[0]
        parts = urlsplit(target)
    except ValueError as error:
        raise UnsupportedSource(f"{without_query(url)}: redirected to what is no URL") from error
    if parts.scheme not in ("http", "https") or (url.startswith("https:") and parts.scheme != "https"):
        raise UnsupportedSource(f"{without_query(url)}: redirected to {parts.scheme}://, which is not followed")
    if parts.username is not None:
        raise UnsupportedSource(f"{without_query(url)}: redirected to a URL with a user in it, which is not followed")
    return target
