"""Our signers give what the published examples and the vendors' own libraries give, for every odd name."""

from __future__ import annotations

import logging
from collections import namedtuple
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import RefreshableCredentials

from cache_engine import signing, signing_v4

AWS_ID, AWS_SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
OSS_ID, OSS_SECRET = "44CF9590006BF252F707", "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"
KEYS = (
    "plain.txt", "a%20b/c%2Bd", "a+b", "a%2Bb", "a%2520b", "2026//1///x", "%C2%A0/%E6%97%A5%E6%9C%AC", "dots/../b",
    "~tilde-_.", "%27%22%2A%28%29%21%3B%3A%40%26%3D%24%2C%3F%23%5B%5D", "new%0Aline", "x%FFy",
)  # fmt: skip
CANONICAL = [key for key in KEYS if quote(unquote(key), safe="/~") == key]
"""Spelt as our sources send them: oss2 signs what it decoded and encodes again."""
QUERIES = ("", "?versionId=v%2B1%3D", "?uploads", "?prefix=a%2Fb&list-type=2&continuation-token=x%2By%3D%3D&a=")
SENT = {
    "accept-encoding": "identity",
    "range": "bytes=0-65535",
    "if-match": '"a  b"',
    "if-unmodified-since": "Thu, 17 Nov 2005 18:49:58 GMT",
    "x-oss-range-behavior": "standard",
    "user-agent": "forebay",
}


def at(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def lower(pairs) -> dict[str, str]:
    return {name.lower(): value for name, value in pairs}


@pytest.mark.parametrize(
    ("target", "headers", "signature"),
    [
        ("/test.txt", {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?prefix=J&max-keys=2", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_s3_gives_the_signatures_of_amazons_own_examples(target, headers, signature):
    credentials = signing.static_credentials(AWS_ID, AWS_SECRET)
    sign = signing_v4.s3(credentials, "us-east-1", clock=lambda: at("20130524T000000Z"))
    added = dict(sign("GET", "https://examplebucket.s3.amazonaws.com" + target, headers))
    assert added["authorization"].endswith(f"Signature={signature}")


@pytest.mark.parametrize("token", [None, "the-session-token+/=="])
@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:99/bucket/", "https://Bucket.s3.eu-west-1.amazonaws.com:443/", "http://[::1]:80/b/"]
)
def test_s3_signs_as_botocore_does(base, token):
    credentials = signing.static_credentials(AWS_ID, AWS_SECRET, token)
    for url in [base + key + query for key in KEYS for query in QUERIES]:
        request = AWSRequest("GET", url, {n: v for n, v in SENT.items() if n not in ("accept-encoding", "user-agent")})
        S3SigV4Auth(credentials.get_frozen_credentials(), "s3", "eu-west-1").add_auth(request)
        wanted = {name: value for name, value in lower(request.headers.items()).items() if name not in SENT}
        sign = signing_v4.s3(credentials, "eu-west-1", clock=lambda stamp=wanted["x-amz-date"]: at(stamp))
        assert lower(sign("GET", url, dict(SENT))) == wanted, url


def test_a_new_day_or_a_new_secret_is_a_new_key():
    Frozen = namedtuple("Frozen", "access_key secret_key token")
    now, given = ["20301231T235959Z"], [Frozen("id-1", "secret-1", None)]
    credentials = SimpleNamespace(get_frozen_credentials=lambda: given[0])
    sign = signing_v4.s3(credentials, "r", clock=lambda: at(now[0]))
    for stamp, pair in (("20301231T235959Z", "1"), ("20310101T000000Z", "1"), ("20310101T000000Z", "2")):
        now[0], given[0] = stamp, Frozen(f"id-{pair}", f"secret-{pair}", f"token-{pair}")
        alone = signing_v4.s3(credentials, "r", clock=lambda stamp=stamp: at(stamp))
        assert sign("GET", "http://h/b/k", {}) == alone("GET", "http://h/b/k", {})
        assert f"Credential=id-{pair}/{stamp[:8]}/r/s3/" in dict(sign("GET", "http://h/b/k", {}))["authorization"]


def test_credentials_that_expire_are_refreshed_by_themselves():
    fetched = []

    def fetch():
        fetched.append(f"id-{len(fetched)}")
        return {"access_key": fetched[-1], "secret_key": "s", "token": "t", "expiry_time": "2001-01-01T00:00:00Z"}

    credentials = RefreshableCredentials("old", "s", "t", datetime.now(UTC), fetch, "test", advisory_timeout=1)
    sign = signing_v4.s3(credentials, "r")
    with pytest.raises(RuntimeError, match="expired"):  # botocore's own word on a refresh that gives expired ones
        sign("GET", "http://h/b/k", {})
    assert fetched == ["id-0"]


def oss_request(url: str, bucket: str, path_style: bool):
    parts = urlsplit(url)
    key = unquote(parts.path.removeprefix(f"/{bucket}/" if path_style else "/"))
    params = dict(parse_qsl(parts.query, keep_blank_values=True))
    request = SimpleNamespace(
        method="GET", headers=dict(SENT), params=params, region="cn-hangzhou", product="oss", cloudbox_id=None
    )
    return request, key


@pytest.mark.parametrize("token", [None, "the-session-token"])
@pytest.mark.parametrize("path_style", [True, False])
@pytest.mark.parametrize("version", ["v1", "v4"])
def test_oss_signs_as_oss2_does(version, path_style, token):
    credentials = signing.oss_credentials(OSS_ID, OSS_SECRET, token)
    base = "http://host/bucket/" if path_style else "http://bucket.host/"
    for url in [base + key + query for key in CANONICAL for query in QUERIES]:
        request, key = oss_request(url, "bucket", path_style)
        signing.oss_auth(credentials, version)._sign_request(request, "bucket", key)
        wanted = {name: value for name, value in request.headers.items() if name not in SENT}
        if version == "v1":
            now = parsedate_to_datetime(wanted["date"]).timestamp()
            sign = signing.oss_v1(credentials, "bucket", path_style=path_style, clock=lambda now=now: now)
        else:
            now = at(wanted["x-oss-date"])
            region = "cn-hangzhou"
            sign = signing_v4.oss(credentials, "bucket", region, path_style=path_style, clock=lambda now=now: now)
        assert dict(sign("GET", url, dict(SENT))) == wanted, url


def test_oss_v1_gives_the_signature_of_aliyuns_own_example():
    credentials = signing.oss_credentials(OSS_ID, OSS_SECRET)
    now = parsedate_to_datetime("Thu, 17 Nov 2005 18:49:58 GMT").timestamp()
    sign = signing.oss_v1(credentials, "oss-example", path_style=False, clock=lambda: now)
    headers = {"content-md5": "ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=", "content-type": "text/html"}
    headers |= {"x-oss-meta-author": "foo@bar.com", "x-oss-magic": "abracadabra"}
    added = dict(sign("PUT", "http://oss-example.oss-cn-hangzhou.aliyuncs.com/nelson", headers))
    assert added["authorization"] == f"OSS {OSS_ID}:26NBxoKdsyly4EDv6inkoDft/yA="


def test_plain_http_credentials():
    assert signing.bearer("t")("GET", "http://h/", {}) == [("authorization", "Bearer t")]
    assert signing.basic("u", "p:ä")("GET", "http://h/", {}) == [("authorization", "Basic dTpwOsOk")]
    assert signing.anonymous("GET", "http://h/", {}) == []


def test_no_signer_shows_or_logs_its_secret(caplog):
    caplog.set_level(logging.DEBUG)
    secret, token = "seeded-secret-1", "seeded-token-2"
    static, pair = signing.static_credentials("id", secret, token), signing.oss_credentials("id", secret, token)
    signers = [
        signing.bearer(token),
        signing.basic("user", secret),
        signing_v4.s3(static, "r"),
        signing.oss_v1(pair, "b", path_style=True),
        signing_v4.oss(pair, "b", "r", path_style=True),
    ]
    shown = "".join(map(repr, signers))
    for sign in signers:
        sign("GET", "http://h/b/k", {})
    assert not any(word in shown + caplog.text for word in (secret, token))
