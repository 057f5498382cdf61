"""Where a mount lies in an object store: bucket, prefix, endpoint; keys to URLs and back. Pure.

s3:// and oss:// URLs are taken literally, as the vendors' own tools do: no percent-decoding, `?` and `#` are
characters of the prefix. Keys are bytes and are encoded once, here, on the way to the wire.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlsplit

from cache_engine.errors import InvalidValue, NotFound, SourceUnavailable
from cache_engine.source import Page

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", re.ASCII)
_ENDPOINT = re.compile(r"(https?://)?[0-9A-Za-z.\-\[\]:_]+/?", re.ASCII)
Cursor = TypeVar("Cursor")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket's place on the wire. `endpoint`: http(s)://host[:port]."""

    name: str
    endpoint: str
    path_style: bool

    @property
    def url(self) -> str:
        """The URL that keys are appended to; ends in a slash."""
        scheme, _, host = self.endpoint.partition("://")
        return f"{self.endpoint}/{self.name}/" if self.path_style else f"{scheme}://{self.name}.{host}/"

    def key_url(self, key: bytes) -> str:
        return self.url + quote(key, safe="/~")


@dataclass(frozen=True, slots=True)
class Place:
    """Bucket and prefix of a mount's URL. `prefix` is empty or ends in a slash: never a part of a name."""

    bucket: str
    prefix: bytes

    @classmethod
    def parse(cls, url: str, scheme: str) -> Place:
        """'s3://bucket/team/a' and 's3://bucket/team/a/' are one place. Raises InvalidValue."""
        rest = url.removeprefix(f"{scheme}://")
        bucket, _, prefix = rest.partition("/")
        if rest == url or not _BUCKET.fullmatch(bucket):
            raise InvalidValue(f"{url!r} must have the form {scheme}://BUCKET or {scheme}://BUCKET/PREFIX")
        if prefix and not prefix.endswith("/"):
            prefix += "/"
        return cls(bucket, prefix.encode("utf-8", "surrogateescape"))

    def shown(self, scheme: str, endpoint: str = "") -> str:
        """The identity of the source: same text, same objects."""
        where = f"?endpoint={endpoint}" if endpoint else ""
        return f"{scheme}://{self.bucket}/{self.prefix.decode('utf-8', 'backslashreplace')}{where}"

    def full(self, key: bytes) -> str:
        """The whole key as the vendors' libraries want it. Raises NotFound: a key that is no UTF-8 cannot exist."""
        try:
            return (self.prefix + key).decode()
        except UnicodeDecodeError as error:
            raise NotFound(f"key {key!r} is not UTF-8, which is all that this store can hold") from error

    def object(self, key: bytes) -> str:
        """The same for one object, which must have a name."""
        full = self.full(key)
        if not full:
            raise NotFound("an empty key names no object")
        return full

    def relative(self, key: bytes) -> bytes:
        """The key below the mount; empty for the mount's own marker. Raises SourceUnavailable for a stranger."""
        if not key.startswith(self.prefix):
            raise SourceUnavailable(f"the listing of {self.prefix!r} holds {key[:200]!r}, which is not below it")
        return key[len(self.prefix) :]


def endpoint_url(text: str) -> str:
    """'host', 'http://host:9000/' -> URL without a slash at the end; https where it does not say. InvalidValue."""
    if not _ENDPOINT.fullmatch(text):
        raise InvalidValue(f"endpoint {text!r} must have the form https://HOST or http://HOST:PORT")
    text = text.rstrip("/")
    return text if "://" in text else f"https://{text}"


def is_address(endpoint: str) -> bool:
    """Whether the endpoint is an IP address or this host: no bucket can stand before that."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or "." not in host
    return True


def next_token(before: str | None, truncated: bool, token: str | None) -> str | None:
    """The token of the next page, None at the end. Raises SourceUnavailable for a listing that cannot end whole."""
    if not truncated:
        return None
    if not token or token == before:
        raise SourceUnavailable("the store says that its listing is truncated, but not where it goes on")
    return token


def walk(page: Callable[[Cursor | None], tuple[Page, Cursor | None]]) -> Iterator[Page]:
    """All pages of a source that gives one at a time."""
    cursor: Cursor | None = None
    while True:
        found, cursor = page(cursor)
        yield found
        if cursor is None:
            return
