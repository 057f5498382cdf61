"""oss://BUCKET/PREFIX: names, listing, metadata and credentials by ossfs, bytes by `ranged`.

ossfs's own ls() and find() are not used: they answer a refused listing with an empty one, strip slashes from
keys, drop ETags, ask for the parent directory, and fail with the listing cache off. Its calls below those
(`_call_oss`: authentication, addressing, connection, translated errors) are. The XML of a listing's page alone is
read by `listing_page`, and ranged GETs are signed by `signing`, with oss2's credentials: for what the two cost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from cache_engine import signing, signing_v4
from cache_engine.block import ObjectId
from cache_engine.errors import CacheEngineError, InvalidValue, SourceUnavailable, UnsupportedSource
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources import listing_page
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
        self._v4 = options.get("signature") == "v4"
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
        found = listing_page.parse(answer, self._place, what=f"list {self.name}", plus_is_blank=False)
        following = unquote(found.token) if found.encoded and found.token else found.token
        return found.page, next_token(token, found.truncated, following)

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
        except (RuntimeError, ValueError) as error:
            failure = SourceUnavailable(f"{what}: the answer is not what OSS sends: {type(error).__name__}: {error}")
        raise failure  # outside of the except: oss2's error quotes keys, tokens and what was signed

    def _make_filesystem(self) -> Any:
        kind = _filesystem_type(self._auth(), _region(self._options, self._endpoint), self._bucket.path_style)
        filesystem = kind(
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
        requester = Requester(self._signer(), timeouts=opt.timeouts(self._options), tls=opt.tls(self._options))
        return RangedGet(requester, {"x-oss-range-behavior": "standard"})

    def _signer(self) -> signing.Signer:
        if self._anonymous:
            return signing.anonymous
        name, path_style = self._bucket.name, self._bucket.path_style
        if self._v4:
            region = _region(self._options, self._endpoint)
            return signing_v4.oss(self._pair(), name, region, path_style=path_style)
        return signing.oss_v1(self._pair(), name, path_style=path_style)

    def _auth(self) -> Any:
        return None if self._anonymous else signing.oss_auth(self._pair(), "v4" if self._v4 else "v1")

    def _pair(self) -> signing.OssCredentials:
        given = self._credentials
        return signing.oss_credentials(
            given["accessKeyId"], given.get("secretAccessKey", ""), given.get("sessionToken")
        )


def _filesystem_type(auth: Any, region: str, path_style: bool) -> Any:
    """ossfs with what its constructor cannot be told, and with listings as they came."""
    import oss2
    from oss2.models import ListObjectsV2Result
    from ossfs import OSSFileSystem

    class Listed(oss2.Bucket):  # type: ignore[misc]
        """oss2's bucket that gives a listing's page as it came."""

        @staticmethod
        def _parse_result(resp: Any, parse_func: Any, klass: Any) -> Any:
            if klass is ListObjectsV2Result:
                return resp.read()
            return oss2.Bucket._parse_result(resp, parse_func, klass)

    class Oss(OSSFileSystem):  # type: ignore[misc]
        """V4 signatures, region, path style."""

        def connect_as_we_do(self, certificates: str | None) -> None:
            """requests would replace our signature by what a .netrc says of the host."""
            self._session.session.trust_env = False
            self._session.session.verify = certificates or True

        def _get_bucket(self, bucket_name: str, connect_timeout: float | None = None) -> Any:
            return Listed(
                auth or self._auth,
                self._endpoint,
                bucket_name,
                session=self._session,
                connect_timeout=connect_timeout,
                app_name="forebay",
                region=region,
                is_path_style=path_style,
            )

    return Oss


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
