import os

import pytest

from cache_engine import ofd
from tests.cache_engine.tier_kit import child, line_of

HOLD = """
import os, sys
from cache_engine import ofd
fd = os.open(sys.argv[1], os.O_RDONLY)
print(ofd.try_shared(fd) if sys.argv[2] == "lock" else "open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def fd(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def path_of(fd):
    return os.readlink(f"/proc/self/fd/{fd}")


def test_a_shared_lock_of_another_process_keeps_the_exclusive_one_out_until_it_is_killed(fd):
    with child(HOLD, path_of(fd), "lock") as holder:
        assert line_of(holder) == "True"
        assert not ofd.try_exclusive(fd)
        assert not ofd.try_exclusive(fd, 5000, 10)
        holder.kill()
        holder.wait()
        assert ofd.try_exclusive(fd)


def test_exclusive_locks_of_ranges_do_not_meet(fd):
    other = os.open(path_of(fd), os.O_RDWR)
    assert ofd.try_exclusive(fd, 0, 4096)
    assert ofd.try_exclusive(other, 4096, 4096)
    assert not ofd.try_exclusive(other, 4095, 1)
    assert not ofd.try_shared(other)
    ofd.unlock(fd, 0, 4096)
    assert ofd.try_shared(other)
    os.close(other)


def test_closing_another_descriptor_of_the_file_keeps_the_lock(fd):
    assert ofd.try_exclusive(fd)
    os.close(os.open(path_of(fd), os.O_RDONLY))
    other = os.open(path_of(fd), os.O_RDWR)
    assert not ofd.try_exclusive(other)
    os.close(other)


def test_a_nameless_file_that_somebody_has_open_without_a_lock_is_noticed(fd):
    with child(HOLD, path_of(fd), "open") as holder:
        assert line_of(holder) == "open"
        os.unlink(path_of(fd))
        assert ofd.open_elsewhere(fd)
        holder.kill()
        holder.wait()
        assert not ofd.open_elsewhere(fd)
