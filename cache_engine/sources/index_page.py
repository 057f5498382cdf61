"""What a web server's index page, or a list of names, says lies below a URL. Pure.

Names come from a stranger: whatever leads out of the directory, up, to another host or to a query is dropped.
"""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs.extend(value for name, value in attrs if name == "href" and value)


def entries(page: str, url: str) -> tuple[list[bytes], int]:
    """The names directly below the directory `url` (ends in a slash), in order, once each; sub-directories end in /.

    Beside them how many links pointed below it and yet are no names (empty, `..`, a slash in disguise).
    """
    links = _Links()
    links.feed(page)
    base = urlsplit(url)
    found: dict[bytes, None] = {}
    left_out = 0
    for href in links.hrefs:
        try:
            target = urlsplit(urljoin(url, href.strip()))
        except ValueError:
            continue
        if (target.scheme, target.netloc) != (base.scheme, base.netloc) or target.query:
            continue  # Apache's ?C=N;O=D sorts the same page
        if target.path == base.path or not target.path.startswith(base.path):
            continue  # the page itself, its parent, another place
        if name := _name(target.path[len(base.path) :]):
            found[name] = None
        else:
            left_out += 1
    return list(found), left_out


def names(text: bytes) -> list[bytes]:
    """The lines of a manifest: paths relative to the mount, one a line, not encoded. Empty lines do not count.

    Raises ValueError, with the line, for a path that would leave the mount.
    """
    keys = []
    for line in text.split(b"\n"):
        key = line.removesuffix(b"\r")
        if not key:
            continue
        if not is_inside(key):
            raise ValueError(f"{key[:200]!r} is not a path below the mount")
        keys.append(key)
    return keys


def is_inside(key: bytes) -> bool:
    """Whether a key stays below its directory however a server may normalise it, and is a file's name."""
    return b"\0" not in key and not any(part in (b"", b".", b"..") for part in key.split(b"/"))


def encode(key: bytes) -> str:
    """The one encoder for the wire."""
    return quote(key, safe="/~")


def _name(raw: str) -> bytes:
    directory = raw.endswith("/")
    name = unquote_to_bytes(raw[:-1] if directory else raw)
    if b"/" in name or not is_inside(name):
        return b""
    return name + b"/" if directory else name
