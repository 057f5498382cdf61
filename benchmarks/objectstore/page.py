"""One page of a listing, decided purely: keys in byte order, rolled up at the delimiter. The dialects write it down."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.objectstore.objects import bounds
from benchmarks.objectstore.request import raw_bytes


@dataclass(slots=True)
class ListPage:
    """`keys` and `prefixes` relative to the bucket; `last` is the last of both, from where the next page goes on."""

    keys: list[bytes] = field(default_factory=list)
    prefixes: list[bytes] = field(default_factory=list)
    last: bytes = b""
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.keys) + len(self.prefixes)


@dataclass(frozen=True, slots=True)
class ListWish:
    """What a listing asks for, inside one bucket."""

    prefix: bytes = b""
    delimiter: bytes = b""
    after: bytes = b""
    """Only keys and prefixes greater than this: a marker, a start-after or what a token stands for."""
    limit: int = 1000

    @classmethod
    def of(cls, params: Mapping[str, str], after: bytes, default: int) -> ListWish:
        """From the query of S3 or OSS, which spell these three alike; `default`: keys a page where it says nothing."""
        limit = params.get("max-keys", "")
        prefix, delimiter = raw_bytes(params.get("prefix", "")), raw_bytes(params.get("delimiter", ""))
        return cls(prefix, delimiter, after, int(limit) if limit.isdigit() else default)


def list_page(keys: list[bytes], bucket: bytes, wish: ListWish) -> ListPage:
    """The page of `bucket` out of the sorted `keys` of all buckets (each BUCKET/KEY)."""
    page = ListPage()
    skip = len(bucket) + 1
    position, stop = bounds(keys, bucket + b"/" + wish.prefix)
    if wish.after:
        position = max(position, bisect.bisect_right(keys, bucket + b"/" + wish.after, 0, stop))
    while position < stop and len(page) < wish.limit:
        key = keys[position]
        cut = key.find(wish.delimiter, skip + len(wish.prefix)) if wish.delimiter else -1
        if cut < 0:
            page.last = key[skip:]
            page.keys.append(page.last)
            position += 1
            continue
        group = key[: cut + len(wish.delimiter)]
        if group[skip:] > wish.after:
            page.last = group[skip:]
            page.prefixes.append(page.last)
        position = bounds(keys, group, position)[1]
    page.truncated = position < stop and wish.limit > 0
    return page
