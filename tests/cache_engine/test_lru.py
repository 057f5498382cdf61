from cache_engine.policies.lru import Lru


def filled(names, near=False):
    lru = Lru()
    for name in names:
        lru.add((name, 0), near=near)
    return lru


def order(lru):
    return "".join(name for name, _ in lru.victims())


def test_the_longest_unused_leaves_first():
    lru = filled("abcd")
    lru.touch(("a", 0))
    lru.touch(("c", 0))
    assert order(lru) == "bdac"


def test_adding_again_is_a_use():
    lru = filled("abc")
    lru.add(("a", 0), near=False)
    assert order(lru) == "bca"


def test_near_copies_are_ordered_among_themselves():
    lru = filled("abc", near=True)
    lru.add(("x", 0), near=False)
    lru.touch(("a", 0))
    assert order(lru) == "bcax"
