"""What every policy on the shelf promises its tier."""

import pytest

from cache_engine.policies import POLICIES


@pytest.fixture(params=sorted(POLICIES))
def policy(request):
    return POLICIES[request.param]()


def keys(count, piece=0):
    return [(f"{number:032x}", piece) for number in range(count)]


def test_every_key_is_a_candidate_exactly_once(policy):
    for number, key in enumerate(keys(20)):
        policy.add(key, near=number % 3 == 0)
    assert sorted(policy.victims()) == keys(20)
    assert len(policy) == 20


def test_near_copies_leave_first(policy):
    owned, near = keys(5), keys(5, piece=1)
    for pair in zip(near, owned, strict=True):
        policy.add(pair[0], near=True)
        policy.add(pair[1], near=False)
    for key in near:
        policy.touch(key)
    assert set(list(policy.victims())[:5]) == set(near)


def test_a_near_copy_that_becomes_owned_is_one_key(policy):
    first, second = keys(2)
    policy.add(first, near=True)
    policy.add(second, near=True)
    policy.add(first, near=False)
    assert list(policy.victims()) == [second, first]


def test_the_pieces_of_a_cell_are_keys_of_their_own(policy):
    name = keys(1)[0][0]
    for piece in range(3):
        policy.add((name, piece), near=False)
    policy.remove((name, 1))
    assert sorted(policy.victims()) == [(name, 0), (name, 2)]
    assert (name, 1) not in policy
    assert (name, 0) in policy


def test_unknown_keys_are_nobodys_error(policy):
    policy.touch(("f" * 32, 3))
    policy.remove(("f" * 32, 3))
    assert list(policy.victims()) == []
