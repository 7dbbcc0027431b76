"""Tile parameters: which are legal, and why the others are not."""

import pickle
import re

import pytest

from numba_gemm import LADDER, Tile, TileError
from numba_gemm.rungs import column, naive, square, tiled2d

REASONS = {
    "zero": (Tile(0, 32, 8), "BM is 0; it should be at least 1"),
    "negative": (Tile(32, -32, 8), "BN is -32; it should be at least 1"),
    "TM": (Tile(32, 32, 8, TM=3), "TM=3 does not divide BM=32"),
    "TN": (Tile(32, 32, 8, TN=5), "TN=5 does not divide BN=32"),
    "warp": (Tile(4, 4, 4), "16 threads a block are not whole warps of 32"),
    "threads": (Tile(64, 64, 64), "4096 threads a block are more than 1024"),
    "A": (Tile(32, 32, 4, TM=2, TN=2), "256 threads cannot fill the 32 x 4 chunk (BM x BK)"),
    "B": (Tile(64, 16, 8), "1024 threads cannot fill the 8 x 16 chunk (BK x BN)"),
    "rows longer than the threads": (
        Tile(32, 64, 8, TM=8, TN=8),
        "32 threads cannot fill the 8 x 64 chunk (BK x BN)",
    ),
    "rows that do not divide the threads": (
        Tile(64, 64, 24, TM=8, TN=8),
        "64 threads cannot fill the 64 x 24 chunk (BM x BK)",
    ),
    "shared": (Tile(128, 128, 64, 8, 8), "65536 bytes of shared memory are more than 49152"),
    "registers": (Tile(256, 128, 8, 16, 16), "a 16 x 16 thread tile takes 312 registers"),
    "registers of a block": (
        Tile(256, 256, 8, 8, 8),
        "a 8 x 8 thread tile takes 104 registers; each of 1024 threads has 64",
    ),
}


@pytest.mark.parametrize(("tile", "reason"), REASONS.values(), ids=REASONS.keys())
def test_every_reason(tile, reason):
    """Each rule refuses, and gives its reason both as text and in the list."""
    with pytest.raises(TileError, match=re.escape(reason)) as caught:
        tile.check()
    assert any(line.startswith(reason) for line in caught.value.reasons)
    assert "Tile(" in str(caught.value)


def test_all_reasons_are_given_at_once():
    """A search, or a person, learns everything that is wrong in one go."""
    with pytest.raises(TileError) as caught:
        Tile(32, 32, 8, TM=3, TN=5).check({"the moon has to be full": False})
    assert len(caught.value.reasons) == 3
    assert all(reason in str(caught.value) for reason in caught.value.reasons)


def test_a_tile_error_is_a_value_error():
    """As every other argument that is refused for its value."""
    assert issubclass(TileError, ValueError)


def test_a_tile_error_survives_pickling():
    """As it must to get out of a worker process."""
    with pytest.raises(TileError) as caught:
        Tile(32, 32, 8, TM=3).check()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.reasons) == (str(caught.value), caught.value.reasons)


@pytest.mark.parametrize("tile", ["x", 0, (8, 8, 8)], ids=repr)
def test_what_is_no_tile(tile):
    """It is refused by name, whatever the rung."""
    with pytest.raises(TypeError, match=r"^tile is a .*; it should be a Tile$"):
        square.RUNG.build(tile)


def test_requirements_that_are_met_are_no_reason():
    """A rung's own requirements refuse only where they are not met."""
    Tile(32, 32, 32).check({"has to be square": True})


@pytest.mark.parametrize(
    "tile",
    [Tile(8, 8, 8), Tile(32, 32, 32), Tile(64, 64, 8, 8), Tile(128, 128, 8, 8, 8)],
    ids=str,
)
def test_legal_tiles(tile):
    """The rules leave the tiles that people use."""
    tile.check()


def test_threads_and_shared_bytes():
    """Both follow from the tile, counted here by hand."""
    tile = Tile(128, 64, 16, TM=8, TN=4)
    assert tile.threads == 16 * 16
    assert tile.shared_bytes == 4 * (128 * 16 + 16 * 64)


def test_registers_decide_how_many_blocks_share_a_multiprocessor():
    """Counted by hand: sums, fragments and 24 more for each thread, of 65536 in all."""
    tile = Tile(128, 128, 8, TM=8, TN=8)
    assert tile.registers == 8 * 8 + 8 + 8 + 24
    assert tile.blocks == 2  # 104 registers for 256 threads leave room for one more block
    assert Tile(8, 8, 8).blocks == 16  # the registers would do for 37
    assert Tile(256, 256, 8, TM=8, TN=8).blocks == 1  # illegal for want of registers, but not 0


@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.tile], ids=lambda r: r.name)
def test_defaults_are_legal(rung):
    """A rung's own tile passes the rung's own rules and is the kernel that ships."""
    assert rung.why_illegal(rung.tile) == []
    assert rung.build() is rung.build(rung.tile) is rung.kernel


RUNG_RULES = [
    (tiled2d.RUNG, Tile(16, 32, 16), "the tiles have to be square, BM = BN = BK"),
    (tiled2d.RUNG, Tile(32, 32, 16), "the tiles have to be square, BM = BN = BK"),
    (tiled2d.RUNG, Tile(32, 32, 32, TM=2), "a thread has one entry, TM = TN = 1"),
    (column.RUNG, Tile(64, 64, 8, TM=8, TN=2), "a thread has a column of entries, TN = 1"),
    (square.RUNG, Tile(128, 128, 8, TM=3, TN=8), "TM=3 does not divide BM=128"),
    (naive.RUNG, Tile(32, 32, 32), "the rung naive has no tile parameters"),
]


@pytest.mark.parametrize(
    ("rung", "tile", "reason"), RUNG_RULES, ids=lambda value: getattr(value, "name", None)
)
def test_the_rules_of_a_rung(rung, tile, reason):
    """A rung refuses what its kernel cannot be, in words, by raising or by answering."""
    assert reason in rung.why_illegal(tile)
    with pytest.raises(TileError, match=re.escape(reason)):
        rung.build(tile)


@pytest.mark.parametrize("value", [8.5, 8.0, True, "8", None], ids=repr)
@pytest.mark.parametrize("name", ["BM", "BN", "BK", "TM", "TN"])
def test_only_whole_numbers(name, value):
    """8.0 == 8, but no array has 8.0 rows: a kernel cached for 8 must not hide that."""
    reason = f"{name} is {value!r}; it should be a whole number"
    with pytest.raises(TileError, match=re.escape(reason)):
        Tile(**{"BM": 8, "BN": 8, "BK": 8, name: value})


def test_one_kernel_a_tile():
    """The same parameters give the same kernel, so that it is compiled once."""
    tile = Tile(16, 16, 16)
    assert tiled2d.build(tile) is tiled2d.build(Tile(16, 16, 16))
    assert tiled2d.build(tile) is not tiled2d.kernel
