"""Blocks that share a multiprocessor, by rule and by the driver's own answer."""

import numpy as np
import pytest

from numba_gemm import LADDER, Problem, Tile, harness
from numba_gemm.model import devices, occupancy, prediction
from numba_gemm.model.devices import named
from numba_gemm.target import cuda

A6000, H200, T4 = named("A6000"), named("H200"), named("T4")


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared_bytes", "blocks"),
    [
        # Each by the resource that runs out.
        (A6000, 256, 64, 0, 4),  # registers
        (A6000, 256, 65, 0, 3),  # 72 by the granularity: 7 warps a scheduler
        (H200, 128, 232, 16640, 2),  # 1 warp of 232 a scheduler and block, twice
        (H200, 256, 129, 0, 1),
        (H200, 256, 33, 0, 6),  # 40 by the granularity; 33 would let 7 in
        (H200, 64, 88, 0, 10),  # 5 warps a scheduler; all registers together would do for 23
        (A6000, 1024, 32, 0, 1),  # 48 warps
        (H200, 1024, 32, 0, 2),
        (H200, 32, 1, 0, 32),  # blocks
        (H200, 128, 1, 48 * 1024, 4),  # 49 KiB of 228
        (A6000, 128, 1, 33 * 1024, 2),  # 34 of 100
        (A6000, 128, 1, 99 * 1024, 1),
        (T4, 128, 1, 32 * 1024, 2),  # nothing is reserved before 8.0
        # What a block may not have.
        (A6000, 128, 1, 99 * 1024 + 1, 0),
        (H200, 32, 256, 0, 0),
        (H200, 1024, 65, 0, 0),
        (H200, 33, 255, 0, 4),
    ],
)
def test_blocks(gpu, threads, registers, shared_bytes, blocks):
    """The same as NVIDIA's cuda_occupancy.h has it for these."""
    found = occupancy.occupancy(gpu, threads, registers, shared_bytes)
    assert found.blocks == blocks
    assert found.warps == blocks * -(-threads // 32)
    assert found.fraction == found.warps / gpu.limits.warps


def test_what_limits():
    """Named, and more than one where they tie."""
    assert occupancy.occupancy(A6000, 256, 64).limited_by == ("registers",)
    assert occupancy.occupancy(A6000, 128, 32, 33 * 1024).limited_by == ("shared memory",)
    assert set(occupancy.occupancy(H200, 512, 32).limited_by) == {"registers", "warps"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 32, 0), "threads is 0; it should be from 1 to 1024"),
        ((1025, 32, 0), "threads is 1025; it should be from 1 to 1024"),
        ((32, -1, 0), "registers is -1; it should be at least 0"),
        ((32, 32, -1), "shared_bytes is -1; it should be at least 0"),
    ],
)
def test_bad_input(arguments, message):
    """Named, with what it was."""
    with pytest.raises(ValueError, match=message):
        occupancy.occupancy(H200, *arguments)


@pytest.mark.gpu
def test_the_driver_agrees(ladder_rung):
    """For the compiled kernel of every rung, on this GPU."""
    from cuda.bindings import driver

    gpu = devices.current()
    arrays = [cuda.to_device(np.zeros((8, 8), np.float32)) for _ in range(3)]
    harness.prepare(ladder_rung, *arrays, Problem(8, 8, 8))()
    compiled = next(iter(ladder_rung.kernel.overloads.values()))
    threads = ladder_rung.geometry(8, 8).threads
    function = compiled._codelibrary.get_cufunc()
    handle = driver.CUfunction(int(function.handle))
    status, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(handle, threads, 0)
    assert status == driver.CUresult.CUDA_SUCCESS, status
    found = occupancy.occupancy(gpu, threads, compiled.regs_per_thread, compiled.shared_mem_per_block)
    assert found.blocks == blocks


# The prediction ------------------------------------------------------------------------------------


def test_the_prediction_of_whole_waves():
    """Tiles that fill the device and lie in C take the time that no kernel can beat."""
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    problem = Problem(128 * 132, 128 * 4, 4096)
    model = prediction.predict(problem, tile, H200)
    assert model.waves.run * model.waves.slots == model.waves.blocks == 528
    assert model.seconds == pytest.approx(model.floor)
    assert model.floor == pytest.approx(problem.product_flops / H200.fp32_peak)


@pytest.mark.parametrize(
    ("tile", "registers", "blocks"),
    [
        (Tile(BM=64, BN=64, BK=8, TM=8), 40, 3),  # column: it needs 41, which would be 48 and two blocks
        (Tile(BM=128, BN=128, BK=8, TM=8, TN=8), 104, 2),
        (Tile(BM=256, BN=256, BK=8, TM=8, TN=8), 64, 1),  # 1024 threads: not one block with 104
        (Tile(BM=128, BN=256, BK=8, TM=8, TN=16, WM=64, WN=64, stages=2), 176, 1),
    ],
)
def test_registers_leave_room_for_the_blocks_of_the_launch_bounds(tile, registers, blocks):
    """What the compiler is asked to do, the model takes to be done."""
    model = prediction.predict(Problem(4096, 4096, 4096), tile, H200)
    assert (tile.launch_registers, tile.blocks) == (registers, blocks)
    assert model.occupancy.blocks >= tile.blocks


def test_the_prediction_of_one_tile_more():
    """It costs the busiest multiprocessor a whole tile: a fifth one here."""
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    before = prediction.predicted_seconds(Problem(128 * 132, 128 * 4, 4096), tile, H200)
    after = prediction.predicted_seconds(Problem(128 * 132 + 1, 128 * 4, 4096), tile, H200)
    assert after / before == pytest.approx(5 / 4)


def test_the_prediction_of_shared_work():
    """Dealt out evenly, four tiles more cost as much as they are more."""
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    before = prediction.predict(Problem(128 * 132, 128 * 4, 4096), tile, H200, even=True)
    after = prediction.predict(Problem(128 * 133, 128 * 4, 4096), tile, H200, even=True)
    assert after.seconds / before.seconds == pytest.approx(133 / 132)
    assert before.seconds == pytest.approx(before.floor)


def test_what_is_asked_of_memory_may_be_given():
    """More than the tile's share makes the memory take longer."""
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    model = prediction.predict(Problem(128, 128, 128), tile, H200, requested_bytes=10**12)
    assert model.seconds == model.memory == 10**12 / H200.memory_bandwidth


def test_the_prediction_of_few_threads():
    """One warp with one sum a thread begins a multiply-add every four cycles, on one scheduler."""
    tile = Tile(BM=1, BN=32, BK=32)
    model = prediction.predict(Problem(1, 32, 1024), tile, H200)
    assert model.arithmetic == pytest.approx(1024 * 4 / H200.boost_clock_hz)


def test_what_does_not_fit_takes_for_ever():
    """So that a search sorts it last."""
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    assert prediction.predicted_seconds(Problem(8, 8, 8), tile, H200, registers=256) == float("inf")
    assert prediction.predict(Problem(8, 8, 8), tile, H200, registers=256).waves is None


def test_no_arithmetic_is_no_arithmetic():
    """alpha = 0 or an empty problem leaves C's bytes, or nothing."""
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    model = prediction.predict(Problem(4096, 4096, 4096, alpha=0.0), tile, H200)
    assert model.seconds == model.floor == 4 * 4096**2 / H200.memory_bandwidth
    assert prediction.predicted_seconds(Problem(0, 5, 5), tile, H200) == 4 * 5 * 0


def test_a_prediction_is_never_faster_than_the_floor():
    """Whatever the rung and the shape."""
    for rung in LADDER:
        if rung.tile:
            for shape in [(4096, 4096, 4096), (17, 33, 65), (1, 1, 100000), (5000, 3, 7)]:
                model = prediction.predict(Problem(*shape), rung.tile, H200)
                assert model.seconds >= model.floor, (rung.name, shape)
