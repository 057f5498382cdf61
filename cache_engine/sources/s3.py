"""s3://BUCKET/PREFIX: names, listing, metadata and credentials by botocore (what s3fs stands on), bytes by `ranged`.

botocore rather than s3fs itself: s3fs lists through a cache, drops trailing slashes of keys and needs an event
loop that does not survive a fork. Both read the same environment and profiles. Two steps inside botocore are ours
because of what they cost: the XML of a listing's page (`listing_page`; requests, signatures, endpoints and errors
of listings stay botocore's), and the signatures of ranged GETs (`signing_v4`, with botocore's credentials).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from cache_engine import signing, signing_v4
from cache_engine.block import ObjectId
from cache_engine.errors import CacheEngineError, MissingCredential, SourceUnavailable, UnsupportedSource
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources import listing_page
from cache_engine.sources import options as opt
from cache_engine.sources.bucket import Bucket, Place, endpoint_url, next_token, walk
from cache_engine.sources.per_process import PerProcess
from cache_engine.sources.ranged import RangedGet
from cache_engine.sources.requester import Requester
from cache_engine.sources.translation import from_status, retry_after
from cache_engine.sources.versions import version_of

_OPTIONS = opt.TRANSPORT | {"endpoint", "region", "addressing", "anonymous", "profile"}
_CLIENT_CONNECTIONS = 16
"""Listing and metadata only; bytes do not go through botocore."""


class _Asked:
    """botocore's credentials with their errors in our words; they may be fetched anew while they are asked.

    A failure to fetch is a passing one: metadata services have bad minutes, and the read is tried again.
    """

    def __init__(self, credentials: signing.Credentials, name: str) -> None:
        self._credentials = credentials
        self._name = name

    def get_frozen_credentials(self) -> Any:
        from botocore.exceptions import BotoCoreError

        try:
            return self._credentials.get_frozen_credentials()
        except (BotoCoreError, RuntimeError) as error:  # RuntimeError: what was fetched has expired as well
            kind = type(error).__name__
        raise SourceUnavailable(f"{self._name}: its credentials have expired and no new ones could be fetched: {kind}")


class S3Source:
    """A prefix of an S3 bucket."""

    def __init__(self, url: str, options: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        self.check(url, options)
        self._place = Place.parse(url, "s3")
        self._options = dict(options)
        self._credentials = dict(credentials)
        self._endpoint = endpoint_url(options["endpoint"]) if "endpoint" in options else None
        self._anonymous = opt.flag(options, "anonymous")
        self.name = self._place.shown("s3", self._endpoint or "")
        self._session = PerProcess(self._make_session)
        self._client = PerProcess(self._make_client)
        self._ranged = PerProcess(self._make_ranged)

    @staticmethod
    def check(url: str, options: Mapping[str, str]) -> None:
        """Raises InvalidValue."""
        opt.only(options, _OPTIONS, "s3")
        Place.parse(url, "s3")
        opt.flag(options, "anonymous")
        opt.choice(options, "addressing", ("auto", "path", "virtual"))
        opt.timeouts(options)
        if "endpoint" in options:
            endpoint_url(options["endpoint"])

    def __repr__(self) -> str:
        return f"<S3Source {self.name}{' anonymous' if self._anonymous else ''}>"

    def list(self) -> Iterator[Page]:
        return walk(self.page)

    def page(self, token: str | None) -> tuple[Page, str | None]:
        """One page of the listing and where the next one begins."""
        more = {"ContinuationToken": token} if token else {}
        prefix = self._place.full(b"")
        answer = self._call("list_objects_v2", Prefix=prefix, **more)
        found = listing_page.parse(answer["Body"], self._place, what=f"list {self.name}", plus_is_blank=True)
        return found.page, next_token(token, found.truncated, found.token)

    def stat(self, key: bytes) -> Stat:
        answer = self._call("head_object", Key=self._place.object(key))
        version, mtime_ns = version_of(answer["ResponseMetadata"]["HTTPHeaders"])
        return Stat(int(answer["ContentLength"]), version, mtime_ns)

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        ranged, bucket = self._ranged.get()
        return ranged.open(bucket.key_url(self._place.prefix + obj.key), obj, start, stop)

    def close(self) -> None:
        self._ranged.get()[0].close()
        self._client.forget()

    def _call(self, operation: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
        from botocore.parsers import ResponseParserError

        what = f"{operation} {self.name}"
        try:
            return getattr(self._client.get(), operation)(Bucket=self._place.bucket, **arguments)
        except NoCredentialsError as error:
            raise _no_credentials(what) from error
        except ClientError as error:
            failure = _from_answer(error.response, what)
        except (BotoCoreError, ResponseParserError, RuntimeError) as error:  # RuntimeError: see _Asked
            raise SourceUnavailable(f"{what}: {type(error).__name__}: {error}") from error
        raise failure  # outside of the except: the vendor's error may quote tokens

    def _make_client(self) -> Any:
        from botocore import UNSIGNED
        from botocore.config import Config

        usual = opt.timeouts(self._options)
        config = Config(
            signature_version=UNSIGNED if self._anonymous else "s3v4",
            s3={"addressing_style": "path" if self._path_style() else "virtual"},
            retries={"total_max_attempts": 1},  # ours is the only retry: two would multiply
            connect_timeout=usual.connect,
            read_timeout=usual.first_byte,
            max_pool_connections=_CLIENT_CONNECTIONS,
        )
        session = self._session.get()
        client = session.create_client(
            "s3",
            region_name=self._region(session),
            endpoint_url=self._endpoint,
            verify=self._options.get("caFile"),
            config=config,
        )
        client.meta.events.register("before-parse.s3.ListObjectsV2", _keep_body)
        return client

    def _make_session(self) -> Any:
        import botocore.session
        from botocore.exceptions import BotoCoreError

        session = botocore.session.Session(profile=self._options.get("profile"))
        # times stay text: the usual parser costs 60 us each, and a stat whose Last-Modified is broken would fail
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
        if "accessKeyId" in self._credentials:
            given = self._credentials
            session.set_credentials(given["accessKeyId"], given.get("secretAccessKey", ""), given.get("sessionToken"))
        try:
            if not self._anonymous and session.get_credentials() is None:
                raise _no_credentials(self.name)
        except BotoCoreError as error:
            raise MissingCredential(f"{self.name}: {error}") from error
        return session

    def _make_ranged(self) -> tuple[RangedGet, Bucket]:
        endpoint = self._endpoint or endpoint_url(self._client.get().meta.endpoint_url)
        bucket = Bucket(self._place.bucket, endpoint, self._path_style())
        signer: signing.Signer = signing.anonymous
        if not self._anonymous:
            session = self._session.get()
            signer = signing_v4.s3(_Asked(session.get_credentials(), self.name), self._region(session))
        requester = Requester(signer, timeouts=opt.timeouts(self._options), tls=opt.tls(self._options))
        return RangedGet(requester), bucket

    def _region(self, session: Any) -> str:
        return self._options.get("region") or session.get_config_variable("region") or "us-east-1"

    def _path_style(self) -> bool:
        """Amazon wants virtual hosts; others mostly have no wildcard name, and a dot breaks the certificate."""
        style = opt.choice(self._options, "addressing", ("auto", "path", "virtual"))
        if style == "auto":
            return self._endpoint is not None or "." in self._place.bucket
        return style == "path"


def _from_answer(answer: Mapping[str, Any], what: str) -> CacheEngineError:
    meta = answer.get("ResponseMetadata", {})
    headers = meta.get("HTTPHeaders", {})
    code = str(answer.get("Error", {}).get("Code", ""))
    region = headers.get("x-amz-bucket-region", "")
    hint = f"; the bucket is in region {region!r}: set the option region" if region else ""
    wait = retry_after(headers.get("retry-after", ""), datetime.now().timestamp())
    return from_status(
        int(meta.get("HTTPStatusCode", 0)), what, code="" if code.isdigit() else code, retry_after=wait, hint=hint
    )


def _no_credentials(what: str) -> MissingCredential:
    return MissingCredential(f"{what}: no credentials; give accessKeyId and secretAccessKey, or option anonymous: true")


def _keep_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """A handler of botocore's: the answer is to hold a listing's page as it came, and nothing is parsed there."""
    if response_dict["status_code"] == 200:
        customized_response_dict["Body"] = response_dict["body"]
        response_dict["body"] = b""


def available() -> None:
    """Raises UnsupportedSource where the extra is not installed."""
    try:
        import botocore.session  # noqa: F401
    except ImportError as error:
        raise UnsupportedSource("s3:// needs the extra: pip install 'forebay[s3]'") from error
