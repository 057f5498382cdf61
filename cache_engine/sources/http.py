"""http(s)://: one file, or a directory (URL ending in a slash) that an index page or a manifest lists.

Everything that servers get wrong is expected: HEAD that hangs or is refused, no ETag, no ranges, redirects.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from cache_engine import signing
from cache_engine.block import ObjectId
from cache_engine.errors import InvalidValue, NotFound, SourceUnavailable, UnsupportedSource
from cache_engine.http1 import Response, TimedOut, Timeouts, TransportError
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources import index_page
from cache_engine.sources import options as opt
from cache_engine.sources.bucket import walk
from cache_engine.sources.ranged import RangedGet
from cache_engine.sources.requester import Requester, split_origin, without_query
from cache_engine.sources.translation import from_response, from_transport
from cache_engine.sources.versions import UNKNOWN, version_of

_log = logging.getLogger(__name__)
_OPTIONS = opt.TRANSPORT | {"manifest", "headTimeout"}
_FOLLOW = 5
"""Redirects in a row: a mirror chooser, a login-free CDN and a canonical host take three."""
_LISTING_LIMIT = 64 << 20
"""Bytes of one index page or manifest."""
_BATCH, _HEADS = 256, 16
"""Files asked for their size and version a page, and how many at once."""
_DEEPEST = 64
"""Directories below each other: an index that contains itself ends here."""
_NO_HEAD = frozenset((400, 401, 403, 405, 501))
"""What servers say to a HEAD whose GET they would answer: a URL signed for GET refuses HEAD with 403."""
_TOTAL = re.compile(r"bytes (?:\d+-\d+|\*)/(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """What is left to list: directories whose pages were not read, files whose stat was not asked."""

    directories: tuple[bytes, ...] = (b"",)
    files: tuple[bytes, ...] = ()


class HttpSource:
    """Files of a web server."""

    def __init__(self, url: str, options: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        self.check(url, options)
        self._url = url
        path = url.partition("?")[0]
        self._base = path[: path.rindex("/") + 1]
        self._single = unquote_to_bytes(path[len(self._base) :])
        self._manifest = options.get("manifest")
        self.name = _shown(url)
        signer = _signer(credentials)
        usual, tls = opt.timeouts(options), opt.tls(options)
        patience = opt.seconds(options, "headTimeout", 5.0)
        self._requester = Requester(signer, timeouts=usual, tls=tls, follow=_FOLLOW)
        hasty = Timeouts(usual.connect, min(patience, usual.first_byte), usual.progress)
        self._prober = Requester(signer, timeouts=hasty, tls=tls, follow=_FOLLOW)
        self._ranged = RangedGet(self._requester)
        self._heads = True
        """Whether HEAD works here; set to False once, by any thread, and never back."""
        self._warned = False

    @staticmethod
    def check(url: str, options: Mapping[str, str]) -> None:
        """Raises InvalidValue."""
        opt.only(options, _OPTIONS, "http")
        opt.timeouts(options)
        opt.seconds(options, "headTimeout", 5.0)
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidValue(f"{_shown(url)!r} is no URL: {error}") from error
        if not host or not parts.path or re.search(r"[^!-~]|#", url):
            raise InvalidValue(f"{_shown(url)!r} must have the form http://HOST/PATH, percent-encoded, without #")
        if parts.username is not None:
            raise InvalidValue(f"the URL of {host} carries a user or a password; give credentials by reference")
        if parts.path.endswith("/") and parts.query:
            raise InvalidValue(f"{_shown(url)!r}: a directory's URL has no query")
        if not parts.path.endswith("/") and "manifest" in options:
            raise InvalidValue("option 'manifest' needs a directory: a URL that ends in a slash")
        _manifest_url(url, options.get("manifest", ""))

    def __repr__(self) -> str:
        return f"<HttpSource {self.name} heads={self._heads} {self._requester!r}>"

    def list(self) -> Iterator[Page]:
        return walk(self.page)

    def page(self, cursor: Cursor | None) -> tuple[Page, Cursor | None]:
        """One directory's index is read, or a batch of files is asked for size and version."""
        if cursor is None:
            cursor = self._first()
        if cursor.files:
            batch, rest = cursor.files[:_BATCH], cursor.files[_BATCH:]
            page, cursor = self._stats(batch), Cursor(cursor.directories, rest)
        else:
            page, cursor = Page(), self._open_directory(cursor)
        return page, cursor if cursor.files or cursor.directories else None

    def stat(self, key: bytes) -> Stat:
        url = self._key_url(key)
        if self._heads:
            try:
                found = self._head(url)
            except SourceUnavailable as error:
                if not isinstance(error.__cause__, TimedOut):
                    raise
                found = None
            if found is not None:
                return found
        found = self._first_byte(url)
        self._heads = False  # the GET worked where HEAD had not: never wait for it again
        return found

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        return self._ranged.open(self._key_url(obj.key), obj, start, stop)

    def close(self) -> None:
        self._ranged.close()
        self._prober.close()

    def _first(self) -> Cursor:
        if self._single:
            return Cursor((), (self._single,))
        if self._manifest is None:
            return Cursor()
        url = _manifest_url(self._base, self._manifest)
        try:
            files = index_page.names(self._text(url))
        except ValueError as error:
            raise InvalidValue(f"manifest {without_query(url)}: {error}") from error
        return Cursor((), tuple(dict.fromkeys(files)))

    def _open_directory(self, cursor: Cursor) -> Cursor:
        directory, *rest = cursor.directories
        if directory.count(b"/") > _DEEPEST:
            raise UnsupportedSource(f"{self.name}: more than {_DEEPEST} directories below each other: {directory!r}")
        url = self._base + index_page.encode(directory)
        found, left_out = index_page.entries(self._text(url).decode("utf-8", "replace"), url)
        if left_out:
            _log.warning("%s: %d links in the index of %r are no file names; left out", self.name, left_out, directory)
        below = [directory + name for name in found if name.endswith(b"/")]
        files = tuple(directory + name for name in found if not name.endswith(b"/"))
        return Cursor((*below, *rest), files)

    def _text(self, url: str) -> bytes:
        what = f"GET {without_query(url)}"
        response = self._requester.send("GET", url, {"accept-encoding": "identity"})
        if response.status != 200:
            raise from_response(response, what)
        with response:
            try:
                text = response.read(_LISTING_LIMIT)
            except TransportError as error:
                raise from_transport(error, what) from error
            if not response.done:
                raise UnsupportedSource(f"{what}: a list longer than {_LISTING_LIMIT >> 20} MiB; use several mounts")
        return text

    def _stats(self, keys: tuple[bytes, ...]) -> Page:
        page = Page()
        with ThreadPoolExecutor(min(_HEADS, len(keys))) as pool:
            for key, found in zip(keys, pool.map(self._stat_if_there, keys), strict=True):
                if found is not None:
                    page.add(key, found)
        return page

    def _stat_if_there(self, key: bytes) -> Stat | None:
        try:
            return self.stat(key)
        except NotFound:
            if self._single or self._manifest:
                raise
            _log.warning("%s: the index names %r, which is not there; left out", self.name, key)
            return None

    def _head(self, url: str) -> Stat | None:
        """None where HEAD is not allowed, or does not say the length."""
        what = f"HEAD {without_query(url)}"
        response = self._prober.send("HEAD", url, {"accept-encoding": "identity"})
        if response.status in _NO_HEAD:
            response.close()
            return None
        if response.status != 200:
            raise from_response(response, what)
        response.close()
        length = response.headers.get("content-length", "")
        return self._stat_of(response, int(length), what) if length.isdigit() else None

    def _first_byte(self, url: str) -> Stat:
        what = f"GET {without_query(url)}"
        response = self._requester.send("GET", url, {"accept-encoding": "identity", "range": "bytes=0-0"})
        total = _TOTAL.fullmatch(response.headers.get("content-range", ""))
        if response.status not in (200, 206, 416) or (response.status == 416 and not total):
            raise from_response(response, what)
        response.close()
        size = int(total[1]) if total and response.status != 200 else response.length
        if size is None or (response.status == 206 and not total):
            raise UnsupportedSource(f"{what}: the server does not say how long the file is")
        return self._stat_of(response, size, what)

    def _stat_of(self, response: Response, size: int, what: str) -> Stat:
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding not in ("", "identity"):
            raise UnsupportedSource(f"{what}: it is sent encoded ({coding[:40]}); store it unencoded")
        version, mtime_ns = version_of(response.headers)
        if version == UNKNOWN and not self._warned:
            self._warned = True
            _log.warning("%s: neither ETag nor Last-Modified: a change that keeps the size will not be seen", self.name)
        return Stat(size, version, mtime_ns)

    def _key_url(self, key: bytes) -> str:
        if self._single:
            if key != self._single:
                raise NotFound(f"{self.name} is one file; it has no {key!r}")
            return self._url
        if not index_page.is_inside(key):
            raise NotFound(f"{self.name}: {key!r} is not a file's name below it")
        return self._base + index_page.encode(key)


def _signer(credentials: Mapping[str, str]) -> signing.Signer:
    if "bearerToken" in credentials:
        return signing.bearer(credentials["bearerToken"])
    if "username" in credentials:
        return signing.basic(credentials["username"], credentials.get("password", ""))
    return signing.anonymous


def _manifest_url(base: str, manifest: str) -> str:
    """Raises InvalidValue; one on another server would be sent the credentials of this one."""
    try:
        url = urljoin(base, manifest)
    except ValueError:
        url = ""
    if re.search(r"[^!-~]", url) or split_origin(url)[0] != split_origin(base)[0]:
        raise InvalidValue("option 'manifest' must be a path, or a URL, on the same server, percent-encoded")
    return url


def _shown(url: str) -> str:
    """The URL without user, and with its query (which may be a signature) as a digest: still one name an object."""
    path, question, query = url.partition("?")
    origin, target = split_origin(path)
    origin = re.sub(r"//[^/]*@", "//", origin)
    shown = origin + (target if target != "/" or path.endswith("/") else "")
    return f"{shown}?query={hashlib.blake2b(query.encode(), digest_size=8).hexdigest()}" if question else shown
