"""Who asks: callables that add the headers of one kind of credential to one request.

The ranged-GET client takes a signer as an argument, so that the bytes of every store travel the same fast way
and only the signature differs. Credentials are the vendors' own objects (botocore, oss2), which may refresh
themselves and are asked for every request; the arithmetic is ours, here and in `signing_v4`, since botocore's
takes longer than all else in a small read (118 us of 230). Secrets live in closures and show in no repr.
"""

from __future__ import annotations

import base64
import hmac
import logging
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

Signer = Callable[[str, str, dict[str, str]], list[tuple[str, str]]]
"""(method, url, headers) -> headers to add. `headers` are all that will be sent, names in lower case."""

_CHATTY = ("oss2", "botocore.auth", "botocore.endpoint", "botocore.parsers")
"""Loggers that write what they sign, session tokens included, at debug level."""


class Credentials(Protocol):
    """What botocore calls credentials: they may refresh themselves when frozen."""

    def get_frozen_credentials(self) -> Any: ...


def anonymous(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
    """No credentials."""
    return []


def bearer(token: str) -> Signer:
    """Authorization: Bearer."""
    return _fixed(f"Bearer {token}")


def basic(username: str, password: str) -> Signer:
    """Authorization: Basic, in UTF-8."""
    return _fixed("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())


def static_credentials(access_key_id: str, secret_access_key: str, session_token: str | None = None) -> Credentials:
    """Credentials for `signing_v4.s3` that do not change."""
    from botocore.credentials import Credentials as Static

    _silence()
    credentials: Credentials = Static(access_key_id, secret_access_key, session_token)
    return credentials


class OssCredentials(Protocol):
    """What oss2 calls a credentials provider; it may refresh what it gives."""

    def get_credentials(self) -> Any: ...


def oss_credentials(access_key_id: str, secret: str, token: str | None = None) -> OssCredentials:
    """Credentials for `oss_auth` and the OSS signers that do not change."""
    from oss2.credentials import StaticCredentialsProvider

    credentials: OssCredentials = StaticCredentialsProvider(access_key_id, secret, token or "")
    return credentials


def oss_auth(credentials: OssCredentials, version: str = "v1") -> Any:
    """oss2's own signer of version v1 or v4: what ossfs lists with."""
    from oss2.auth import ProviderAuth, ProviderAuthV4

    _silence()
    return (ProviderAuthV4 if version == "v4" else ProviderAuth)(credentials)


def oss_v1(
    credentials: OssCredentials, bucket: str, *, path_style: bool, clock: Callable[[], float] = time.time
) -> Signer:
    """OSS version 1, for requests without a body: HMAC-SHA1 over the decoded key."""
    from oss2.auth import ProviderAuth

    in_path = f"/{bucket}/" if path_style else "/"
    sub_resources = ProviderAuth._subresource_key_set

    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        given = credentials.get_credentials()
        _, path, query = split_url(url)
        added = [("date", _http_date(int(clock())))]
        if given.get_security_token():
            added.append(("x-oss-security-token", given.get_security_token()))
        special = sorted(pair for pair in (*headers.items(), *added) if pair[0].startswith("x-oss-"))
        lines = [method, headers.get("content-md5", ""), headers.get("content-type", ""), added[0][1]]
        lines += [f"{name}:{value}" for name, value in special]
        lines.append(f"/{bucket}/{unquote(path.removeprefix(in_path))}{_sub_resource(query, sub_resources)}")
        signature = hmac.new(given.get_access_key_secret().encode(), "\n".join(lines).encode(), "sha1").digest()
        text = f"OSS {given.get_access_key_id()}:{base64.b64encode(signature).decode()}"
        return [*added, ("authorization", text)]

    return sign


def split_url(url: str) -> tuple[str, str, str]:
    """'http://host/a%20b?c=d' -> ('http://host', '/a%20b', 'c=d'), as they go over the wire."""
    at = url.find("/", url.find("://") + 3)
    if at < 0:
        return url, "/", ""
    path, _, query = url[at:].partition("?")
    return url[:at], path, query


def _sub_resource(query: str, known: frozenset[str]) -> str:
    """The part of a query that names another thing than the object itself, and so is signed."""
    pairs = sorted(pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] in known) if query else ()
    return "?" + "&".join(f"{name}={value}" if value else name for name, value in pairs) if pairs else ""


@lru_cache(maxsize=2)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _fixed(authorization: str) -> Signer:
    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        return [("authorization", authorization)]

    return sign


def _silence() -> None:
    for name in _CHATTY:
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.INFO))
