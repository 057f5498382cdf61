from array import array

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_engine.block import BLOCK, ObjectId, block_count
from cache_engine.voucher import Voucher, decode, encode, length_of, single_crc

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def vouchers(draw):
    size = draw(st.integers(0, 40 * BLOCK))
    obj = ObjectId(draw(TEXT), draw(st.binary(max_size=60)), draw(TEXT), size)
    blocks = block_count(size)
    present = bytes(draw(st.lists(st.integers(0, 1), min_size=blocks, max_size=blocks)))
    crcs = array("I", [draw(st.integers(0, 2**32 - 1)) if flag else 0 for flag in present])
    return Voucher(obj, present, crcs, draw(st.dictionaries(TEXT, st.booleans(), max_size=4)))


def voucher(size=1000, key=b"a/b", labels=None, crc=7):
    blocks = block_count(size)
    obj = ObjectId("s3://bucket", key, 'etag:"x"', size)
    return Voucher(obj, b"\1" * blocks, array("I", [crc] * blocks), labels or {"uid": False})


def written(voucher):
    return encode(voucher, voucher.obj.cell_name)


def signed_anew(raw):
    return raw[:-4] + crc32c(raw[:-4]).to_bytes(4, "little")


@given(vouchers())
@settings(max_examples=150, deadline=None)
def test_what_was_encoded_is_decoded(original):
    raw = written(original)
    assert decode(raw, original.obj.cell_name) == original
    assert len(raw) <= length_of(original.obj, original.labels)


def test_a_full_voucher_takes_exactly_the_foreseen_length():
    full = voucher(size=9 * BLOCK, labels={"one": True, "two": False})
    assert len(written(full)) == length_of(full.obj, full.labels)


@pytest.mark.case("B11")
def test_any_flipped_bit_makes_it_vouch_for_nothing():
    original = voucher(size=3 * BLOCK)
    raw = written(original)
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(damaged), original.obj.cell_name) is None


def test_any_cut_or_longer_voucher_vouches_for_nothing():
    original = voucher()
    raw = written(original)
    assert all(decode(raw[:length], original.obj.cell_name) is None for length in range(len(raw)))
    assert decode(raw + b"\0", original.obj.cell_name) is None


def test_a_whole_voucher_under_another_name_vouches_for_nothing():
    assert decode(written(voucher()), voucher(key=b"other").obj.cell_name) is None


def test_another_format_version_is_not_cached_and_no_error():
    original = voucher()
    raw = bytearray(written(original))
    raw[4] += 1
    assert decode(signed_anew(bytes(raw)), original.obj.cell_name) is None


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_no_bytes_under_a_right_sum_are_an_error(tail):
    """Whoever can sum can also lie: the body is taken apart with care all the same."""
    original = voucher()
    raw = written(original)
    head = bytearray(raw[:44] + tail + b"\0\0\0\0")
    head[8:12] = len(head).to_bytes(4, "little")
    found = decode(signed_anew(bytes(head)), original.obj.cell_name)
    assert found is None or found.obj == original.obj


def test_a_size_that_no_bitmap_could_carry_is_refused_at_once():
    original = voucher()
    raw = bytearray(written(original))
    raw[12:20] = (2**63).to_bytes(8, "little")
    assert decode(signed_anew(bytes(raw)), original.obj.cell_name) is None


def test_the_short_way_gives_the_crc_of_the_only_block():
    one = voucher(size=1000, crc=0xDEADBEEF)
    digest = bytes.fromhex(one.obj.cell_name)
    assert single_crc(written(one), digest, 1000) == 0xDEADBEEF
    assert single_crc(written(one), digest, 1001) is None
    assert single_crc(written(one)[:-1], digest, 1000) is None
    assert single_crc(written(one), bytes(16), 1000) is None
    assert single_crc(b"", digest, 1000) is None


def test_the_short_way_refuses_what_is_absent_or_larger():
    two = voucher(size=BLOCK + 1)
    assert single_crc(written(two), bytes.fromhex(two.obj.cell_name), BLOCK + 1) is None
    none = Voucher(voucher().obj, b"\0", array("I", [0]), {})
    assert single_crc(written(none), bytes.fromhex(none.obj.cell_name), 1000) is None


def test_a_version_that_is_not_unicode_survives():
    obj = ObjectId("file:///x", b"k", b"etag:\xff".decode("utf-8", "surrogateescape"), 5)
    original = Voucher(obj, b"\1", array("I", [1]), {})
    assert decode(written(original), obj.cell_name) == original
