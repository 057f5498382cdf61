"""One page of ListObjectsV2, of S3 or of OSS: from the XML to the columns of a Page. Pure.

The vendors' parsers build a dict or an object a key and read its time in Python: 77 us a key (botocore; 20 with
times left as text), 10 (oss2). ElementTree's parser, in C, and one loop take 6 (docs/notes/listing.md). A page
holds at most a thousand keys, so its tree is small; expat itself refuses entities that explode.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

from cache_engine.errors import SourceUnavailable
from cache_engine.source import Page
from cache_engine.sources.bucket import Place
from cache_engine.sources.versions import version_of

_ROOT = "ListBucketResult"
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ListingPage:
    """What one answer says. `token`: where it goes on, as it came; `encoded`: whether names came percent-encoded."""

    page: Page
    truncated: bool
    token: str | None
    encoded: bool


def parse(body: bytes, place: Place, *, what: str, plus_is_blank: bool) -> ListingPage:
    """Keys relative to `place`, without its own marker. `plus_is_blank`: S3 writes a blank as `+`, OSS as %20.

    Raises SourceUnavailable for anything but a whole page: a login page or half a page is no empty listing.
    """
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise _no_listing(what, str(error)) from error
    space, name = root.tag[: -len(_ROOT)], root.tag[-len(_ROOT) :]
    truncated = root.findtext(f"{space}IsTruncated", "").strip().lower()
    if name != _ROOT or truncated not in ("true", "false"):
        raise _no_listing(what, f"<{root.tag[:60]}> without a word on whether it is truncated")
    encoded = root.findtext(f"{space}EncodingType", "").strip() == "url"
    try:
        page = _columns(root, space, place, encoded, plus_is_blank)
    except (KeyError, ValueError) as error:
        raise _no_listing(what, f"an object without {error}") from error
    return ListingPage(page, truncated == "true", root.findtext(f"{space}NextContinuationToken"), encoded)


def _columns(root: ElementTree.Element, space: str, place: Place, encoded: bool, plus_is_blank: bool) -> Page:
    key_tag, size_tag = f"{space}Key", f"{space}Size"
    etag_tag, time_tag = f"{space}ETag", f"{space}LastModified"
    page = Page()
    for item in root.iterfind(f"{space}Contents"):
        fields = {field.tag: field.text or "" for field in item}
        name = fields[key_tag]
        if not encoded:
            raw = name.encode("utf-8", "surrogateescape")
        else:
            raw = unquote_to_bytes(name.replace("+", " ") if plus_is_blank else name)
        if key := place.relative(raw):
            etag = fields.get(etag_tag, "")
            page.keys.append(key)
            page.sizes.append(int(fields[size_tag]))
            page.versions.append(f"etag:{etag}" if etag[:1] == '"' else version_of({"etag": etag})[0])
            page.mtimes_ns.append(_nanoseconds(fields.get(time_tag, "")))
    return page


def _nanoseconds(text: str) -> int:
    """Whole seconds, as HEAD and GET say it too; 0 where it is no time."""
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * _SECOND
    except ValueError:
        return 0


def _no_listing(what: str, why: str) -> SourceUnavailable:
    return SourceUnavailable(f"{what}: the answer is no whole page of a listing ({why}); is the endpoint right?")
