"""How fast does a received page of a listing become columns? Ours against botocore's and oss2's own parsers.

One page of a thousand keys as Amazon sends it today (checksum fields included), parsed again and again in this
process; no network. Seconds are CPU of this process. What a page costs with the request around it, and why the
store's round trip is then the limit, is in docs/notes/listing.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness import Options, Question, Row, at_least

KEYS = 1000
NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def page(namespace: str = NAMESPACE, extra: str = "") -> bytes:
    """One page; `extra`: elements that each object has besides."""
    items = "".join(
        f"<Contents><Key>train/part-{number:07}.jpg</Key>"
        f"<LastModified>2026-01-02T03:04:{number % 60:02}.000Z</LastModified>"
        f"<ETag>&quot;9b2cf535f27731c974343645a39{number:05}&quot;</ETag>{extra}<Size>{100_000 + number}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for number in range(KEYS)
    )
    head = "<Name>b</Name><Prefix>train/</Prefix><KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys>"
    head += "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
    return f'<?xml version="1.0"?>\n<ListBucketResult{namespace}>{head}{items}</ListBucketResult>'.encode()


def ours(body: bytes) -> Callable[[], int]:
    from cache_engine.sources import listing_page
    from cache_engine.sources.bucket import Place

    place = Place("b", b"train/")
    return lambda: len(listing_page.parse(body, place, what="list", plus_is_blank=True).page.keys)


def botocore(body: bytes, **times: Any) -> Callable[[], int]:
    """`times`: how it reads a time; its usual way goes through dateutil."""
    import botocore.session
    from botocore.parsers import ResponseParserFactory

    model = botocore.session.Session().get_service_model("s3").operation_model("ListObjectsV2")
    factory = ResponseParserFactory()
    factory.set_parser_defaults(**times)
    parser = factory.create_parser("rest-xml")
    answer = {"status_code": 200, "headers": {}, "body": body}
    return lambda: len(parser.parse(answer, model.output_shape)["Contents"])


def oss2(body: bytes) -> Callable[[], int]:
    from types import SimpleNamespace

    from oss2.models import ListObjectsV2Result
    from oss2.xml_utils import parse_list_objects_v2

    answer = SimpleNamespace(headers={}, status=200, request_id="")
    return lambda: len(parse_list_objects_v2(ListObjectsV2Result(answer), body).object_list)


def per_second(parse: Callable[[], int]) -> Callable[[], float]:
    """Keys per second of CPU, over a tenth of a second or so."""

    def run() -> float:
        keys, began = 0, time.process_time()
        while (took := time.process_time() - began) < 0.1:
            keys += parse()
        return keys / took

    return run


def questions(options: Options) -> Iterator[Question | Row]:
    """Each dialect's page with the parser of its vendor."""
    sums = "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
    amazon, aliyun = page(extra=sums), page(namespace="", extra="<Type>Normal</Type>")
    arms = {
        "forebay": ours(amazon),
        "botocore": botocore(amazon),
        "botocore, times as text": botocore(amazon, timestamp_parser=str),
    }
    for dialect, body, parsers in (
        ("s3", amazon, arms),
        ("oss", aliyun, {"forebay": ours(aliyun), "oss2": oss2(aliyun)}),
    ):
        timed = {name: per_second(parse) for name, parse in parsers.items()}
        notes = {"keys": KEYS, "bytes": len(body)}
        yield Question(f"listing: a received page of {dialect}", "keys/s", timed, at_least(60_000), notes=notes)


if __name__ == "__main__":
    from benchmarks.report import run

    sys.exit(run({"listing": questions}))
