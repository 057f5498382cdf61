"""Who asks: callables that add the headers of one kind of credential to one request.

The ranged-GET client takes a signer as an argument, so that the bytes of every store travel the same fast way
and only the signature differs. The arithmetic of SigV4 and of OSS V1 and V4 is that of the vendors' own
libraries (botocore, oss2), imported when first used; secrets live in closures and show in no repr.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

Signer = Callable[[str, str, dict[str, str]], list[tuple[str, str]]]
"""(method, url, headers) -> headers to add. `headers` are all that will be sent, names in lower case."""

_CHATTY = ("oss2", "botocore.auth", "botocore.endpoint", "botocore.parsers")
"""Loggers that write what they sign, session tokens included, at debug level."""
_LEFT_UNSIGNED = frozenset(("accept-encoding", "user-agent"))
"""Headers that proxies and S3-like stores rewrite on the way, after which a signature over them is wrong."""


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


def sigv4(credentials: Credentials, region: str) -> Signer:
    """AWS Signature Version 4 for S3; `credentials` are asked anew for every request, as they may expire."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest

    _silence()

    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        signed = {name: value for name, value in headers.items() if name not in _LEFT_UNSIGNED}
        request = AWSRequest(method=method, url=url, headers=signed)
        S3SigV4Auth(credentials.get_frozen_credentials(), "s3", region).add_auth(request)
        return [(name, value) for name, value in request.headers.items() if name not in headers]

    return sign


def static_credentials(access_key_id: str, secret_access_key: str, session_token: str | None = None) -> Credentials:
    """Credentials for `sigv4` that do not change."""
    from botocore.credentials import Credentials as Static

    credentials: Credentials = Static(access_key_id, secret_access_key, session_token)
    return credentials


class _OssRequest:
    """As much of oss2.http.Request as its signatures look at; the real one costs a copy of every header."""

    __slots__ = ("cloudbox_id", "headers", "method", "params", "product", "region")

    def __init__(self, method: str, headers: dict[str, str], params: dict[str, str], region: str) -> None:
        self.method, self.headers, self.params = method, headers, params
        self.region, self.product, self.cloudbox_id = region, "oss", None


def oss(auth: Any, bucket: str, *, path_style: bool, region: str = "") -> Signer:
    """OSS V1 or V4, as `auth` (see `oss_auth`) says. V4 needs the region."""
    in_path = f"/{bucket}/" if path_style else "/"

    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        parts = urlsplit(url)
        key = unquote(parts.path.removeprefix(in_path))
        params = dict(parse_qsl(parts.query, keep_blank_values=True)) if parts.query else {}
        request = _OssRequest(method, dict(headers), params, region)
        auth._sign_request(request, bucket, key)
        return [(name, value) for name, value in request.headers.items() if name not in headers]

    return sign


def oss_auth(access_key_id: str, secret: str, token: str | None = None, version: str = "v1") -> Any:
    """oss2's own credentials for signature `version` v1 or v4; also what ossfs lists with."""
    from oss2.auth import StsAuth

    _silence()
    return StsAuth(access_key_id, secret, token or "", auth_version=version)


def _fixed(authorization: str) -> Signer:
    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        return [("authorization", authorization)]

    return sign


def _silence() -> None:
    for name in _CHATTY:
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.INFO))
