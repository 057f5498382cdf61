"""The command over a fresh state directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dataset_controller.forebay import Forebay


@pytest.fixture
def forebay(tmp_path: Path) -> Iterator[Forebay]:
    """Nothing runs yet; whatever the test starts is stopped after it."""
    forebay = Forebay(tmp_path / "home")
    yield forebay
    forebay.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forebay]:
    """One controller with two workers for all tests of a module that leave no Dataset behind."""
    forebay = Forebay(tmp_path_factory.mktemp("running") / "home")
    forebay.run("up", "--detach", "--workers", "2", "--node", "left", "--node", "right")
    yield forebay
    forebay.close()
