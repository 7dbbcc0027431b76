"""Lanes that meet in a bank: hand-counted cases, and the layouts of the rungs."""

import numpy as np
import pytest

from numba_gemm import LADDER, Tile
from numba_gemm.model import banks
from numba_gemm.model.banks import Access

LANES = np.arange(32)
BLOCK = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
WARPS = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=64, WN=32)
WIDE = Tile(BM=128, BN=256, BK=8, TM=8, TN=16, WM=64, WN=64, stages=2)


@pytest.mark.parametrize(
    ("addresses", "width", "store", "wavefronts", "degree"),
    [
        # Four bytes a lane: one phase.
        (np.zeros(32), 4, False, 1, 1),
        (4 * LANES, 4, False, 1, 1),
        (4 * LANES[::-1], 4, True, 1, 1),
        (8 * LANES, 4, False, 2, 2),
        (12 * LANES, 4, False, 1, 1),
        (128 * LANES, 4, False, 32, 32),
        (132 * LANES, 4, False, 1, 1),
        (512 * LANES, 4, True, 32, 32),
        (528 * LANES, 4, True, 4, 4),
        # Eight: two phases, or one where lanes want the same in pairs.
        (8 * LANES, 8, False, 2, 1),
        (8 * (LANES // 2), 8, False, 1, 1),
        (8 * (LANES // 2), 8, True, 2, 1),
        # Sixteen: four phases, or two.
        (16 * LANES, 16, False, 4, 1),
        (16 * LANES, 16, True, 4, 1),
        (32 * LANES, 16, False, 8, 2),
        (np.zeros(32), 16, False, 2, 1),
        (np.zeros(32), 16, True, 4, 1),
        (16 * (LANES // 2), 16, False, 2, 1),
        (16 * (LANES % 2), 16, False, 2, 1),
        (16 * (LANES % 4), 16, False, 4, 1),
        (128 * (LANES // 4), 16, False, 8, 4),
    ],
)
def test_hand_counted(addresses, width, store, wavefronts, degree):
    """Strides, broadcasts and pairs, at each width."""
    access = Access(addresses, width, store)
    assert (access.wavefronts, access.degree) == (wavefronts, degree)


def test_a_stride_of_132_floats_is_conflict_free_for_neighbours():
    """Padding from 128 floats to 132 puts each row four banks on: eight rows of four floats fit."""
    rows = np.repeat(np.arange(8), 4)
    cols = np.tile(np.arange(4), 8)
    assert Access(4 * (128 * rows + cols)).degree == 8
    assert Access(4 * (132 * rows + cols)).degree == 1


def test_lanes_that_do_not_take_part():
    """They want nothing and conflict with nobody."""
    addresses = np.where(LANES < 3, 128 * LANES, -1)
    assert Access(addresses).wavefronts == 3
    assert Access(np.array([-1, -1])).wavefronts == 0
    assert Access(np.array([0, 128])).wavefronts == 2


def test_every_word_is_counted_once():
    """However many lanes want it; the counts show in which bank."""
    words = Access(np.array([0, 4, 0, 128, 128])).words
    assert words.shape == (1, 32)
    assert words[0].tolist() == [2, 1] + 30 * [0]


@pytest.mark.parametrize(
    ("addresses", "width", "message"),
    [
        (LANES, 4, "address 1 should be a multiple of 4"),
        (8 * LANES, 16, "address 8 should be a multiple of 16"),
        (4 * LANES, 2, "width is 2; it should be 4, 8 or 16 bytes"),
        (np.zeros(33), 4, r"addresses is of shape \(33,\)"),
        (np.zeros(0), 4, r"addresses is of shape \(0,\)"),
    ],
)
def test_bad_requests_are_refused(addresses, width, message):
    """What no warp can ask for."""
    with pytest.raises(ValueError, match=message):
        Access(addresses, width)


# The layouts ---------------------------------------------------------------------------------------


def wavefronts(name, tile, **options):
    """What each access of a layout takes: store A, store B, read A, read B."""
    return [access.wavefronts for access in banks.layout(name, tile, **options)]


@pytest.mark.parametrize(
    ("name", "tile", "expected"),
    [
        ("unpadded", BLOCK, [2, 4, 2, 8]),
        ("unpadded", WARPS, [2, 4, 2, 4]),
        ("padded", WARPS, [1, 4, 2, 4]),
        ("linearized", BLOCK, [2, 2, 2, 1]),
        ("split", WARPS, [1, 4, 2, 4]),
        ("asynchronous", WIDE, [1, 4, 2, 4]),
    ],
)
def test_layouts(name, tile, expected):
    """Counted by hand from the kernels' own subscripts."""
    assert wavefronts(name, tile) == expected


def test_padding_is_what_makes_the_difference():
    """As in the docstrings of padded and async_copy."""
    assert wavefronts("split", WARPS, padding=0)[0] == 2
    assert wavefronts("asynchronous", WIDE, padding=0)[0] == 4
    assert wavefronts("asynchronous", WIDE, padding=4)[0] == 2


@pytest.mark.parametrize("BK", [8, 16, 32])
def test_padding_cures_the_store_at_every_depth(BK):
    """A warp stores from 16 rows, two fours of each, however many there are."""
    tile = Tile(128, 128, BK, 8, 8, 64, 32)
    for warp in range(8):
        assert banks.store_a(tile, warp=warp).wavefronts == 2
        assert banks.store_a(tile, 4, warp=warp).wavefronts == 1


def test_linearized_reads_never_conflict():
    """Whichever column of its tile a thread reads, and whichever warp."""
    for warp in range(8):
        for j in range(8):
            assert banks.read_b_linearized(BLOCK, warp=warp, j=j).wavefronts == 1


def test_an_unknown_layout():
    """The message has those that there are."""
    with pytest.raises(ValueError, match="no layout 'swizzled'; there are unpadded, padded"):
        banks.layout("swizzled", BLOCK)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("tile", [BLOCK, WARPS, WIDE])
def test_a_block_reads_every_entry(tile, split):
    """For one k, the reads of all warps together are a row of As and a row of Bs, no more."""
    warps = range(tile.threads // 32)
    a = [banks.read_a(tile, split=split, warp=w, i=i) for w in warps for i in range(0, tile.TM, 4)]
    b = [banks.read_b(tile, split=split, warp=w, j=j) for w in warps for j in range(0, tile.TN, 4)]
    assert set(np.concatenate([x.addresses for x in a])) == set(range(0, 4 * tile.BM, 16))
    assert set(np.concatenate([x.addresses for x in b])) == set(range(0, 4 * tile.BN, 16))


def test_a_block_stores_every_entry_once():
    """The first of the stores of all warps; four k of a thread, or four rounds, are the others."""
    stores = [banks.store_a(WARPS, warp=warp) for warp in range(8)]
    addresses = np.concatenate([x.addresses for x in stores])
    assert sorted(addresses) == [4 * (128 * k + row) for k in (0, 4) for row in range(128)]
    stores = [banks.store_a(WIDE, 8, 4, warp=warp) for warp in range(8)]
    addresses = np.concatenate([x.addresses for x in stores])
    assert sorted(addresses) == [4 * (136 * k + row) for k in range(4) for row in range(64)]
    stores = [banks.store_b(WARPS, warp=warp) for warp in range(8)]
    assert sorted(np.concatenate([x.addresses for x in stores])) == list(range(0, 4 * 8 * 128, 16))
    stores = [banks.store_b_linearized(BLOCK, warp=warp) for warp in range(8)]
    addresses = {address for x in stores for address in x.addresses}
    assert len(addresses) == 256


def test_the_rungs_accesses():
    """Every rung from vectorized on has a layout; what has no shared memory asks for nothing."""
    for rung in LADDER:
        found = banks.accesses(rung.name, rung.tile) if rung.tile else ()
        assert bool(found) == (rung.name not in ("naive", "coalesced", "column", "square")), rung.name


def test_tiled2d_as_the_profiler_counted_it():
    """3.379e9 wavefronts at 4096 (bench/notes.md), which this accounts for to a hundredth.

    A block reads A four k at a time and B one, and stores both once for 32 k.
    """
    store_a, store_b, read_a, read_b = banks.accesses("tiled2d", Tile(32, 32, 32))
    for_32_k = store_a.wavefronts + store_b.wavefronts + 8 * read_a.wavefronts + 32 * read_b.wavefronts
    assert for_32_k * 4096**3 / 32 / 32 == pytest.approx(3.379e9, rel=0.01)
