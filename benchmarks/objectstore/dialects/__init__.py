"""The dialects by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.objectstore.dialect import Dialect, DialectConfig
from benchmarks.objectstore.dialects.http import Http
from benchmarks.objectstore.dialects.oss import Oss
from benchmarks.objectstore.dialects.s3 import S3

DIALECTS: Mapping[str, Callable[[DialectConfig], Dialect]] = {"http": Http, "s3": S3, "oss": Oss}
