"""Include and exclude patterns over paths relative to a mount, in the way of a shell with `**`.

    *      any characters but a slash      [ab] [a-z] [!a]   one character (not) of the set, never a slash
    ?      one character but a slash       **                any number of whole segments (alone between slashes)

A pattern is for the whole path: `*.py` means the root only, `**/*.py` any depth, `images/` and `images/**` all that
is below. Paths are bytes, read as UTF-8; `?` is one character, or one byte where they are not UTF-8. There is no
escape character: `[*]` is a star. Patterns come from people, paths from anywhere, so matching must not blow up:
every star but the last of a segment, and every `**` but the last, stands in an atomic group, which is enough
because its first match leaves most to what follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cache_engine.errors import InvalidValue

GLOB_LIMIT = 1024
"""Characters in one pattern."""
Match = Callable[[bytes], bool]

_TOKEN = re.compile(r"(\*)|(\?)|\[(!?)(\]?[^\]/]*)\]|([^*?\[])", re.DOTALL)


def compile_globs(include: Sequence[str], exclude: Sequence[str]) -> Match | None:
    """Which paths a mount takes: those that any `include` matches (all if there is none), less any `exclude`.

    None if that is every path. Raises InvalidValue for a pattern that cannot be right, saying why.
    """
    wanted, unwanted = _any(include), _any(exclude)
    if wanted is None and unwanted is None:
        return None

    def match(path: bytes) -> bool:
        text = path.decode("utf-8", "surrogateescape")
        return not (wanted and not wanted.match(text)) and not (unwanted and unwanted.match(text))

    return match


def regex_of(glob: str) -> str:
    """The pattern as a regular expression for the whole of a path. Raises InvalidValue."""
    if not isinstance(glob, str) or not glob or len(glob) > GLOB_LIMIT:
        raise _wrong(glob, f"it must be a text of 1 to {GLOB_LIMIT} characters")
    segments = (f"{glob}**" if glob.endswith("/") else glob).split("/")
    if segments[0] == "":
        raise _wrong(glob, "paths are relative to the mount, so no slash stands first")
    for segment in segments:
        if segment in (".", ".."):
            raise _wrong(glob, f"no path has a segment {segment!r}; leave it out")
        if "**" in segment and segment != "**":
            raise _wrong(glob, "** must stand alone between slashes")
    return _join([segment for at, segment in enumerate(segments) if segments[at - 1 : at + 1] != ["**", "**"]], glob)


def _any(globs: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{regex_of(glob)})" for glob in globs), re.DOTALL) if globs else None


def _join(segments: list[str], glob: str) -> str:
    """Groups of segments between the `**`: each where it first fits, the last one at the end of the path."""
    groups: list[list[str]] = [[]]
    for segment in segments:
        if segment == "**":
            groups.append([])
        else:
            groups[-1].append(_segment(segment, glob))
    if len(groups) == 1:
        return "/".join(groups[0]) + r"\Z"
    first, *middle, last = groups
    regex = "".join(f"{segment}/" for segment in first)
    for group in middle:
        regex += "(?>(?:[^/]*/)*?" + "".join(f"{segment}/" for segment in group) + ")"
    return regex + (f"(?:[^/]*/)*{'/'.join(last)}" if last else ".*") + r"\Z"


def _segment(segment: str, glob: str) -> str:
    """One segment, whole."""
    parts = [""]
    at = 0
    while at < len(segment):
        token = _TOKEN.match(segment, at)
        if token is None:
            raise _wrong(glob, "a [ has no ] in the same segment; write [[] for the character")
        at = token.end()
        if token[1]:
            parts.append("")
        else:
            parts[-1] += "[^/]" if token[2] else re.escape(token[5]) if token[5] else _set(token[3], token[4], glob)
    if len(parts) == 1:
        return parts[0]
    return parts[0] + "".join(f"(?>[^/]*?{part})" for part in parts[1:-1]) + f"[^/]*{parts[-1]}"


def _set(negated: str, members: str, glob: str) -> str:
    if not members:
        raise _wrong(glob, "the set [] is empty")
    pieces = ""
    for low, high, single in re.findall("(.)-(.)|(.)", members, re.DOTALL):
        if low > high:
            raise _wrong(glob, f"the range {low}-{high} runs backwards")
        pieces += re.escape(single) if single else f"{re.escape(low)}-{re.escape(high)}"
    return f"(?!/)[{'^' if negated else ''}{pieces}]"


def _wrong(glob: object, why: str) -> InvalidValue:
    return InvalidValue(f"{glob!r} is not a pattern for paths: {why}")
