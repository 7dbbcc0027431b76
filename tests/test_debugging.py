"""Looking into simulated kernels: what a stopped thread has, races, and banks."""

import numpy as np
import pytest

from numba_gemm import Tile, debugging, harness
from numba_gemm.model import banks
from numba_gemm.rungs import async_copy, double_buffered, padded, tiled2d, vectorized
from numba_gemm.simulator import in_turn
from numba_gemm.target import TARGET

M, N, K = 11, 13, 19
TILE = Tile(8, 8, 8)


@pytest.fixture(scope="module")
def operands():
    """A and B of no multiples of a tile."""
    A, B, _ = harness.random_operands(M, N, K, seed=0)
    return A, B


@pytest.fixture(scope="module")
def run(operands):
    """A launch of tiled2d in blocks of 8 x 8."""
    return lambda: tiled2d.gemm(*operands, tile=TILE)


# Stopping ------------------------------------------------------------------------------------------


@pytest.mark.simulator
def test_a_thread_stops_before_a_line(run, operands):
    """On its fourth visit, with three products in its sum and both tiles there."""
    A, B = operands
    seen = debugging.look(run, thread=(2, 1), block=(1, 0), line="total +=", visit=4)
    row, col = 1, 8 + 2
    assert seen.thread == (2, 1, 0)
    assert seen.block == (1, 0, 0)
    assert seen.text == "total += As[ty, k] * Bs[k, tx]"
    assert seen.where.startswith("tiled2d.py:")
    assert (seen.registers["row"], seen.registers["col"], seen.registers["k"]) == (row, col, 3)
    assert seen.registers["total"] == pytest.approx(A[row, :3] @ B[:3, col], rel=1e-5)
    np.testing.assert_array_equal(seen.shared["As"], A[:8, :8])
    np.testing.assert_array_equal(seen.shared["Bs"][:, : N - 8], B[:8, 8:])
    assert "WIDTH" not in seen.registers  # a constant of the kernel
    assert "A" not in seen.registers
    for words in ("thread (2, 1, 0) of block (1, 0, 0)", "total += As", "total = ", "As = [["):
        assert words in str(seen)


@pytest.mark.simulator
def test_a_block_stops_at_a_barrier(run, operands):
    """At the third, behind the second pair of tiles, with all of it stored."""
    A, _ = operands
    seen = debugging.look(run, thread=(0, 0), barrier=3)
    np.testing.assert_array_equal(seen.shared["As"], A[:8, 8:16])
    assert seen.text.startswith("cuda.syncthreads()")


@pytest.mark.simulator
def test_what_is_not_stored_yet_is_nan(run):
    """The first thread stops before its stores, and nobody else has begun."""
    seen = debugging.look(run, line="Bs[ty, tx] = b")
    assert np.isfinite(seen.shared["As"][0, 0])
    assert np.isnan(seen.shared["As"]).sum() == 63
    assert np.isnan(seen.shared["Bs"]).all()


@pytest.mark.simulator
def test_register_tiles_are_copied():
    """Of a thread inside of a device function, its arrays as they were then."""
    tile = Tile(16, 32, 8, TM=4, TN=4)
    A, B, _ = harness.random_operands(16, 32, 8, seed=0)
    seen = debugging.look(
        lambda: vectorized.gemm(A, B, tile=tile), thread=(9,), line="sums[i, j] += a[i] * b[j]", visit=2
    )
    registers = seen.registers
    assert registers["sums"].shape == (4, 4)
    row, col = 9 // 8 * 4, 9 % 8 * 4
    np.testing.assert_array_equal(registers["a"], A[row : row + 4, 0])
    np.testing.assert_array_equal(registers["b"], B[0, col : col + 4])
    assert np.count_nonzero(registers["sums"]) == 1
    assert "my_As" not in registers  # a window of shared memory


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        ({}, ValueError, "line is None and barrier is None"),
        ({"line": "total", "barrier": 1}, ValueError, "one of the two should be given"),
        ({"line": "total", "visit": 0}, ValueError, "visit is 0"),
        ({"barrier": 0}, ValueError, "barrier is 0"),
        ({"barrier": 1, "thread": 3}, ValueError, "thread is 3; it should be a tuple"),
        ({"barrier": 99}, LookupError, r"never came to barrier 99; it came there 6 times"),
        ({"line": "no such line"}, LookupError, "never came to visit 1 of a line with 'no such line'"),
        ({"barrier": 1, "thread": (64,)}, LookupError, "no launch had a thread"),
    ],
    ids=str,
)
def test_what_cannot_be_looked_at_is_said(run, place, error, said):
    """And why."""
    with pytest.raises(error, match=said):
        debugging.look(run, **place)


# Races ---------------------------------------------------------------------------------------------


@pytest.mark.simulator
def test_a_kernel_with_its_barriers_has_no_race(run, operands):
    """Nor does it read what was not stored."""
    seen = debugging.watch(run)
    assert seen.races == ()
    assert seen.unwritten == 0
    assert str(seen).startswith("no races")
    np.testing.assert_allclose(seen.result, operands[0] @ operands[1], atol=1e-5)


@pytest.mark.simulator
def test_without_the_first_barrier_tiles_are_read_before_they_are_stored(run):
    """All threads but the last compute with NaN."""
    seen = debugging.watch(run, without_barrier=1)
    assert np.isnan(seen.result).any()
    assert seen.unwritten > 0
    race = seen.races[0]
    assert (race.array, race.block) == ("As", (0, 0, 0))
    assert race.first.startswith("thread (0, 0) reads it in line")
    assert race.second.startswith(f"thread ({race.index[1]}, {race.index[0]}) stores it in line")
    assert "with no barrier between them" in str(seen)


@pytest.mark.simulator
def test_without_the_second_barrier_tiles_are_overwritten(run, operands):
    """Nothing is NaN, and the result is wrong."""
    seen = debugging.watch(run, without_barrier=2)
    assert np.isfinite(seen.result).all()
    assert not np.allclose(seen.result, operands[0] @ operands[1], atol=1e-2)
    assert seen.unwritten == 0
    assert "stores it" in seen.races[0].first
    assert "reads it" in seen.races[0].second


@pytest.mark.simulator
@pytest.mark.parametrize("number", [0, 3])
def test_a_barrier_that_is_not_there_is_refused(run, number):
    """Counted as in the source."""
    with pytest.raises(ValueError, match=f"without_barrier is {number}; the kernel has barriers 1 to 2"):
        debugging.watch(run, without_barrier=number)


SMALL = {
    vectorized: Tile(16, 32, 8, TM=4, TN=4),
    double_buffered: Tile(32, 16, 8, TM=4, TN=4, WM=32, WN=16, stages=2),
    async_copy: Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=3),
}


@pytest.mark.simulator
@pytest.mark.parametrize("rung", SMALL, ids=lambda rung: rung.RUNG.name)
def test_the_rungs_have_no_races(rung):
    """Also where copies arrive late and buffers take turns: over five chunks, with a remainder."""
    A, B, _ = harness.random_operands(16, 16, 43, seed=0)
    assert debugging.watch(lambda: rung.gemm(A, B, tile=SMALL[rung], verify=True)).races == ()


@pytest.mark.simulator
def test_a_barrier_in_a_helper_is_left_out():
    """double_buffered has one in the loop over chunks, which its kernel calls."""
    A, B, _ = harness.random_operands(32, 16, 40, seed=0)
    run = lambda: double_buffered.gemm(A, B, tile=SMALL[double_buffered])  # noqa: E731
    assert debugging.watch(run, without_barrier=2).races


# Banks ---------------------------------------------------------------------------------------------


@pytest.mark.simulator
@pytest.mark.parametrize("rung", [vectorized, padded], ids=lambda rung: rung.RUNG.name)
def test_the_requests_of_a_warp_are_those_of_the_model(rung):
    """At the rung's own tile: what was recorded of the first warp, and model.banks by formula."""
    tile = rung.TILE
    A, B, _ = harness.random_operands(tile.BM, tile.BN, tile.BK, seed=0)
    watched = debugging.watch(lambda: rung.gemm(A, B))
    seen = watched.requests(0)
    assert len(watched.worst(0)) == 4
    for expected in banks.accesses(rung.RUNG.name, tile):
        array = "As" if expected.what.endswith("A") else "Bs"
        alike = [
            request.access
            for request in seen
            if (request.array, request.access.store) == (array, expected.store)
        ]
        assert alike
        for access in alike:
            assert access.width == expected.width
            assert (access.degree, access.wavefronts) == (expected.degree, expected.wavefronts)
        assert any(np.array_equal(access.addresses, expected.addresses) for access in alike)


@pytest.mark.simulator
def test_requests_are_told_by_line(run):
    """tiled2d has two stores and two reads, and 8 x 4 lanes meet no bank twice."""
    seen = debugging.watch(run)
    requests = seen.requests(0)
    assert [(request.array, request.access.store) for request in requests] == [
        ("As", True),
        ("Bs", True),
        ("As", False),
        ("Bs", False),
    ]
    assert [request.times for request in requests] == [3, 3, 24, 24]  # three chunks of eight k
    assert requests[0].row_floats == 8
    assert "As: stores 1 float a lane, conflict degree 1, 1 wavefront (3 times" in str(requests[0])
    assert seen.worst(0) == requests
    with pytest.raises(ValueError, match=r"warp is 2; those that used shared memory are \[0, 1\]"):
        seen.requests(2)


# Where it does not work ------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [debugging.look, debugging.watch])
def test_a_gpu_is_told_so(monkeypatch, capsys, function):
    """Nothing is launched, and a cell of the notebook goes on."""
    gpu = type(TARGET)("gpu", "kernels run on the GPU: a stand-in")
    monkeypatch.setattr(debugging, "TARGET", gpu)
    with pytest.raises(debugging.SimulatorOnlyError, match="NUMBA_GEMM_TARGET=simulator"):
        function(pytest.fail)
    with debugging.simulator_only():
        function(pytest.fail)
    assert "Skipped: debugging." in capsys.readouterr().out


@pytest.mark.simulator
def test_an_error_in_a_thread_ends_the_launch(operands):
    """And the next launch goes as if nothing had been."""
    tile = Tile(8, 8, 8)
    A, B = operands
    with pytest.raises(IndexError, match="tid="), in_turn():
        tiled2d.build(tile)[(1, 1), (9, 8)](A, B, np.empty((M, N), np.float32), 1, 0)
    with in_turn(backwards=True):
        tiled2d.gemm(A, B, tile=tile, verify=True)
