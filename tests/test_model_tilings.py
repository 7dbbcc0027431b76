"""Tiles that hang over an edge, waves that do not fill the device, tiles within tiles."""

import numpy as np
import pytest

from numba_gemm import LADDER, Tile
from numba_gemm.model import hierarchy, quantization

SALYKOVA = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=32, WN=64, stages=2)


def test_a_tiling_of_nothing():
    """No tiles, no waste."""
    empty = quantization.tiling(0, 5, 128, 128)
    assert (empty.tiles, empty.useful, empty.excess, empty.last) == (0, 1.0, 0.0, (0, 5))


def test_an_exact_tiling():
    """Nothing is computed in vain, and the last tile is a whole one."""
    exact = quantization.tiling(256, 384, 128, 128)
    assert (exact.tiles, exact.excess, exact.last) == (6, 0.0, (128, 128))


def test_waves():
    """Whole waves, one block more, no blocks."""
    assert quantization.waves(336, 84, 4).efficiency == 1
    assert quantization.waves(337, 84, 4).efficiency == pytest.approx(0.5, abs=0.002)
    none = quantization.waves(0, 84, 4)
    assert (none.run, none.tail, none.efficiency) == (0, 0, 1)


@pytest.mark.parametrize(
    ("blocks", "rounds", "busiest"),
    [(0, 0, 0), (1, 2, 1), (132, 2, 1), (133, 2, 2), (264, 2, 2), (265, 4, 3)],
)
def test_the_pessimistic_and_the_even_count(blocks, rounds, busiest):
    """Two blocks a multiprocessor: a wave takes as long as two, even if it has one block."""
    assert quantization.wave_rounds(blocks, 132, 2) == rounds
    assert quantization.busiest(blocks, 132) == busiest


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (quantization.tiling, (-1, 5, 8, 8), "M is -1; it should be at least 0"),
        (quantization.tiling, (5, 5, 8, 0), "BN is 0; it should be at least 1"),
        (quantization.waves, (5, 0), "multiprocessors is 0; it should be at least 1"),
        (quantization.waves, (5, 1, 0), "blocks_per_multiprocessor is 0; it should be at least 1"),
        (quantization.waves, (-5, 1), "blocks is -5; it should be at least 0"),
    ],
)
def test_bad_input(function, arguments, message):
    """Named, with what it was."""
    with pytest.raises(ValueError, match=message):
        function(*arguments)


# The hierarchy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"WM": None, "WN": None}, "it has no warp tile"),
        ({"WM": 48}, "WM=48 does not divide BM=128"),
        ({"WN": 32}, "16 thread tiles; it should have 32"),
        ({"TM": 0}, "TM is 0; it should be at least 1"),
    ],
)
def test_what_is_no_hierarchy(changes, reason):
    """Every reason is given."""
    sizes = {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8, "WM": 32, "WN": 64} | changes
    with pytest.raises(ValueError, match=reason):
        hierarchy.hierarchy(Tile(**sizes))


@pytest.mark.parametrize("split", [False, True])
def test_every_entry_has_one_owner(split):
    """Each lane of each warp owns TM x TN entries."""
    warp, lane = hierarchy.owners(SALYKOVA, split=split)
    owner, entries = np.unique(32 * warp + lane, return_counts=True)
    assert owner.tolist() == list(range(256))
    assert set(entries) == {64}


def test_owners_by_hand():
    """Corners of tiles, whole and in pieces."""
    warp, lane = hierarchy.owners(SALYKOVA)
    assert (warp[0, 0], warp[0, 64], warp[32, 0], warp[127, 127]) == (0, 1, 2, 7)
    assert (lane[0, 0], lane[7, 7], lane[0, 8], lane[8, 0], lane[31, 63]) == (0, 0, 1, 8, 31)
    _, lane = hierarchy.owners(SALYKOVA, split=True)
    assert (lane[0, 0], lane[0, 4], lane[0, 32], lane[4, 0], lane[16, 0]) == (0, 1, 0, 8, 0)


def test_pieces_that_do_not_fit():
    """A thread tile of 2 x 8 cannot be split into pieces of 4 x 4."""
    tile = Tile(BM=128, BN=128, BK=8, TM=2, TN=8, WM=16, WN=32)
    with pytest.raises(ValueError, match="2 x 8 has no pieces of 4 x 4"):
        hierarchy.owners(tile, split=True)


def test_the_ladders_own():
    """Every rung with warp tiles covers C exactly."""
    with_warps = [rung for rung in LADDER if rung.tile and rung.tile.WM]
    assert len(with_warps) == 5
    for rung in with_warps:
        levels = hierarchy.hierarchy(rung.tile)
        assert levels.warps[0] * levels.warps[1] * 32 == levels.threads == rung.tile.threads
