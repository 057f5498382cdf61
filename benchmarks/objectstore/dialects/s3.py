"""Amazon S3 as botocore, s3fs, boto3 and obstore speak it: Signature V4 in the header, ListObjects V1 and V2.

Not here: presigned URLs, multipart uploads, versions.
"""

from __future__ import annotations

import base64
import binascii
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
    xml_answer,
    xml_text,
    xml_url,
)
from benchmarks.objectstore.dialect import Credentials
from benchmarks.objectstore.objects import StoredObject
from benchmarks.objectstore.page import ListPage, ListWish
from benchmarks.objectstore.request import Request, raw_bytes

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<id>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]*)/s3/aws4_request,\s*"
    r"SignedHeaders=(?P<signed>[^,]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_HEX_HASH = re.compile(r"[0-9a-f]{64}")
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_OWNER = "<Owner><ID>1</ID><DisplayName>owner</DisplayName></Owner>"


@dataclass(frozen=True, slots=True)
class Signature:
    """What an Authorization header says."""

    id: str
    date: str
    region: str
    signed: tuple[str, ...]
    signature: str

    @classmethod
    def parse(cls, header: str) -> Signature | None:
        match = _AUTHORIZATION.fullmatch(header.strip())
        if match is None:
            return None
        return cls(match["id"], match["date"], match["region"], tuple(match["signed"].split(";")), match["signature"])


class S3(Buckets):
    """The dialect `s3`."""

    def refuse(self, request: Request) -> Answer | None:
        credentials = self._config.credentials
        if credentials is None:
            return None
        given = Signature.parse(request.headers.get("authorization", ""))
        if given is None:
            return self.error(request, 403, "AccessDenied", "the request carries no AWS4-HMAC-SHA256 signature")
        if given.id != credentials.id:
            return self.error(request, 403, "InvalidAccessKeyId")
        if request.headers.get("x-amz-security-token", "") != credentials.token:
            return self.error(request, 403, "InvalidToken")
        return self._refuse_signature(request, credentials, given)

    def _refuse_signature(self, request: Request, credentials: Credentials, given: Signature) -> Answer | None:
        headers = request.headers
        must = {"host"} | {name for name in headers if name.startswith("x-amz-")}
        unsigned = sorted(must - set(given.signed))
        if unsigned:
            return self.error(request, 403, "AccessDenied", f"headers not signed: {', '.join(unsigned)}")
        payload = headers.get("x-amz-content-sha256", "")
        if not payload:
            return self.error(request, 400, "InvalidRequest", "Missing required header: x-amz-content-sha256")
        if not hmac.compare_digest(expected_signature(request, credentials.secret, given), given.signature):
            return self.error(request, 403, "SignatureDoesNotMatch")
        if _HEX_HASH.fullmatch(payload) and payload != sha256_hex(request.body):
            return self.error(request, 400, "XAmzContentSHA256Mismatch")
        return None

    def listing(self, request: Request) -> bytes | None:
        address, params = self.address(request), request.params
        if request.method != "GET" or address.key or not address.bucket or "location" in params:
            return None
        return Address(address.bucket, raw_bytes(params.get("prefix", ""))).whole

    def list_buckets(self, request: Request) -> Answer:
        names = map(xml_text, self._config.shelf.buckets())
        rows = "".join(
            f"<Bucket><Name>{name}</Name><CreationDate>{iso_time(0)}</CreationDate></Bucket>" for name in names
        )
        return xml_answer(
            f"<ListAllMyBucketsResult {_NAMESPACE}>{_OWNER}<Buckets>{rows}</Buckets></ListAllMyBucketsResult>"
        )

    def bucket_answer(self, request: Request, address: Address) -> Answer:
        if request.method == "HEAD":
            return Answer(200, {"x-amz-bucket-region": "us-east-1"})
        if "location" in request.params:
            return xml_answer(f"<LocationConstraint {_NAMESPACE}/>")
        if "versioning" in request.params:
            return xml_answer(f"<VersioningConfiguration {_NAMESPACE}/>")
        if request.params.get("list-type") == "2":
            return self._list_v2(request, address)
        return self._list_v1(request, address)

    def decorate(self, request: Request, stored: StoredObject, answer: Answer) -> dict[str, str]:
        whole = answer.status == 200
        if whole and request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED" and self._config.checksums:
            return {"x-amz-checksum-crc32c": stored.crc32c, "x-amz-checksum-type": "FULL_OBJECT"}
        return {}

    def _list_v2(self, request: Request, address: Address) -> Answer:
        params = request.params
        token = params.get("continuation-token")
        try:
            after = raw_bytes(params.get("start-after", "")) if token is None else read_token(token)
        except ValueError:
            return self.error(request, 400, "InvalidArgument", "The continuation token provided is incorrect")
        wish = ListWish.of(params, after, 1000)
        page = self.page_of(address, wish)
        extra = f"<KeyCount>{len(page)}</KeyCount>"
        if token is not None:
            extra += f"<ContinuationToken>{xml_text(token.encode())}</ContinuationToken>"
        if page.truncated:
            extra += f"<NextContinuationToken>{make_token(page.last)}</NextContinuationToken>"
        return self._list_answer(address, wish, page, (extra, params.get("encoding-type") == "url"))

    def _list_v1(self, request: Request, address: Address) -> Answer:
        params = request.params
        url = params.get("encoding-type") == "url"
        wish = ListWish.of(params, raw_bytes(params.get("marker", "")), 1000)
        page = self.page_of(address, wish)
        extra = f"<Marker>{_name(wish.after, url)}</Marker>"
        if page.truncated and wish.delimiter:  # without a delimiter, S3 leaves it to the caller: the last key
            extra += f"<NextMarker>{_name(page.last, url)}</NextMarker>"
        return self._list_answer(address, wish, page, (extra, url))

    def _list_answer(self, address: Address, wish: ListWish, page: ListPage, form: tuple[str, bool]) -> Answer:
        extra, url = form
        parts = [
            f"<ListBucketResult {_NAMESPACE}><Name>{xml_text(address.bucket)}</Name>",
            f"<Prefix>{_name(wish.prefix, url)}</Prefix><MaxKeys>{wish.limit}</MaxKeys>{extra}",
            f"<Delimiter>{_name(wish.delimiter, url)}</Delimiter>" if wish.delimiter else "",
            "<EncodingType>url</EncodingType>" if url else "",
            f"<IsTruncated>{'true' if page.truncated else 'false'}</IsTruncated>",
        ]
        for key, stored in self.entries(address.bucket, page):
            parts.append(
                f"<Contents><Key>{_name(key, url)}</Key><LastModified>{iso_time(stored.mtime)}</LastModified>"
                f"<ETag>{xml_text(stored.etag.encode())}</ETag><Size>{stored.size}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        prefixes = (f"<CommonPrefixes><Prefix>{_name(p, url)}</Prefix></CommonPrefixes>" for p in page.prefixes)
        return xml_answer("".join([*parts, *prefixes, "</ListBucketResult>"]))


def expected_signature(request: Request, secret: str, given: Signature) -> str:
    """The Signature V4 of a request: the path is encoded once, as S3 alone does it."""
    names = sorted(given.signed)
    canonical_headers = "".join(f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in names)
    canonical = "\n".join(
        (
            request.method,
            uri_encode(request.path, slash=True),
            canonical_query(request),
            canonical_headers,
            ";".join(names),
            request.headers.get("x-amz-content-sha256", ""),
        )
    )
    moment = request.headers.get("x-amz-date", "")
    scope = f"{given.date}/{given.region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{sha256_hex(canonical.encode('latin-1'))}"
    return hmac.new(_signing_key(secret, given.date, given.region), text.encode(), hashlib.sha256).hexdigest()


def canonical_query(request: Request) -> str:
    pairs = ((raw_bytes(name), raw_bytes(value)) for name, value in request.query)
    encoded = sorted((uri_encode(name, slash=False), uri_encode(value, slash=False)) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)


@functools.lru_cache(maxsize=64)
def _signing_key(secret: str, date: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def make_token(last: bytes) -> str:
    """A continuation token that needs percent-encoding: it always holds a plus sign, a slash and an equals sign."""
    return f"+/{base64.b64encode(last).decode()}="


def read_token(token: str) -> bytes:
    """Raises ValueError for a token that came back changed, such as one with blanks for plus signs."""
    if not token.startswith("+/") or not token.endswith("="):
        raise ValueError(token)
    try:
        return base64.b64decode(token[2:-1], validate=True)
    except binascii.Error as e:
        raise ValueError(token) from e


def _name(raw: bytes, url: bool) -> str:
    return xml_url(raw, plus=True) if url else xml_text(raw)
