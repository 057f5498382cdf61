"""Any protocol that fsspec knows (memory://, gs://, hf://, ...), generically: names, sizes and bytes by its filesystem.

Nothing here is fast or conditional: fsspec offers no "this version only", so info() is compared before and after
every range. What it cannot tell (an ETag, a generation, a time) cannot be compared: then the size alone stands
for the version, and a warning says so. Listings are asked anew, never taken from fsspec's cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import fsspec

from cache_engine.block import ObjectId
from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    InvalidValue,
    NotFound,
    ObjectChanged,
    SourceUnavailable,
    UnsupportedSource,
)
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources import options as opt
from cache_engine.sources.bucket import walk
from cache_engine.sources.per_process import PerProcess
from cache_engine.sources.ranged import MemoryStream
from cache_engine.sources.translation import from_status
from cache_engine.sources.versions import UNKNOWN

_log = logging.getLogger(__name__)
_CREDENTIALS = {
    "accessKeyId": "key",
    "secretAccessKey": "secret",
    "sessionToken": "token",
    "bearerToken": "token",
    "username": "username",
    "password": "password",
}
"""Ours -> what most fsspec filesystems call it."""
_OURS = frozenset(("skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"))
"""Options of fsspec's caches, which are off here whatever is asked."""
_ETAGS = ("ETag", "etag", "e_tag", "generation", "md5Hash", "checksum", "blob_id")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "last_commit", "created")


class FsspecSource:
    """A directory of any fsspec filesystem."""

    def __init__(self, url: str, options: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        self.check(url, options)
        self._protocol = urlsplit(url).scheme
        self._url = url
        options = {name: text for name, text in options.items() if name not in _OURS}
        self._arguments = {name: _value(text) for name, text in options.items()}
        self._secrets = {_CREDENTIALS[name]: value for name, value in credentials.items()}
        self.name = url.rstrip("/") + "/" + _digest(options)
        self._filesystem = PerProcess(self._make)
        self._warned = False

    @staticmethod
    def check(url: str, options: Mapping[str, str]) -> None:
        """Raises InvalidValue, UnsupportedSource."""
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None or "?" in url:
            raise InvalidValue(f"the URL of {parts.hostname} carries a user or a query; give credentials by reference")
        opt.only(options, frozenset(options), parts.scheme)
        if parts.scheme not in fsspec.available_protocols():
            raise UnsupportedSource(f"{parts.scheme}:// is no protocol that Forebay or fsspec knows")

    def __repr__(self) -> str:
        return f"<FsspecSource {self.name}>"

    def list(self) -> Iterator[Page]:
        return walk(self.page)

    def page(self, pending: tuple[str, ...] | None) -> tuple[Page, tuple[str, ...] | None]:
        """One directory."""
        filesystem = self._filesystem.get()
        directory, *rest = pending or (self._root(filesystem),)
        page, below = Page(), []
        for entry in self._translated("list", filesystem.ls, directory, detail=True, refresh=True):
            if entry["type"] == "directory" and entry["name"].rstrip("/") != directory.rstrip("/"):
                below.append(entry["name"])
            elif entry["type"] == "file" and (key := self._key(filesystem, entry["name"])):
                page.add(key, self._stat_of(entry))
        return page, (*below, *rest) or None

    def stat(self, key: bytes) -> Stat:
        filesystem = self._filesystem.get()
        entry = self._translated("info", filesystem.info, self._path(filesystem, key))
        if entry["type"] != "file":
            raise NotFound(f"{self.name}{key.decode('utf-8', 'replace')} is a {entry['type']}")
        return self._stat_of(entry)

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        filesystem = self._filesystem.get()
        path = self._path(filesystem, obj.key)
        self._demand(obj)
        body = self._translated("read", filesystem.cat_file, path, start=start, end=stop)
        self._demand(obj)
        if len(body) != stop - start:
            raise SourceUnavailable(f"{self.name}: {len(body)} bytes came of {path!r} where {stop - start} were asked")
        return MemoryStream(body)

    def close(self) -> None:
        self._filesystem.forget()

    def _make(self) -> Any:
        try:
            kind = fsspec.get_filesystem_class(self._protocol)
        except ImportError as error:
            raise UnsupportedSource(f"{self._protocol}:// needs a package that is not installed: {error}") from error
        try:
            return kind(**self._arguments, **self._secrets, skip_instance_cache=True, use_listings_cache=False)
        except (TypeError, ValueError) as error:
            failure: CacheEngineError = InvalidValue(
                f"{self._protocol}:// does not take these options: {type(error).__name__}"
            )
        except OSError as error:  # some open what they read at once: the source's fault, not that of our own disk
            failure = from_os_error(error, f"open {self.name}")
        raise failure  # outside of the except: the text may quote what was given

    def _root(self, filesystem: Any) -> str:
        return str(filesystem._strip_protocol(self._url)).rstrip("/")

    def _path(self, filesystem: Any, key: bytes) -> str:
        try:
            return f"{self._root(filesystem)}/{key.decode()}"
        except UnicodeDecodeError as error:
            raise NotFound(f"{self.name}: {key!r} is not UTF-8, which fsspec cannot name") from error

    def _key(self, filesystem: Any, name: str) -> bytes:
        root = self._root(filesystem)
        if name == root:
            return name.rpartition("/")[2].encode("utf-8", "surrogateescape")
        if not name.startswith(root + "/"):
            raise SourceUnavailable(f"{self.name}: the listing holds {name!r}, which is not below it")
        return name[len(root) + 1 :].encode("utf-8", "surrogateescape")

    def _demand(self, obj: ObjectId) -> None:
        try:
            now = self.stat(obj.key)
        except NotFound as error:
            raise ObjectChanged(f"{self.name}: {obj.key!r} is gone since the snapshot; take a new one") from error
        if (now.size, now.version) != (obj.size, obj.version):
            raise ObjectChanged(
                f"{self.name}: {obj.key!r} is {now.version} now, not {obj.version}; take a new snapshot"
            )

    def _stat_of(self, entry: Mapping[str, Any]) -> Stat:
        size = entry.get("size")
        if size is None:
            raise UnsupportedSource(f"{self.name}: {entry['name']!r} has no size")
        mtime_ns = next((ns for name in _TIMES if (ns := _nanoseconds(entry.get(name)))), 0)
        etag = next((str(entry[name]) for name in _ETAGS if entry.get(name)), "")
        version = f"etag:{etag}" if etag else f"mtime:{mtime_ns}"
        if version == UNKNOWN and not self._warned:
            self._warned = True
            _log.warning("%s: fsspec tells only sizes: a change that keeps the size will not be seen", self.name)
        return Stat(int(size), version, mtime_ns)

    def _translated(self, verb: str, call: Any, *arguments: Any, **named: Any) -> Any:
        what = f"{verb} {self.name}"
        try:
            return call(*arguments, **named)
        except OSError as error:
            failure: CacheEngineError = from_os_error(error, what)
        raise failure  # outside of the except: vendors' errors may quote tokens


def from_os_error(error: OSError, what: str) -> CacheEngineError:
    """fsspec's family of errors in our words, by the status that a vendor's error in its chain carries."""
    status = _status(error)
    if status >= 400:
        return from_status(status, what)
    if isinstance(error, PermissionError):
        return AccessDenied(f"{what}: refused; these credentials may not, or it does not exist")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(f"{what}: there is nothing of that name")
    return SourceUnavailable(f"{what}: {type(error).__name__} {error.errno or ''}".rstrip())


def _status(error: BaseException | None) -> int:
    """The HTTP status in a chain: ossfs hides a 412 in OSError(5) and s3fs in OSError(22), both with the cause."""
    while error is not None:
        answer = getattr(error, "response", None)
        meta = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
        for status in (meta.get("HTTPStatusCode"), getattr(error, "status", None), getattr(error, "code", None)):
            if isinstance(status, int) and 400 <= status < 600:
                return status
        error = error.__cause__
    return 0


def _digest(options: Mapping[str, str]) -> str:
    """Options may say which server it is: part of the identity, not shown, as some hold tokens."""
    if not options:
        return ""
    text = json.dumps(sorted(options.items()))
    return f"?options={hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _value(text: str) -> Any:
    """'true', '3', '{"a": 1}' -> values; everything else is the text that it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float | str) or value is None else value


def _nanoseconds(value: Any) -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return 0
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1_000_000) * 1000  # one file system gives a float here and a datetime there
    return 0
