"""Our signers against the published rules, which are written down here and proved on the published examples."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging

import pytest

from cache_engine import signing

EMPTY = hashlib.sha256(b"").hexdigest()
AWS_ID, AWS_SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
OSS_ID, OSS_SECRET = "44CF9590006BF252F707", "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"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def v4_signature(prefix: str, secret: str, scope: str, stamp: str, canonical: str) -> str:
    """AWS4 and aliyun_v4 differ in names only."""
    algorithm = {"AWS4": "AWS4-HMAC-SHA256", "aliyun_v4": "OSS4-HMAC-SHA256"}[prefix]
    key = (prefix + secret).encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    return _hmac(key, "\n".join((algorithm, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))).hex()


def aws_canonical(path: str, headers: dict[str, str], query: str = "") -> str:
    lines = [f"{name}:{headers[name]}" for name in sorted(headers)]
    return "\n".join(("GET", path, query, *lines, "", ";".join(sorted(headers)), headers["x-amz-content-sha256"]))


def test_the_rule_written_here_gives_the_signature_of_amazons_own_example():
    headers = {
        "host": "examplebucket.s3.amazonaws.com",
        "range": "bytes=0-9",
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": "20130524T000000Z",
    }
    found = v4_signature(
        "AWS4",
        AWS_SECRET,
        "20130524/us-east-1/s3/aws4_request",
        "20130524T000000Z",
        aws_canonical("/test.txt", headers),
    )
    assert found == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"


@pytest.mark.parametrize("token", [None, "the-session-token"])
def test_sigv4_follows_the_rule(token):
    sign = signing.sigv4(signing.static_credentials(AWS_ID, AWS_SECRET, token), "eu-west-1")
    sent = {"range": "bytes=0-9", "if-match": '"abc"', "user-agent": "forebay", "accept-encoding": "identity"}
    path = "/bucket/a%20b%2Bc%C2%A0/x"
    added = {name.lower(): value for name, value in sign("GET", f"http://127.0.0.1:99{path}?versionId=v%2B1", sent)}
    authorization = added.pop("authorization")
    assert added.get("x-amz-security-token") == token
    headers = {"host": "127.0.0.1:99", "range": "bytes=0-9", "if-match": '"abc"', **added}
    scope = f"{added['x-amz-date'][:8]}/eu-west-1/s3/aws4_request"
    signature = v4_signature(
        "AWS4", AWS_SECRET, scope, added["x-amz-date"], aws_canonical(path, headers, "versionId=v%2B1")
    )
    assert f"Credential={AWS_ID}/{scope}" in authorization
    assert f"SignedHeaders={';'.join(sorted(headers))}" in authorization
    assert authorization.endswith(f"Signature={signature}")


def oss_v1_signature(secret: str, lines: list[str]) -> str:
    return base64.b64encode(hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha1).digest()).decode()


def test_the_rule_written_here_gives_the_signature_of_aliyuns_own_example():
    lines = ["PUT", "ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=", "text/html", "Thu, 17 Nov 2005 18:49:58 GMT"]
    lines += ["x-oss-magic:abracadabra", "x-oss-meta-author:foo@bar.com", "/oss-example/nelson"]
    assert oss_v1_signature(OSS_SECRET, lines) == "26NBxoKdsyly4EDv6inkoDft/yA="


@pytest.mark.parametrize("token", [None, "the-session-token"])
@pytest.mark.parametrize("path_style", [True, False])
def test_oss_v1_follows_the_rule(token, path_style):
    sign = signing.oss(signing.oss_auth(OSS_ID, OSS_SECRET, token), "bucket", path_style=path_style)
    path = "/bucket/a%20b%2Bc%C2%A0/x" if path_style else "/a%20b%2Bc%C2%A0/x"
    added = dict(sign("GET", f"http://host{path}?versionId=v%2B1", {"x-oss-range-behavior": "standard"}))
    special = ["x-oss-range-behavior:standard"] + ([f"x-oss-security-token:{token}"] if token else [])
    lines = ["GET", "", "", added["date"], *special, "/bucket/a b+c\u00a0/x?versionId=v+1"]
    assert added["authorization"] == f"OSS {OSS_ID}:{oss_v1_signature(OSS_SECRET, lines)}"
    assert added.get("x-oss-security-token") == token


def test_oss_v4_follows_the_rule():
    auth = signing.oss_auth(OSS_ID, OSS_SECRET, version="v4")
    sign = signing.oss(auth, "bucket", path_style=False, region="cn-hangzhou")
    added = dict(sign("GET", "http://bucket.host/a%20b%2Bc/x", {"x-oss-range-behavior": "standard"}))
    stamp = added["x-oss-date"]
    scope = f"{stamp[:8]}/cn-hangzhou/oss/aliyun_v4_request"
    headers = ["x-oss-content-sha256:UNSIGNED-PAYLOAD", f"x-oss-date:{stamp}", "x-oss-range-behavior:standard"]
    canonical = "\n".join(("GET", "/bucket/a%20b%2Bc/x", "", *headers, "", "", "UNSIGNED-PAYLOAD"))
    signature = v4_signature("aliyun_v4", OSS_SECRET, scope, stamp, canonical)
    assert added["authorization"] == f"OSS4-HMAC-SHA256 Credential={OSS_ID}/{scope}, Signature={signature}"


def test_plain_http_credentials():
    assert signing.bearer("t")("GET", "http://h/", {}) == [("authorization", "Bearer t")]
    assert signing.basic("u", "p:ä")("GET", "http://h/", {}) == [("authorization", "Basic dTpwOsOk")]
    assert signing.anonymous("GET", "http://h/", {}) == []


def test_no_signer_shows_or_logs_its_secret(caplog):
    caplog.set_level(logging.DEBUG)
    secret, token = "seeded-secret-1", "seeded-token-2"
    signers = [
        signing.bearer(token),
        signing.basic("user", secret),
        signing.sigv4(signing.static_credentials("id", secret, token), "r"),
        signing.oss(signing.oss_auth("id", secret, token), "b", path_style=True),
        signing.oss(signing.oss_auth("id", secret, token, "v4"), "b", path_style=True, region="r"),
    ]
    shown = "".join(map(repr, signers))
    for sign in signers:
        sign("GET", "http://h/b/k", {})
    assert not any(word in shown + caplog.text for word in (secret, token))
