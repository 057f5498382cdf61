"""Every route of a worker over a real socket: right bytes with the right CRC, or a refusal that says why."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from crc32c import crc32c

from cache_engine import wire
from cache_engine.block import BLOCK, SPAN
from cache_engine.http1 import Pool
from tests.cache_engine.plane import Plane, noise

FILES = {
    "big": noise(3 * BLOCK + 17, 1),
    "empty": b"",
    "small": noise(1000, 2),
    "a b+c%20ü": noise(5000, 3),
    "line\nfeed": noise(5000, 5),
    "huge": noise(SPAN + 2 * BLOCK, 4),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane"), FILES) as plane:
        yield plane


class Answer:
    """A whole answer: status, headers, body."""

    def __init__(self, pool: Pool, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> None:
        with pool.request(method, target, list(headers.items()), body) as response:
            self.status = response.status
            self.headers = response.headers
            self.body = response.read(1 << 30)

    @property
    def error(self) -> str:
        return self.headers.get(wire.ERROR, "")


def ask(plane: Plane, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(plane.http(), method, target, named, body)


def path_of(name: str) -> str:
    return f"/v1/datasets/d/files/{quote(name)}"


@pytest.mark.parametrize(
    "start, stop", [(0, BLOCK), (BLOCK, 3 * BLOCK), (2 * BLOCK, 3 * BLOCK + 17), (0, 3 * BLOCK + 17)]
)
def test_a_range_of_whole_blocks_carries_one_crc_a_block(plane: Plane, start: int, stop: int) -> None:
    answer = ask(plane, plane.target("big"), range=f"bytes={start}-{stop - 1}")
    body = FILES["big"][start:stop]
    assert (answer.status, answer.body) == (206, body)
    assert wire.parse_crcs(answer.headers[wire.CRC]) == [
        crc32c(body[n : n + BLOCK]) for n in range(0, len(body), BLOCK)
    ]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(FILES['big'])}"
    assert answer.headers[wire.EPOCH] == str(plane.control.access("d").epoch)


@pytest.mark.parametrize("start, stop", [(1, 2), (5, BLOCK), (BLOCK - 1, BLOCK), (3 * BLOCK + 1, 3 * BLOCK + 17)])
def test_a_range_inside_a_block_carries_the_crc_of_exactly_its_bytes(plane: Plane, start: int, stop: int) -> None:
    answer = ask(plane, plane.target("big"), range=f"bytes={start}-{stop - 1}")
    assert (answer.status, answer.body) == (206, FILES["big"][start:stop])
    assert wire.parse_crcs(answer.headers[wire.CRC]) == [crc32c(answer.body)]


def test_a_reader_is_refused_what_cannot_be_vouched_for(plane: Plane) -> None:
    for asked in (f"bytes=5-{BLOCK + 5}", f"bytes=0-{SPAN}", f"bytes={SPAN - BLOCK}-{SPAN + BLOCK - 1}"):
        answer = ask(plane, plane.target("huge"), range=asked)
        assert (answer.status, answer.error) == (400, "InvalidValue"), asked


@pytest.mark.parametrize("asked", ["bytes=9-3", "bytes=x-y", "bytes=0-1,3-4", "lines=0-1", "bytes=-", ""])
def test_a_readers_range_of_another_form_is_refused(plane: Plane, asked: str) -> None:
    answer = ask(plane, plane.target("big"), range=asked)
    assert (answer.status, answer.error) == (400, "InvalidValue")


@pytest.mark.parametrize("asked", [f"bytes={len(FILES['big'])}-", "bytes=99999999999-", "bytes=-0"])
def test_a_range_past_the_end_is_416_and_says_the_size(plane: Plane, asked: str) -> None:
    for target in (plane.target("big"), path_of("big")):
        answer = ask(plane, target, range=asked)
        assert answer.status == 416
        assert answer.headers["content-range"] == f"bytes */{len(FILES['big'])}"


@pytest.mark.parametrize(
    "target, status",
    [
        ("/v1/d/nobody/{digest}/0", 404),
        ("/v1/d/d/{zeros}/0", 404),
        ("/v1/d/d/{digest}/99", 404),
        ("/v1/d/d/{digest}/99999999999999999999", 404),
        ("/v1/d/d/{digest}/" + "9" * 5000, 404),
        ("/v1/d/d/{digest}/-1", 404),
        ("/v1/d/d/{digest}/1.5", 404),
        ("/v1/nothing", 404),
        ("/v1/datasets/d/files/absent", 404),
        ("/v1/datasets/d/files/..%2f..%2fetc%2fpasswd", 404),
        ("/v1/datasets/nobody/files/x", 404),
        ("/v1/datasets/d/files/%ff%zz", 400),
    ],
)
def test_what_is_not_there_is_refused(plane: Plane, target: str, status: int) -> None:
    target = target.format(digest=plane.manifest().digest, zeros="0" * 64)
    assert ask(plane, target, range="bytes=0-0").status == status


def test_bytes_that_are_not_held_are_refused_to_who_wants_only_those(plane: Plane) -> None:
    plane.put({"unheld": b"x"})
    answer = ask(plane, plane.target("a b+c%20ü"), range="bytes=0-4999", x_forebay_only_held="1")
    assert (answer.status, answer.error) == (404, "NotFound")
    assert ask(plane, plane.target("a b+c%20ü"), range="bytes=0-4999").status == 206
    assert ask(plane, plane.target("a b+c%20ü"), range="bytes=0-4999", x_forebay_only_held="1").status == 206


def test_head_of_an_object_sends_no_body_and_the_connection_goes_on(plane: Plane) -> None:
    with contextlib.closing(plane.http()) as pool:
        first = Answer(pool, "HEAD", plane.target("big"), {"range": f"bytes=0-{BLOCK - 1}"})
        assert (first.status, first.body) == (405, b"")
        again = Answer(pool, "GET", plane.target("big"), {"range": "bytes=0-9"})
        assert again.body == FILES["big"][:10]


# -- by path, for people and curl ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_by_its_path_whole_and_its_head(plane: Plane, name: str) -> None:
    whole = ask(plane, path_of(name))
    assert (whole.status, whole.body) == (200, FILES[name])
    head = ask(plane, path_of(name), "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(FILES[name])))
    assert head.headers["etag"] == whole.headers["etag"] and head.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize(
    "asked, part",
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=5-", slice(5, None)),
        ("bytes=-5", slice(-5, None)),
        (f"bytes={BLOCK - 1}-{2 * BLOCK}", slice(BLOCK - 1, 2 * BLOCK + 1)),
        ("bytes=0-99999999999", slice(None)),
        (f"bytes=-{99 * BLOCK}", slice(None)),
    ],
)
def test_a_part_of_a_file_by_its_path(plane: Plane, asked: str, part: slice) -> None:
    answer = ask(plane, path_of("big"), range=asked)
    assert (answer.status, answer.body) == (206, FILES["big"][part])
    start = part.indices(len(FILES["big"]))[0]
    assert answer.headers["content-range"] == f"bytes {start}-{start + len(answer.body) - 1}/{len(FILES['big'])}"


@pytest.mark.parametrize("asked", ["lines=0-1", "bytes=0-1,3-4", "bytes=x-y", "bytes=9-3"])
def test_a_range_by_path_that_means_nothing_here_is_ignored_as_rfc_9110_says(plane: Plane, asked: str) -> None:
    assert (ask(plane, path_of("small"), range=asked).status, ask(plane, path_of("small")).body) == (
        200,
        FILES["small"],
    )


def test_conditions_on_the_version_are_kept(plane: Plane) -> None:
    etag = ask(plane, path_of("small"), "HEAD").headers["etag"]
    fresh = ask(plane, path_of("small"), if_none_match=f'"other", {etag}')
    assert (fresh.status, fresh.body, fresh.headers["etag"]) == (304, b"", etag)
    assert ask(plane, path_of("small"), if_none_match="*").status == 304
    assert ask(plane, path_of("small"), if_none_match='"other"').body == FILES["small"]
    assert ask(plane, path_of("small"), if_match='"other"').status == 412
    assert ask(plane, path_of("small"), if_match=etag).status == 200


def test_a_resumed_download_of_another_version_starts_anew(plane: Plane) -> None:
    etag = ask(plane, path_of("small"), "HEAD").headers["etag"]
    same = ask(plane, path_of("small"), range="bytes=500-", if_range=etag)
    assert (same.status, same.body) == (206, FILES["small"][500:])
    for other in ('"other"', "Wed, 21 Oct 2015 07:28:00 GMT", f"W/{etag}"):
        anew = ask(plane, path_of("small"), range="bytes=500-", if_range=other)
        assert (anew.status, anew.body) == (200, FILES["small"]), other


def test_a_directory_by_its_path_is_said_to_be_one(plane: Plane) -> None:
    answer = ask(plane, path_of(""))
    assert answer.status == 404


# -- batches -------------------------------------------------------------------------------------------------------


def batch(plane: Plane, names: list[str], extra: tuple[int, ...] = ()) -> list[tuple[int, bytes]]:
    manifest = plane.manifest()
    indices = [manifest.find(name.encode()) for name in names] + list(extra)
    answer = ask(plane, plane.target(tail="/batch"), "POST", wire.pack_indices(indices))
    assert answer.status == 200
    rows = wire.unpack_rows(answer.body[: wire.rows_length(len(indices))])
    rest = answer.body[wire.rows_length(len(indices)) :]
    bodies = []
    for row in rows:
        body, rest = rest[: row.size], rest[row.size :]
        assert row.code or row.crc == crc32c(body)
        bodies.append((row.code, body))
    assert rest == b""
    return bodies


def test_a_batch_gives_each_file_or_its_error_in_the_order_asked(plane: Plane) -> None:
    names = ["small", "empty", "a b+c%20ü", "small"]
    got = batch(plane, [*names, "big"], (99, 2**32 - 1))
    assert got[:4] == [(0, FILES[name]) for name in names]
    assert [code for code, _ in got[4:]] == [400, 404, 404]
    assert b"too large" in got[4][1] and b"99" in got[5][1]


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\0" * (4 * wire.MOST_IN_BATCH + 4)])
def test_a_batch_of_another_form_is_refused(plane: Plane, body: bytes) -> None:
    answer = ask(plane, plane.target(tail="/batch"), "POST", body)
    assert (answer.status, answer.error) == (400, "InvalidValue")


def test_a_batch_of_an_unknown_snapshot_is_refused(plane: Plane) -> None:
    assert ask(plane, f"/v1/d/d/{'0' * 64}/batch", "POST", wire.pack_indices([0])).status == 404
    assert ask(plane, f"/v1/d/nobody/{'0' * 64}/batch", "POST", wire.pack_indices([0])).status == 404


@pytest.mark.parametrize("what", ["batch", "fill"])
def test_a_body_beyond_a_mebibyte_is_refused(plane: Plane, what: str) -> None:
    assert ask(plane, plane.target(tail=f"/{what}"), "POST", bytes((1 << 20) + 1)).status == 413


# -- fill and bad --------------------------------------------------------------------------------------------------


def test_a_fill_holds_the_files_and_says_so_of_each(plane: Plane) -> None:
    manifest = plane.manifest()
    numbers = {name: manifest.find(name.encode()) for name in FILES}
    body = json.dumps({"files": [*numbers.values(), 99]}).encode()
    answer = ask(plane, plane.target(tail="/fill"), "POST", body)
    rows = {row["index"]: row for row in json.loads(answer.body)["files"]}
    assert {name: rows[number]["bytes"] for name, number in numbers.items()} == {n: len(b) for n, b in FILES.items()}
    assert "99" in rows[99]["error"] and rows[99]["bytes"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"files": 1}',
        b'{"files": "0"}',
        b'{"files": [true]}',
        b'{"files": [-1]}',
        b'{"files": [0.0]}',
        b'{"files": ["0"]}',
        b'{"files": {"0": 0}}',
        json.dumps({"files": [0] * 4097}).encode(),
    ],
)
def test_a_fill_request_of_another_form_is_refused(plane: Plane, body: bytes) -> None:
    answer = ask(plane, plane.target(tail="/fill"), "POST", body)
    assert (answer.status, answer.error) == (400, "InvalidValue")


@pytest.mark.parametrize("query", ["", "?block=", "?block=x", "?block=" + "9" * 5000])
def test_a_report_that_names_no_block_is_refused(plane: Plane, query: str) -> None:
    assert ask(plane, plane.target("big", f"/bad{query}"), "POST").status == 400


@pytest.mark.parametrize("block", [0, 3, 4, -1, 10**12])
def test_a_report_of_a_good_or_absent_block_drops_nothing(plane: Plane, block: int) -> None:
    ask(plane, path_of("big"))
    answer = ask(plane, plane.target("big", f"/bad?block={block}"), "POST")
    assert json.loads(answer.body) == {"dropped": False}


# -- figures -------------------------------------------------------------------------------------------------------


def test_health_stats_and_metrics_answer(plane: Plane) -> None:
    assert json.loads(ask(plane, "/healthz").body) == {"id": "w0", "ok": True}
    assert json.loads(ask(plane, "/v1/stats").body)["tier_quota_bytes"] == plane.quota
    ask(plane, plane.target("big"), range="bytes=99999999999-")
    text = ask(plane, "/metrics").body.decode()
    assert 'forebay_worker_requests_total{kind="get_object",status="416"}' in text


def test_a_request_keeps_its_id(plane: Plane) -> None:
    for target in (plane.target("small"), "/v1/d/nobody/0/0", path_of("small")):
        assert ask(plane, target, range="bytes=0-9", x_request_id="abc-1").headers["x-request-id"] == "abc-1"
    assert ask(plane, "/healthz").headers["x-request-id"]
    assert "\n" not in ask(plane, "/healthz", x_request_id="a b\tc" + "x" * 500).headers["x-request-id"]
