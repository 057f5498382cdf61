"""What the S3 and the OSS dialect have in common: buckets, keys, and answers in XML.

A dialect adds its signatures, its query words and its spelling of a listing.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote
from xml.sax.saxutils import escape

from benchmarks.objectstore.answer import Answer, object_answer, text_answer
from benchmarks.objectstore.dialect import DialectConfig
from benchmarks.objectstore.objects import StoredObject
from benchmarks.objectstore.page import ListPage, ListWish, list_page
from benchmarks.objectstore.request import Request

MESSAGES = {
    "NoSuchKey": "The specified key does not exist.",
    "NoSuchBucket": "The specified bucket does not exist.",
    "AccessDenied": "Access denied.",
    "PreconditionFailed": "At least one of the preconditions that you specified did not hold.",
    "InvalidRange": "The requested range cannot be satisfied.",
    "SignatureDoesNotMatch": "The signature that this store calculates is another one.",
}
_DELETED_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_ENTITIES = {b"&amp;": b"&", b"&lt;": b"<", b"&gt;": b">", b"&quot;": b'"', b"&apos;": b"'"}


@dataclass(frozen=True, slots=True)
class Address:
    """Which object: both percent-decoded; an empty bucket is the store, an empty key the bucket."""

    bucket: bytes
    key: bytes

    @property
    def whole(self) -> bytes:
        return self.bucket + b"/" + self.key


class Buckets:
    """Base of the dialects that know buckets."""

    def __init__(self, config: DialectConfig) -> None:
        self._config = config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._config.shelf!r}>"

    def address(self, request: Request) -> Address:
        host = request.host.rpartition(":")[0] or request.host
        path = request.path[1:]
        suffix = "." + self._config.domain
        if host.endswith(suffix):
            return Address(host.removesuffix(suffix).encode(), path)
        bucket, _, key = path.partition(b"/")
        return Address(bucket, key)

    def key(self, request: Request) -> bytes:
        return self.address(request).whole

    def answer(self, request: Request) -> Answer:
        address = self.address(request)
        if not address.bucket:
            return self.list_buckets(request)
        if request.method == "PUT" and not address.key:
            self._config.shelf.add_bucket(address.bucket)
            return Answer(200)
        if address.bucket not in self._config.shelf.buckets():
            return self.error(request, 404, "NoSuchBucket")
        if request.method == "POST" and "delete" in request.params:
            return self._delete_many(request, address)
        if not address.key:
            return self.bucket_answer(request, address)
        return self._object(request, address)

    def error(self, request: Request, status: int, code: str, message: str = "") -> Answer:
        text = message or MESSAGES.get(code, code)
        body = f"<Code>{code}</Code><Message>{escape(text)}</Message><RequestId>{request.connection}</RequestId>"
        return xml_answer(f"<Error>{body}<HostId>objectstore</HostId></Error>", status)

    def list_buckets(self, request: Request) -> Answer:
        """The service's own answer."""
        raise NotImplementedError

    def bucket_answer(self, request: Request, address: Address) -> Answer:
        """GET and HEAD of a bucket: a listing, and what else its dialect asks there."""
        raise NotImplementedError

    def lenient(self, request: Request) -> bool:
        """Whether a range that is partly outside means the whole object."""
        return False

    def decorate(self, request: Request, stored: StoredObject, answer: Answer) -> dict[str, str]:
        """The dialect's own headers of a good answer about an object."""
        return {}

    def page_of(self, address: Address, wish: ListWish) -> ListPage:
        limited = ListWish(wish.prefix, wish.delimiter, wish.after, min(wish.limit, self._config.page))
        return list_page(self._config.shelf.keys(), address.bucket, limited)

    def entries(self, bucket: bytes, page: ListPage) -> Iterable[tuple[bytes, StoredObject]]:
        """The page's objects as they are now; one that went away meanwhile is left out."""
        for key in page.keys:
            stored = self._config.shelf.get(bucket + b"/" + key)
            if stored is not None:
                yield key, stored

    def _object(self, request: Request, address: Address) -> Answer:
        if request.method == "PUT":
            return self._put(request, address)
        if request.method == "DELETE":
            self._config.shelf.delete(address.whole)
            return Answer(204)
        if request.method not in ("GET", "HEAD"):
            return self.error(request, 501, "NotImplemented", f"this store does not know {request.line}")
        stored = self._config.shelf.get(address.whole)
        if stored is None:
            return self.error(request, 404, "NoSuchKey")
        return self._get(request, stored)

    def _get(self, request: Request, stored: StoredObject) -> Answer:
        answer = object_answer(stored, request, lenient=self.lenient(request))
        if answer.status == 412:
            return self.error(request, 412, "PreconditionFailed")
        if answer.status == 416:
            return with_headers(self.error(request, 416, "InvalidRange"), answer.headers)
        return with_headers(answer, self.decorate(request, stored, answer))

    def _put(self, request: Request, address: Address) -> Answer:
        if {"uploadId", "partNumber"} & request.params.keys() or "x-amz-copy-source" in request.headers:
            return self.error(request, 501, "NotImplemented", "this store knows neither multipart uploads nor copies")
        stored = StoredObject.of(request.body)
        self._config.shelf.put(address.whole, stored)
        return Answer(200, {"ETag": stored.etag})

    def _delete_many(self, request: Request, address: Address) -> Answer:
        keys = [_plain(raw) for raw in _DELETED_KEY.findall(request.body)]
        for key in keys:
            self._config.shelf.delete(Address(address.bucket, key).whole)
        rows = "".join(f"<Deleted><Key>{xml_text(key)}</Key></Deleted>" for key in keys)
        return xml_answer(f"<DeleteResult>{rows}</DeleteResult>")


def with_headers(answer: Answer, headers: Mapping[str, str]) -> Answer:
    """The same answer with more headers."""
    return Answer(answer.status, {**answer.headers, **headers}, answer.body, answer.start, answer.length)


def xml_answer(document: str, status: int = 200) -> Answer:
    return text_answer(status, f'<?xml version="1.0" encoding="UTF-8"?>\n{document}', "application/xml")


def xml_text(raw: bytes) -> str:
    """A key inside XML: control characters as references (as S3 does, though XML 1.0 forbids them)."""
    text = escape(raw.decode("utf-8", "surrogateescape"))
    return re.sub(r"[\x00-\x1f]", lambda found: f"&#{ord(found[0])};", text)


def xml_url(raw: bytes, *, plus: bool) -> str:
    """A key under encoding-type=url. `plus`: a blank becomes a plus sign (S3), else %20 (OSS)."""
    quoted = quote(raw, safe="/-_.*" if plus else "/-_.~")
    return quoted.replace("%20", "+") if plus else quoted


def iso_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def sha256_hex(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def uri_encode(raw: bytes, *, slash: bool) -> str:
    """RFC 3986's unreserved characters stay, the rest as %XX; `slash`: a slash stays too."""
    return quote(raw, safe="-_.~/" if slash else "-_.~")


def _plain(raw: bytes) -> bytes:
    for entity, character in reversed(_ENTITIES.items()):
        raw = raw.replace(entity, character)
    return raw
