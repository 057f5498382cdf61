"""Aliyun OSS as oss2 and ossfs speak it: Signature V1 and V4, listings by marker and V2, and its rule for ranges.

oss2 encodes the slashes of a key on the wire; decoding the path once makes both spellings one key.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import re
from dataclasses import dataclass

from benchmarks.objectstore.answer import Answer
from benchmarks.objectstore.buckets import (
    Address,
    Buckets,
    iso_time,
    sha256_hex,
    uri_encode,
    with_headers,
    xml_answer,
    xml_text,
    xml_url,
)
from benchmarks.objectstore.dialect import Credentials
from benchmarks.objectstore.dialects.s3 import make_token, read_token
from benchmarks.objectstore.objects import StoredObject
from benchmarks.objectstore.page import ListPage, ListWish
from benchmarks.objectstore.request import Request, raw_bytes

_V1 = re.compile(r"OSS (?P<id>[^:\s]+):(?P<signature>[A-Za-z0-9+/]+=*)")
_V4 = re.compile(
    r"OSS4-HMAC-SHA256\s+Credential=(?P<id>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/oss/aliyun_v4_request"
    r"(?:,\s*AdditionalHeaders=(?P<additional>[^,\s]*))?,\s*Signature=(?P<signature>[0-9a-f]{64})"
    r"(?:,\s*AdditionalHeaders=(?P<after>[^,\s]*))?"
)
_WORDS = """
    acl append bucketInfo cname comp continuation-token cors delete encryption endTime img inventory inventoryId
    lifecycle live location logging objectInfo objectMeta partNumber policy position qos referer replication
    requestPayment response-cache-control response-content-disposition response-content-encoding
    response-content-language response-content-type response-expires restore security-token sequential startTime
    stat status style styleName symlink tagging uploadId uploads versionId versioning versions vod website worm
    wormExtend wormId x-oss-ac-source-ip x-oss-process x-oss-request-payer x-oss-traffic-limit
"""
_SIGNED_BY_V1 = frozenset(_WORDS.split())
"""The query words that are part of what V1 signs."""
_OWNER = "<Owner><ID>1</ID><DisplayName>owner</DisplayName></Owner>"
_PLACE = (
    "<ExtranetEndpoint>localhost</ExtranetEndpoint><IntranetEndpoint>localhost</IntranetEndpoint>"
    "<Location>oss-cn-hangzhou</Location><StorageClass>Standard</StorageClass>"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a V4 Authorization header says beside the signature."""

    date: str
    region: str
    additional: tuple[str, ...]


class Oss(Buckets):
    """The dialect `oss`."""

    def refuse(self, request: Request) -> Answer | None:
        credentials = self._config.credentials
        if credentials is None:
            return None
        header = request.headers.get("authorization", "").strip()
        match = _V4.fullmatch(header) or _V1.fullmatch(header)
        if match is None:
            return self.error(request, 403, "AccessDenied", "the request carries no OSS or OSS4-HMAC-SHA256 signature")
        if match["id"] != credentials.id:
            return self.error(request, 403, "InvalidAccessKeyId")
        if request.headers.get("x-oss-security-token", "") != credentials.token:
            return self.error(request, 403, "InvalidSecurityToken")
        expected = self._expected(request, credentials, match)
        if not hmac.compare_digest(expected, match["signature"]):
            return self.error(request, 403, "SignatureDoesNotMatch")
        return None

    def _expected(self, request: Request, credentials: Credentials, match: re.Match[str]) -> str:
        address = self.address(request)
        if match.re is _V1:
            return expected_v1(request, credentials.secret, address)
        additional = match["additional"] or match["after"] or ""
        scope = Scope(match["date"], match["region"], tuple(filter(None, additional.lower().split(";"))))
        return expected_v4(request, credentials.secret, address, scope)

    def error(self, request: Request, status: int, code: str, message: str = "") -> Answer:
        answer = super().error(request, status, code, message)
        document = bytes(answer.body.read(0, answer.length))
        # A HEAD has no body: OSS repeats the error in this header.
        return with_headers(answer, {"x-oss-request-id": "0", "x-oss-err": base64.b64encode(document).decode()})

    def listing(self, request: Request) -> bytes | None:
        address, params = self.address(request), request.params
        if request.method != "GET" or address.key or not address.bucket or "bucketInfo" in params:
            return None
        return Address(address.bucket, raw_bytes(params.get("prefix", ""))).whole

    def lenient(self, request: Request) -> bool:
        return request.headers.get("x-oss-range-behavior", "").lower() != "standard"

    def decorate(self, request: Request, stored: StoredObject, answer: Answer) -> dict[str, str]:
        return {"x-oss-request-id": "0", "x-oss-object-type": "Normal", "x-oss-storage-class": "Standard"}

    def list_buckets(self, request: Request) -> Answer:
        rows = "".join(f"<Bucket>{_bucket(name)}</Bucket>" for name in self._config.shelf.buckets())
        return xml_answer(f"<ListAllMyBucketsResult>{_OWNER}<Buckets>{rows}</Buckets></ListAllMyBucketsResult>")

    def bucket_answer(self, request: Request, address: Address) -> Answer:
        if "bucketInfo" in request.params:
            acl = "<AccessControlList><Grant>private</Grant></AccessControlList>"
            return xml_answer(f"<BucketInfo><Bucket>{_bucket(address.bucket)}{_OWNER}{acl}</Bucket></BucketInfo>")
        if request.method == "HEAD":
            return Answer(200)
        if request.params.get("list-type") == "2":
            return self._list_v2(request, address)
        return self._list_v1(request, address)

    def _list_v1(self, request: Request, address: Address) -> Answer:
        url = request.params.get("encoding-type") == "url"
        wish = ListWish.of(request.params, raw_bytes(request.params.get("marker", "")), 100)
        page = self.page_of(address, wish)
        extra = f"<Marker>{_name(wish.after, url)}</Marker>"
        if page.truncated:
            extra += f"<NextMarker>{_name(page.last, url)}</NextMarker>"
        return self._list_answer(address, wish, page, (extra, url))

    def _list_v2(self, request: Request, address: Address) -> Answer:
        params = request.params
        url = params.get("encoding-type") == "url"
        token = params.get("continuation-token")
        try:
            after = raw_bytes(params.get("start-after", "")) if not token else read_token(token)
        except ValueError:
            return self.error(request, 400, "InvalidArgument", "The continuation token is incorrect")
        wish = ListWish.of(params, after, 100)
        page = self.page_of(address, wish)
        extra = f"<KeyCount>{len(page)}</KeyCount>"
        if page.truncated:  # unlike S3, OSS encodes the token too
            extra += f"<NextContinuationToken>{_name(make_token(page.last).encode(), url)}</NextContinuationToken>"
        return self._list_answer(address, wish, page, (extra, url))

    def _list_answer(self, address: Address, wish: ListWish, page: ListPage, form: tuple[str, bool]) -> Answer:
        extra, url = form
        parts = [
            f"<ListBucketResult><Name>{xml_text(address.bucket)}</Name><Prefix>{_name(wish.prefix, url)}</Prefix>",
            f"<MaxKeys>{wish.limit}</MaxKeys><Delimiter>{_name(wish.delimiter, url)}</Delimiter>{extra}",
            "<EncodingType>url</EncodingType>" if url else "",
            f"<IsTruncated>{'true' if page.truncated else 'false'}</IsTruncated>",
        ]
        for key, stored in self.entries(address.bucket, page):
            parts.append(
                f"<Contents><Key>{_name(key, url)}</Key><LastModified>{iso_time(stored.mtime)}</LastModified>"
                f"<ETag>{xml_text(stored.etag.encode())}</ETag><Type>Normal</Type><Size>{stored.size}</Size>"
                "<StorageClass>Standard</StorageClass></Contents>"
            )
        prefixes = (f"<CommonPrefixes><Prefix>{_name(p, url)}</Prefix></CommonPrefixes>" for p in page.prefixes)
        return xml_answer("".join([*parts, *prefixes, "</ListBucketResult>"]))


def expected_v1(request: Request, secret: str, address: Address) -> str:
    """The signature of `Authorization: OSS ID:SIGNATURE`: base64 of HMAC-SHA1."""
    headers = request.headers
    oss = sorted((name, value) for name, value in headers.items() if name.startswith("x-oss-"))
    date = headers.get("x-oss-date") or headers.get("date", "")
    words = sorted((name, value) for name, value in request.query if name in _SIGNED_BY_V1)
    query = "&".join(f"{name}={value}" if value else name for name, value in words)
    lines = [request.method, headers.get("content-md5", ""), headers.get("content-type", ""), date]
    lines += [f"{name}:{value}" for name, value in oss]
    resource = (address.whole if address.bucket else b"/").lstrip(b"/")
    text = "\n".join(lines).encode("latin-1") + b"\n/" + resource + (b"?" + raw_bytes(query) if query else b"")
    return base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha1).digest()).decode()


def expected_v4(request: Request, secret: str, address: Address, scope: Scope) -> str:
    """The signature of `Authorization: OSS4-HMAC-SHA256 ...`; the path is /BUCKET/KEY in either style."""
    headers = request.headers
    signed = sorted(name for name in headers if _signed_by_v4(name, scope.additional))
    query = sorted(
        (uri_encode(raw_bytes(n), slash=False), uri_encode(raw_bytes(v), slash=False)) for n, v in request.query
    )
    canonical = "\n".join(
        (
            request.method,
            uri_encode(b"/" + address.whole if address.bucket else b"/", slash=True),
            "&".join(f"{name}={value}" if value else name for name, value in query),
            "".join(f"{name}:{headers[name]}\n" for name in signed),
            ";".join(sorted(scope.additional)),
            headers.get("x-oss-content-sha256", "UNSIGNED-PAYLOAD"),
        )
    )
    moment = headers.get("x-oss-date", "")
    place = f"{scope.date}/{scope.region}/oss/aliyun_v4_request"
    text = f"OSS4-HMAC-SHA256\n{moment}\n{place}\n{sha256_hex(canonical.encode('latin-1'))}"
    return hmac.new(_signing_key(secret, scope.date, scope.region), text.encode(), hashlib.sha256).hexdigest()


@functools.lru_cache(maxsize=64)
def _signing_key(secret: str, date: str, region: str) -> bytes:
    key = f"aliyun_v4{secret}".encode()
    for part in (date, region, "oss", "aliyun_v4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _signed_by_v4(name: str, additional: tuple[str, ...]) -> bool:
    return name.startswith("x-oss-") or name in ("content-type", "content-md5") or name in additional


def _bucket(name: bytes) -> str:
    return f"<Name>{xml_text(name)}</Name><CreationDate>{iso_time(0)}</CreationDate>{_PLACE}"


def _name(raw: bytes, url: bool) -> str:
    return xml_url(raw, plus=False) if url else xml_text(raw)
