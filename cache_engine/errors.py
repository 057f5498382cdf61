"""What can go wrong on the ground floor, in the domain's words.

One family. `retryable` says whether the same call may succeed later without anybody changing anything;
`exit_code` is what the command line returns for it. Errors of HTTP clients, of object-store libraries and
of the operating system are translated into these once, where they enter, with the cause chained.
Where Python has a word for the state (FileNotFoundError...), the class is that too, so that callers who
know nothing of Forebay still understand it.
"""

from __future__ import annotations


class CacheEngineError(Exception):
    """Something on the data path failed."""

    retryable = False
    exit_code = 1


class InvalidValue(CacheEngineError, ValueError):
    """A value that a person or a file gave is not of the allowed form."""

    exit_code = 2


class NotFound(CacheEngineError, FileNotFoundError):
    """No object, path, Dataset or snapshot of that name."""

    exit_code = 3


class AccessDenied(CacheEngineError, PermissionError):
    """The source (or a worker) refuses these credentials."""

    exit_code = 4


class MissingCredential(AccessDenied):
    """A credential reference cannot be resolved here."""


class ObjectChanged(CacheEngineError):
    """The source no longer has the version that the snapshot names."""

    exit_code = 5


class SourceUnavailable(CacheEngineError, OSError):
    """The source does not answer, or answers with a passing fault (time-out, reset, 5xx, short body)."""

    retryable = True
    exit_code = 6


class SourceThrottled(SourceUnavailable):
    """The source asks for fewer requests (429, 503). `retry_after` in seconds, None where it did not say."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnsupportedSource(CacheEngineError):
    """The source cannot do what is needed (no ranges, no listing, an extra that is not installed)."""

    exit_code = 7


class WorkerUnavailable(CacheEngineError, OSError):
    """A cache worker does not answer or refuses work; the next owner or the source is asked instead."""

    retryable = True
    exit_code = 8


class ControllerUnavailable(CacheEngineError, OSError):
    """No controller answers where this process looked for one."""

    retryable = True
    exit_code = 9


class CorruptBlock(CacheEngineError):
    """Bytes without the CRC that vouches for them. Never handed to a caller: dropped, counted, fetched anew."""

    retryable = True
    exit_code = 10


class ReadOnlyDataset(CacheEngineError, OSError):
    """Somebody tried to change a Dataset. `errno` is EROFS."""

    exit_code = 12
