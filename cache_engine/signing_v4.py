"""Signature Version 4, of S3 (AWS4) and of OSS (aliyun_v4), for requests without a body.

What does not change from one request to the next is kept: the signing key of a day (four HMACs), the text of a
second, the order of a set of header names, a host. What is left is one SHA-256 and one HMAC: 9 us, where botocore
takes 88 and oss2 29 (in a loop; amid a read, with cold caches, 23 instead of 118). The path and the query are
taken as they go over the wire: every byte but A-Z a-z 0-9 - . _ ~ / encoded, as `bucket.Bucket` does it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlsplit

from cache_engine.signing import Credentials, OssCredentials, Signer, split_url

Clock = Callable[[], float]
EMPTY_BODY = sha256(b"").hexdigest()
"""Signed for S3 as the sum of the body: as cheap as UNSIGNED-PAYLOAD, and no store refuses it over plain HTTP."""
_UNSIGNED = "UNSIGNED-PAYLOAD"
_LEFT_UNSIGNED = frozenset(("accept-encoding", "user-agent"))
"""Headers that proxies and S3-like stores rewrite on the way, after which a signature over them is wrong."""
_OSS_SIGNED = frozenset(("content-type", "content-md5"))
"""What OSS signs besides every x-oss- header."""
_PORTS = {"http": 80, "https": 443}


class _Key:
    """The signing key of one day and secret, made anew when either changes. `_kept` is replaced, never mutated."""

    __slots__ = ("_kept", "_prefix", "_scope")

    def __init__(self, prefix: str, scope: str) -> None:
        self._prefix = prefix
        self._scope = scope
        self._kept: tuple[str, str, hmac.HMAC | None] = ("", "", None)

    def __repr__(self) -> str:
        return f"<_Key {self._kept[0]}/{self._scope}>"

    def scope(self, day: str) -> str:
        return f"{day}/{self._scope}"

    def signature(self, secret: str, algorithm: str, stamp: str, canonical: str) -> str:
        """Hex. `stamp`: 20130524T000000Z."""
        day, of, keyed = self._kept
        if keyed is None or day != stamp[:8] or of != secret:
            key = (self._prefix + secret).encode()
            for part in self.scope(stamp[:8]).split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            keyed = hmac.new(key, digestmod="sha256")
            self._kept = (stamp[:8], secret, keyed)
        digest = sha256(canonical.encode()).hexdigest()
        text = f"{algorithm}\n{stamp}\n{self.scope(stamp[:8])}\n{digest}"
        signed = keyed.copy()  # hmac.digest() would let go of the GIL: among reading threads that costs more than it
        signed.update(text.encode())
        return signed.hexdigest()


def s3(credentials: Credentials, region: str, *, clock: Clock = time.time) -> Signer:
    """AWS Signature Version 4 for S3; `credentials` are asked anew for every request, as they may expire."""
    day_key = _Key("AWS4", f"{region}/s3/aws4_request")

    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        given = credentials.get_frozen_credentials()
        stamp = _stamp(int(clock()))
        added = {"x-amz-content-sha256": EMPTY_BODY, "x-amz-date": stamp}
        if given.token:
            added["x-amz-security-token"] = given.token
        origin, path, query = split_url(url)
        values = {**headers, **added, "host": _host(origin)}
        names, signed = _s3_order(tuple(values))
        lines = [f"{name}:{' '.join(values[name].split())}" for name in names]
        canonical = "\n".join((method, path, _query(query, "="), *lines, "", signed, EMPTY_BODY))
        signature = day_key.signature(given.secret_key, "AWS4-HMAC-SHA256", stamp, canonical)
        who = f"{given.access_key}/{day_key.scope(stamp[:8])}"
        text = f"AWS4-HMAC-SHA256 Credential={who}, SignedHeaders={signed}, Signature={signature}"
        return [*added.items(), ("authorization", text)]

    return sign


def oss(credentials: OssCredentials, bucket: str, region: str, *, path_style: bool, clock: Clock = time.time) -> Signer:
    """OSS version 4. The signed path names the bucket also where the wire's does not."""
    day_key = _Key("aliyun_v4", f"{region}/oss/aliyun_v4_request")
    before = "" if path_style else f"/{bucket}"

    def sign(method: str, url: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        given = credentials.get_credentials()
        stamp = _stamp(int(clock()))
        added = {"x-oss-content-sha256": _UNSIGNED, "x-oss-date": stamp}
        if given.get_security_token():
            added["x-oss-security-token"] = given.get_security_token()
        values = {**headers, **added}
        _, path, query = split_url(url)
        lines = [f"{name}:{values[name]}" for name in _oss_order(tuple(values))]
        canonical = "\n".join((method, before + path, _query(query, ""), *lines, "", "", _UNSIGNED))
        signature = day_key.signature(given.get_access_key_secret(), "OSS4-HMAC-SHA256", stamp, canonical)
        who = f"{given.get_access_key_id()}/{day_key.scope(stamp[:8])}"
        return [*added.items(), ("authorization", f"OSS4-HMAC-SHA256 Credential={who}, Signature={signature}")]

    return sign


def _query(query: str, after_bare: str) -> str:
    """Sorted by encoded name; S3 writes `=` behind a name without a value, OSS does not."""
    if not query:
        return ""
    pairs = sorted(pair.partition("=") for pair in query.split("&"))
    return "&".join(f"{name}={value}" if value else name + after_bare for name, _, value in pairs)


@lru_cache(maxsize=2)
def _stamp(seconds: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))


@lru_cache(maxsize=256)
def _host(origin: str) -> str:
    """The Host header as `http1` sends it: lower case, without the port that goes without saying."""
    parts = urlsplit(origin)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
    return name if parts.port in (None, _PORTS[parts.scheme]) else f"{name}:{parts.port}"


@lru_cache(maxsize=256)
def _s3_order(names: tuple[str, ...]) -> tuple[list[str], str]:
    signed = sorted(name for name in names if name not in _LEFT_UNSIGNED)
    return signed, ";".join(signed)


@lru_cache(maxsize=256)
def _oss_order(names: tuple[str, ...]) -> list[str]:
    return sorted(name for name in names if name.startswith("x-oss-") or name in _OSS_SIGNED)
