from __future__ import annotations

import pytest

from tests.contracts.places import Place, place


@pytest.fixture(params=["s3", "oss", "oss-v4"])
def bucket(request, tmp_path) -> Place:
    """A prefix of a bucket, in each dialect."""
    with place(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=["http", "s3", "oss"])
def remote(request, tmp_path) -> Place:
    """Whatever is read with ranged GETs."""
    with place(request.param, tmp_path) as made:
        yield made
