"""Tile parameters: which are legal, and why the others are not."""

import pickle
import re
from dataclasses import replace

import pytest

from numba_gemm import LADDER, Tile, TileError
from numba_gemm.rungs import (
    async_copy,
    autotuned,
    column,
    double_buffered,
    naive,
    padded,
    split_k,
    square,
    tiled2d,
    vectorized,
    warptiled,
)

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


VECTOR_REASONS = {  # of tiles for vectors of four and for warps
    "zero": (Tile(32, 32, 8, 4, 4, WM=0, WN=32), "WM is 0; it should be at least 1"),
    "no stage": (Tile(32, 32, 8, 4, 4, WM=16, WN=32, stages=0), "stages is 0; it should be at least 1"),
    "WM": (Tile(32, 32, 8, 4, 4, WM=24, WN=32), "WM=24 does not divide BM=32"),
    "WN": (Tile(32, 32, 8, 4, 4, WM=32, WN=24), "WN=24 does not divide BN=32"),
    "WM larger than BM": (Tile(32, 32, 8, 4, 4, WM=64, WN=32), "WM=64 does not divide BM=32"),
    "TM": (Tile(24, 128, 8, 8, 4, WM=12, WN=64), "TM=8 does not divide WM=12"),
    "TN": (Tile(128, 24, 8, 4, 8, WM=64, WN=12), "TN=8 does not divide WN=12"),
    "too few lanes": (
        Tile(32, 32, 8, 4, 4, WM=16, WN=16),
        "a warp tile of 16 x 16 is 4 x 4 thread tiles, and a warp has 32 lanes",
    ),
    "too many lanes": (
        Tile(32, 32, 8, 4, 4, WM=32, WN=32),
        "a warp tile of 32 x 32 is 8 x 8 thread tiles, and a warp has 32 lanes",
    ),
    "BK of fours": (Tile(16, 32, 6, 4, 4, WM=16, WN=32), "BK=6 is not a multiple of 4"),
    "BN of fours": (Tile(16, 34, 8, 4, 2, WM=16, WN=34), "BN=34 is not a multiple of 4"),
    "TM of fours": (Tile(16, 32, 8, 2, 8, WM=16, WN=32), "TM=2 is not a multiple of 4"),
    "TN of fours": (Tile(16, 32, 8, 8, 2, WM=16, WN=32), "TN=2 is not a multiple of 4"),
    "no warp tile": (Tile(16, 32, 8, 4, 4), "it has no warp tile, WM x WN"),
    "A": (
        Tile(8, 128, 4, 4, 4, WM=8, WN=64),
        "64 threads cannot fill the 8 x 4 chunk (BM x BK)",
    ),
    "B": (
        Tile(64, 32, 4, 4, 4, WM=16, WN=32),
        "128 threads cannot fill the 4 x 32 chunk (BK x BN)",
    ),
    "shared bytes of all stages": (
        Tile(128, 128, 16, 8, 8, WM=64, WN=32, stages=4),
        "65536 bytes of shared memory are more than 49152",
    ),
}


@pytest.mark.parametrize(("tile", "reason"), VECTOR_REASONS.values(), ids=VECTOR_REASONS.keys())
def test_every_reason_of_vectors_and_warps(tile, reason):
    """What the upper rungs ask of a tile as well."""
    with pytest.raises(TileError) as caught:
        tile.check(vector=4, warps=True)
    assert any(line.startswith(reason) for line in caught.value.reasons)


def test_warp_tiles_are_checked_for_every_rung():
    """A warp tile that cannot be is refused where nobody would use it."""
    with pytest.raises(TileError, match="WM=24 does not divide BM=32"):
        Tile(32, 32, 8, 4, 4, WM=24, WN=32).check(vector=4)


def test_vectors_fill_rows_that_single_floats_cannot():
    """Four floats a thread: 32 threads are four rows of A and two of B at a time, and not half a row."""
    tile = Tile(32, 64, 8, TM=8, TN=8)
    with pytest.raises(TileError, match="32 threads cannot fill the 8 x 64 chunk"):
        tile.check()
    tile.check(vector=4)


@pytest.mark.parametrize("given", [{"WM": 16}, {"WN": 32}], ids=str)
def test_half_a_warp_tile(given):
    """WM and WN come together."""
    values = {"WM": None, "WN": None} | given
    reason = f"WM is {values['WM']} and WN is {values['WN']}; both should be given, or neither"
    with pytest.raises(TileError, match=reason):
        Tile(32, 32, 8, 4, 4, **given)


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


@pytest.mark.parametrize(
    "tile",
    [
        Tile(16, 32, 8, 4, 4, WM=16, WN=32),
        Tile(8, 64, 16, 4, 4, WM=8, WN=64),
        Tile(32, 64, 8, 8, 4, WM=32, WN=32, stages=2),
        Tile(128, 128, 16, 8, 8, WM=64, WN=32, stages=3),  # all the shared memory that there is
    ],
    ids=str,
)
def test_legal_warp_tiles(tile):
    """So do those of vectors and warps."""
    tile.check(vector=4, warps=True, staged=True)


@pytest.mark.parametrize(
    "rung", [rung for rung in LADDER if rung.tile and not rung.tile.WM], ids=lambda rung: rung.name
)
def test_warp_tiles_of_a_rung_without(rung):
    """They would change nothing, and are refused."""
    tile = replace(rung.tile, WM=rung.tile.BM, WN=rung.tile.BN)
    assert any("no warp tiles" in reason for reason in rung.why_illegal(tile))


@pytest.mark.parametrize(
    "rung", [rung for rung in LADDER if rung.tile and rung.tile.stages == 1], ids=lambda rung: rung.name
)
def test_stages_of_a_rung_without(rung):
    """So are more chunks than it holds."""
    reasons = rung.why_illegal(replace(rung.tile, stages=2))
    assert "stages is 2; the rung holds one chunk, and it should be 1" in reasons


@pytest.mark.parametrize("tile", [Tile(0, 8, 8), Tile(8, 8, 8, TM=16), Tile(8, 8, 8, TN=0)], ids=str)
def test_a_tile_without_threads_can_be_asked(tile):
    """Any numbers may be written down."""
    assert tile.threads == 0
    assert tile.blocks >= 1
    assert tile.register_cap <= 255


@pytest.mark.parametrize(
    ("tile", "lanes"),
    [
        (Tile(128, 128, 8, TM=8, TN=8, WM=64, WN=32), (8, 4)),
        (Tile(64, 256, 8, TM=4, TN=8, WM=4, WN=256), (1, 32)),
    ],
    ids=str,
)
def test_lanes(tile, lanes):
    """Thread tiles of a warp tile, down and across."""
    assert tile.lanes == lanes


def test_threads_and_shared_bytes():
    """Both follow from the tile, counted here by hand."""
    tile = Tile(128, 64, 16, TM=8, TN=4)
    assert tile.threads == 16 * 16
    assert tile.shared_bytes == 4 * (128 * 16 + 16 * 64)
    staged = Tile(128, 64, 16, TM=8, TN=4, WM=32, WN=32, stages=3)
    assert (staged.threads, staged.shared_bytes) == (tile.threads, 3 * tile.shared_bytes)


@pytest.mark.parametrize("name", ["TM", "TN"])
@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.tile], ids=lambda r: r.name)
def test_a_thread_tile_without_entries(rung, name):
    """A rung that counts threads before it checks the tile refuses it as any other."""
    assert f"{name} is 0; it should be at least 1" in rung.why_illegal(replace(rung.tile, **{name: 0}))


def test_registers_decide_how_many_blocks_share_a_multiprocessor():
    """Counted by hand: sums, fragments and 24 more for each thread, of 65536 in all."""
    tile = Tile(128, 128, 8, TM=8, TN=8)
    assert tile.registers == 8 * 8 + 8 + 8 + 24
    assert tile.blocks == 2  # 104 registers for 256 threads leave room for one more block
    assert Tile(8, 8, 8).blocks == 16  # the registers would do for 37
    assert Tile(256, 256, 8, TM=8, TN=8).blocks == 1  # illegal for want of registers, but not 0


def test_what_else_decides_how_many_blocks_share_a_multiprocessor():
    """Counted by hand: 1536 threads, and 100 KB of which a block takes 1 KB more than its chunks."""
    assert Tile(16, 32, 64, TM=4, TN=4, stages=2).blocks == 4  # 25600 of 102400 bytes
    assert Tile(16, 32, 65, TM=4, TN=4, stages=2).blocks == 3
    assert Tile(32, 32, 8).blocks == 1  # 1024 threads, with 27 registers


@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.tile], ids=lambda r: r.name)
def test_defaults_are_legal(rung):
    """A rung's own tile passes the rung's own rules and is the kernel that ships."""
    assert rung.why_illegal(rung.tile) == []
    assert rung.build() is rung.build(rung.tile) is rung.kernel


QUARTER = "threads / 4 rows of A are copied at a time, which has to divide BM"
RUNG_RULES = [
    (tiled2d.RUNG, Tile(16, 32, 16), "the tiles have to be square, BM = BN = BK"),
    (tiled2d.RUNG, Tile(32, 32, 16), "the tiles have to be square, BM = BN = BK"),
    (tiled2d.RUNG, Tile(32, 32, 32, TM=2), "a thread has one entry, TM = TN = 1"),
    (column.RUNG, Tile(64, 64, 8, TM=8, TN=2), "a thread has a column of entries, TN = 1"),
    (square.RUNG, Tile(128, 128, 8, TM=3, TN=8), "TM=3 does not divide BM=128"),
    (vectorized.RUNG, Tile(16, 32, 6, 4, 4), "BK=6 is not a multiple of 4"),
    (vectorized.RUNG, Tile(64, 64, 8, 2, 4), "TM=2 is not a multiple of 4"),
    (autotuned.RUNG, Tile(64, 64, 8, 4, 2), "TN=2 is not a multiple of 4"),
    (warptiled.RUNG, Tile(16, 32, 8, 4, 4), "it has no warp tile, WM x WN"),
    (padded.RUNG, Tile(16, 32, 8, 4, 4), "it has no warp tile, WM x WN"),
    (padded.RUNG, Tile(16, 32, 6, 4, 4, WM=16, WN=32), "BK=6 is not a multiple of 4"),
    (double_buffered.RUNG, Tile(16, 32, 8, 4, 4, stages=2), "it has no warp tile, WM x WN"),
    (double_buffered.RUNG, Tile(16, 32, 8, 4, 4, 16, 32), "two chunks are held, stages = 2"),
    (double_buffered.RUNG, Tile(16, 32, 8, 4, 4, 16, 32, 3), "two chunks are held, stages = 2"),
    (async_copy.RUNG, Tile(16, 32, 8, 4, 4, stages=2), "it has no warp tile, WM x WN"),
    (async_copy.RUNG, Tile(16, 32, 8, 4, 4, 16, 32), "at least two chunks are held, stages >= 2"),
    (async_copy.RUNG, Tile(16, 128, 32, 4, 4, 16, 32, 2), QUARTER),
    (
        async_copy.RUNG,  # 48 KiB without the padding
        Tile(128, 256, 16, 8, 16, 64, 64, stages=2),
        "50176 bytes of shared memory are more than 49152",
    ),
    (split_k.RUNG, Tile(16, 32, 8, 4, 4, 16, 32), "at least two chunks are held, stages >= 2"),
    (split_k.RUNG, Tile(16, 128, 32, 4, 4, 16, 32, 2), QUARTER),
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
@pytest.mark.parametrize("name", ["BM", "BN", "BK", "TM", "TN", "stages"])
def test_only_whole_numbers(name, value):
    """8.0 == 8, but no array has 8.0 rows: a kernel cached for 8 must not hide that."""
    reason = f"{name} is {value!r}; it should be a whole number"
    with pytest.raises(TileError, match=re.escape(reason)):
        Tile(**{"BM": 8, "BN": 8, "BK": 8, name: value})


@pytest.mark.parametrize("value", [8.5, 8.0, True, "8"], ids=repr)
@pytest.mark.parametrize("name", ["WM", "WN"])
def test_only_whole_numbers_or_none(name, value):
    """The sides of a warp tile, too, which may be left out."""
    reason = f"{name} is {value!r}; it should be a whole number"
    with pytest.raises(TileError, match=re.escape(reason)):
        Tile(**{"BM": 8, "BN": 8, "BK": 8, "WM": 8, "WN": 8, name: value})


@pytest.mark.parametrize(
    ("rung", "stages"), [(double_buffered.RUNG, 2), (async_copy.RUNG, 2), (async_copy.RUNG, 3)]
)
def test_stages_that_a_rung_takes(rung, stages):
    """As many chunks as it can hold."""
    assert rung.why_illegal(Tile(16, 32, 8, 4, 4, WM=16, WN=32, stages=stages)) == []


def test_one_kernel_a_tile():
    """The same parameters give the same kernel, so that it is compiled once."""
    tile = Tile(16, 16, 16)
    assert tiled2d.build(tile) is tiled2d.build(Tile(16, 16, 16))
    assert tiled2d.build(tile) is not tiled2d.kernel


def test_a_block_of_one_thread_is_spoken_of_as_one():
    """In every reason that counts threads."""
    with pytest.raises(TileError) as caught:
        Tile(16, 16, 6, 16, 16).check(vector=4)
    text = str(caught.value)
    assert "1 thread a block is not whole warps of 32" in text
    assert "1 thread cannot fill the " in text
    assert "takes 312 registers; its one thread has 255" in text
    assert "1 threads" not in text
