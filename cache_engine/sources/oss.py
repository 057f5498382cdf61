"""oss://BUCKET/PREFIX: names, listing, metadata and credentials by ossfs, bytes by `ranged`.

ossfs's own ls() and find() are not used: they answer a refused listing with an empty one, strip slashes from
keys, drop ETags, ask for the parent directory, and fail with the listing cache off. Its calls below those
(`_call_oss`: authentication, addressing, connection, translated errors) are.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import ParseError

from cache_engine import signing
from cache_engine.block import ObjectId
from cache_engine.errors import CacheEngineError, InvalidValue, SourceUnavailable, UnsupportedSource
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources import options as opt
from cache_engine.sources.bucket import Bucket, Place, endpoint_url, is_address, next_token, walk
from cache_engine.sources.per_process import PerProcess
from cache_engine.sources.ranged import RangedGet
from cache_engine.sources.requester import Requester
from cache_engine.sources.translation import from_status, retry_after
from cache_engine.sources.versions import version_of

_PASSED_ON = frozenset(("use_listings_cache", "listings_expiry_time", "max_paths"))
"""Options of ossfs that are accepted because people have them; no listing of ours comes from its cache."""
_OPTIONS = opt.TRANSPORT | _PASSED_ON | {"endpoint", "region", "addressing", "anonymous", "signature"}
_REGION_IN_HOST = re.compile(r"oss-([a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com")
_PAGE = 1000
"""Keys a page: the most that OSS gives; oss2 asks for 100 by itself."""


class OssSource:
    """A prefix of an OSS bucket."""

    def __init__(self, url: str, options: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        self.check(url, options)
        self._place = Place.parse(url, "oss")
        self._options = dict(options)
        self._credentials = dict(credentials)
        self._endpoint = _endpoint(options)
        self._anonymous = opt.flag(options, "anonymous") or "accessKeyId" not in credentials
        self._bucket = Bucket(self._place.bucket, self._endpoint, _path_style(options, self._endpoint))
        self.name = self._place.shown("oss", self._endpoint)
        self._filesystem = PerProcess(self._make_filesystem)
        self._ranged = PerProcess(self._make_ranged)

    @staticmethod
    def check(url: str, options: Mapping[str, str]) -> None:
        """Raises InvalidValue."""
        opt.only(options, _OPTIONS, "oss")
        Place.parse(url, "oss")
        opt.flag(options, "anonymous")
        opt.choice(options, "addressing", ("auto", "path", "virtual"))
        opt.timeouts(options)
        endpoint = _endpoint(options)
        if opt.choice(options, "signature", ("v1", "v4")) == "v4" and not _region(options, endpoint):
            raise InvalidValue("option signature: v4 needs the option region, such as cn-hangzhou")

    def __repr__(self) -> str:
        return f"<OssSource {self.name}{' anonymous' if self._anonymous else ''}>"

    def list(self) -> Iterator[Page]:
        return walk(self.page)

    def page(self, token: str | None) -> tuple[Page, str | None]:
        """One page of the listing and where the next one begins."""
        answer = self._call(
            "list_objects_v2", prefix=self._place.full(b""), continuation_token=token or "", max_keys=_PAGE
        )
        page = Page()
        for item in answer.object_list:
            if key := self._place.relative(item.key):
                page.add(key, Stat(item.size, f'etag:"{item.etag}"', item.last_modified * 1_000_000_000))
        return page, next_token(token, answer.is_truncated, answer.next_continuation_token)

    def stat(self, key: bytes) -> Stat:
        headers = self._call("head_object", self._place.object(key)).headers
        version, mtime_ns = version_of({name.lower(): value for name, value in headers.items()})
        return Stat(int(headers["content-length"]), version, mtime_ns)

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        url = self._bucket.key_url(self._place.prefix + obj.key)
        return self._ranged.get().open(url, obj, start, stop)

    def close(self) -> None:
        self._ranged.get().close()
        self._filesystem.forget()

    def _call(self, operation: str, *arguments: Any, **named: Any) -> Any:
        what = f"{operation} {self.name}"
        timeout = opt.timeouts(self._options).first_byte
        try:
            return self._filesystem.get()._call_oss(
                operation, *arguments, bucket=self._place.bucket, timeout=timeout, retry=1, **named
            )
        except OSError as error:  # ossfs's translations, and requests' own while a body is read
            failure = _from_ossfs(error, what)
        except (ParseError, RuntimeError, ValueError) as error:
            failure = SourceUnavailable(f"{what}: the answer is not what OSS sends: {type(error).__name__}: {error}")
        raise failure  # outside of the except: oss2's error quotes keys, tokens and what was signed

    def _make_filesystem(self) -> Any:
        from ossfs import OSSFileSystem

        auth, region = self._auth(), _region(self._options, self._endpoint)
        path_style = self._bucket.path_style

        class Oss(OSSFileSystem):  # type: ignore[misc]
            """ossfs with what its constructor cannot be told: V4 signatures, region, path style."""

            def connect_as_we_do(self, certificates: str | None) -> None:
                """requests would replace our signature by what a .netrc says of the host."""
                self._session.session.trust_env = False
                self._session.session.verify = certificates or True

            def _get_bucket(self, bucket_name: str, connect_timeout: float | None = None) -> Any:
                import oss2

                return oss2.Bucket(
                    auth or self._auth,
                    self._endpoint,
                    bucket_name,
                    session=self._session,
                    connect_timeout=connect_timeout,
                    app_name="forebay",
                    region=region,
                    is_path_style=path_style,
                )

        filesystem = Oss(
            endpoint=self._endpoint,
            key=None if self._anonymous else self._credentials["accessKeyId"],
            secret=self._credentials.get("secretAccessKey"),
            token=self._credentials.get("sessionToken"),
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        filesystem.connect_as_we_do(self._options.get("caFile"))
        return filesystem

    def _make_ranged(self) -> RangedGet:
        auth, region = self._auth(), _region(self._options, self._endpoint)
        signer: signing.Signer = signing.anonymous
        if auth is not None:
            signer = signing.oss(auth, self._bucket.name, path_style=self._bucket.path_style, region=region)
        requester = Requester(signer, timeouts=opt.timeouts(self._options), tls=opt.tls(self._options))
        return RangedGet(requester, {"x-oss-range-behavior": "standard"})

    def _auth(self) -> Any:
        if self._anonymous:
            return None
        given, version = self._credentials, self._options.get("signature", "v1")
        return signing.oss_auth(
            given["accessKeyId"], given.get("secretAccessKey", ""), given.get("sessionToken"), version
        )


def _endpoint(options: Mapping[str, str]) -> str:
    if "endpoint" in options:
        return endpoint_url(options["endpoint"])
    if "region" in options:
        return endpoint_url(f"oss-{options['region'].removeprefix('oss-')}.aliyuncs.com")
    raise InvalidValue("oss:// needs the option endpoint, such as https://oss-cn-hangzhou.aliyuncs.com, or region")


def _region(options: Mapping[str, str], endpoint: str) -> str:
    found = _REGION_IN_HOST.search(endpoint)
    return options.get("region", found[1] if found else "").removeprefix("oss-")


def _path_style(options: Mapping[str, str], endpoint: str) -> bool:
    style = opt.choice(options, "addressing", ("auto", "path", "virtual"))
    return is_address(endpoint) if style == "auto" else style == "path"


def _from_ossfs(error: OSError, what: str) -> CacheEngineError:
    """ossfs raises OSError(5) for nearly everything; what oss2 said is its cause."""
    said = error.__cause__
    status, code = getattr(said, "status", 0), str(getattr(said, "code", ""))
    if isinstance(status, int) and status > 0:
        wait = retry_after(getattr(said, "headers", {}).get("retry-after", ""), time.time())
        return from_status(status, what, code=code, retry_after=wait)
    reason = getattr(said, "exception", said) or error
    return SourceUnavailable(f"{what}: {type(reason).__name__} before a whole answer came")


def available() -> None:
    """Raises UnsupportedSource where the extra is not installed."""
    try:
        import oss2.auth  # noqa: F401
        import ossfs  # noqa: F401
    except ImportError as error:
        raise UnsupportedSource("oss:// needs the extra: pip install 'forebay[oss]'") from error
