"""The border: what stores, transports and libraries say becomes `cache_engine.errors`, once, here.

Only the store's error code is passed on, never its message: OSS and S3 echo access keys, tokens and whole
strings-to-sign in theirs.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime

from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    NotFound,
    ObjectChanged,
    SourceThrottled,
    SourceUnavailable,
    UnsupportedSource,
)
from cache_engine.http1 import Response, TransportError

_CODE = re.compile(rb"<Code>([0-9A-Za-z.]{1,64})</Code>")
_ERROR_BODY = 16 << 10
"""Bytes read of an error's body; the code stands at its front."""
_DENIED_CODES = frozenset(
    ("ExpiredToken", "InvalidAccessKeyId", "TokenRefreshRequired", "InvalidToken", "InvalidSecurity")
)
"""Codes that some stores send with 400 and that mean: not with these credentials."""
_THROTTLED_CODES = frozenset(("SlowDown", "Throttling", "TooManyRequests", "RequestLimitExceeded"))
_PASSING_CODES = frozenset(("RequestTimeout", "InternalError", "OperationAborted"))


class BrokenBody(SourceUnavailable):
    """A body that ended early. `received`: bytes that the failing readinto had already put into its buffer."""

    def __init__(self, message: str, received: int) -> None:
        super().__init__(message)
        self.received = received


def from_status(
    status: int, what: str, *, code: str = "", retry_after: float | None = None, hint: str = ""
) -> CacheEngineError:
    """The error for an answer that is not a success. `what` is what was asked, without any secret."""
    said = f"{what}: the source answered {status}{' ' + code if code else ''}"
    if status == 429 or status == 503 or code in _THROTTLED_CODES:
        return SourceThrottled(f"{said}; it asks for fewer requests", retry_after)
    if status in (401, 403) or code in _DENIED_CODES:
        why = "these credentials may not, or it does not exist and they may not list"
        return AccessDenied(f"{said}; {why}{hint}")
    if status in (404, 410):
        return NotFound(f"{said}; there is nothing of that name")
    if status == 412:
        return ObjectChanged(f"{said}; it no longer has the version of the snapshot: take a new one")
    if (status >= 500 and status not in (501, 505)) or status in (408, 425) or code in _PASSING_CODES:
        return SourceUnavailable(f"{said}; it may answer again later")
    if 300 <= status < 400:
        return UnsupportedSource(f"{said}; it sends us elsewhere{hint or ': check endpoint, region and addressing'}")
    return UnsupportedSource(f"{said}, which is not understood{hint}")


def from_response(response: Response, what: str) -> CacheEngineError:
    """The same for a response of ours, which is read for its error code and closed."""
    with response:
        try:
            found = _CODE.search(response.read(_ERROR_BODY))
        except TransportError:
            found = None  # the status has come and says enough
        code = found[1].decode() if found else ""
        region = response.headers.get("x-amz-bucket-region", "")
        hint = f"; the bucket is in region {region[:40]!r}: set the option region" if region else ""
        wait = retry_after(response.headers.get("retry-after", ""), time.time())
        return from_status(response.status, what, code=code, retry_after=wait, hint=hint)


def from_transport(error: TransportError, what: str) -> SourceUnavailable:
    """The error for a connection that failed; a BrokenBody where some of the bytes had come."""
    if error.received:
        return BrokenBody(f"{what}: {error}", error.received)
    return SourceUnavailable(f"{what}: {error}")


def retry_after(text: str, now: float) -> float | None:
    """Retry-After, seconds or an HTTP date -> seconds from `now`; None where there is none or it makes no sense."""
    if text.isascii() and text.isdigit() and len(text) < 7:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now) if text else None
    except ValueError:
        return None
