"""The check of a reader's own kernel: it passes what is right and names what is wrong."""

import re

import pytest
from numba import float32

from numba_gemm import LADDER, Tile, harness
from numba_gemm.harness import Geometry
from numba_gemm.primitives import block_x, block_y, problem_size, thread_x, thread_y, update
from numba_gemm.rungs import coalesced, square, tiled2d
from numba_gemm.target import TARGET, cuda

BLOCK = 4


def blocks(M, N):
    """Blocks of 4 x 4 threads, one for each entry."""
    return Geometry.cover(x=(N, BLOCK), y=(M, BLOCK), block=(BLOCK, BLOCK))


def kernel_that(spoil):
    """A kernel of one thread an entry that ends as *spoil* says."""
    finish = cuda.jit(device=True)(spoil)

    @cuda.jit
    def mine(A, B, C, alpha, beta):
        M, N, K = problem_size(A, B, alpha)
        row, col = block_y() * BLOCK + thread_y(), block_x() * BLOCK + thread_x()
        if row < M and col < N:
            total = float32(0)
            for k in range(K):
                total += A[row, k] * B[k, col]
            finish(A, B, C, row, col, total, alpha, beta)

    return mine


def right(A, B, C, row, col, total, alpha, beta):
    update(C, row, col, total, alpha, beta)


def test_a_right_kernel_passes():
    """And says how much was compared."""
    outcome = harness.check(kernel_that(right), blocks)
    assert outcome
    assert outcome.passed
    assert 0 < outcome.worst <= 1
    assert re.match(r"mine is right: [67] problems, \d+ entries, the largest error is 0\.", str(outcome))


@pytest.mark.parametrize(
    ("rung", "tile"),
    [(tiled2d.RUNG, Tile(8, 8, 8)), (square.RUNG, Tile(16, 32, 4, 4, 4))],
    ids=["tiled2d", "square"],
)
def test_a_rung_passes_at_another_tile(rung, tile):
    """A rung stands for the launch its kernel wants."""
    assert harness.check(rung.build(tile), rung, tile=tile, shapes=[(17, 9, 7)])


def wrong_in_one_row(A, B, C, row, col, total, alpha, beta):
    update(C, row, col, total + float32(0.125) if row == 4 else total, alpha, beta)


def skips_a_column(A, B, C, row, col, total, alpha, beta):
    if col != 2:
        update(C, row, col, total, alpha, beta)


def reads_c(A, B, C, row, col, total, alpha, beta):
    C[row, col] = float32(alpha) * total + float32(beta) * C[row, col]


def forgets_beta(A, B, C, row, col, total, alpha, beta):
    C[row, col] = float32(alpha) * total


def reads_a(A, B, C, row, col, total, alpha, beta):
    product = float32(0)
    for k in range(A.shape[1]):
        product += A[row, k] * B[k, col]
    update(C, row, col, product, alpha, beta)


def changes_b(A, B, C, row, col, total, alpha, beta):
    update(C, row, col, total, alpha, beta)
    if row == 0 and B.shape[0] > 0:
        B[0, col] = 0


@pytest.mark.parametrize(
    ("spoil", "where", "said"),
    [
        (wrong_in_one_row, (4, 0), ["C[4, 0] is ", ", 0.125 off; 5 of 25 entries", "all in row 4"]),
        (
            skips_a_column,
            (0, 2),
            ["C[0, 2] is nan and should be", "it is not written", "all in column 2"],
        ),
        (reads_c, (0, 0), ["C, which was NaN, were read although beta is 0; 25 of 25 entries"]),
        (forgets_beta, (0, 0), ["at 5 x 5 x 37, alpha = 0.75, beta = -0.5: C[0, 0] is "]),
        (reads_a, (0, 0), ["alpha = 0, beta = -0.5: C[0, 0] is nan", "were read although alpha is 0"]),
        (changes_b, None, ["it changed B"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_is_named(spoil, where, said):
    """In one line: at which problem, where first, by how much, how many."""
    outcome = harness.check(kernel_that(spoil), blocks, seed=1)
    assert not outcome
    assert outcome.where == where
    assert outcome.worst > 1
    for words in ("mine is wrong at 5 x 5 x 37", *said):
        assert words in str(outcome)
    assert "\n" not in str(outcome)


def test_a_trespass_is_found():
    """A row too many, into what lies behind C."""
    outcome = harness.check(trespassing, blocks, shapes=[(4, 4, 4)])
    assert not outcome
    if TARGET.is_simulator:
        assert "IndexError" in str(outcome)
    else:
        assert "above or below C" in str(outcome)


@cuda.jit
def trespassing(A, B, C, alpha, beta):
    row, col = thread_y(), thread_x()
    total = float32(0)
    for k in range(A.shape[1]):
        total += A[row, k] * B[k, col]
    update(C, row, col, total, alpha, beta)
    if row == 0:
        C[C.shape[0], col] = total


def barriers(*kept):
    """tiled2d's idea at 4 x 4, with the first and second barrier only where *kept*."""
    first, second = kept

    @cuda.jit
    def shared(A, B, C, alpha, beta):
        As = cuda.shared.array((BLOCK, BLOCK), float32)
        Bs = cuda.shared.array((BLOCK, BLOCK), float32)
        M, N, K = problem_size(A, B, alpha)
        tx, ty = thread_x(), thread_y()
        row, col = block_y() * BLOCK + ty, block_x() * BLOCK + tx
        total = float32(0)
        for k0 in range(0, K, BLOCK):
            As[ty, tx] = A[row, k0 + tx] if row < M and k0 + tx < K else float32(0)
            Bs[ty, tx] = B[k0 + ty, col] if k0 + ty < K and col < N else float32(0)
            if first:
                cuda.syncthreads()
            for k in range(BLOCK):
                total += As[ty, k] * Bs[k, tx]
            if second:
                cuda.syncthreads()
        if row < M and col < N:
            update(C, row, col, total, alpha, beta)

    return shared


def test_both_barriers_pass():
    """The kernel is right as long as it has them."""
    assert harness.check(barriers(True, True), blocks)


@pytest.mark.simulator
@pytest.mark.parametrize("kept", [(False, True), (True, False)], ids=["first", "second"])
def test_a_forgotten_barrier_is_found_every_time(kept):
    """Each prevents an accident of its own, and threads in turn have it for sure."""
    for _ in range(3):
        assert not harness.check(barriers(*kept), blocks)


@pytest.mark.simulator
def test_a_barrier_that_only_one_order_needs_is_found():
    """Each thread reads what the one before it stored: right in order, wrong backwards."""

    @cuda.jit
    def relay(A, B, C, alpha, beta):
        totals = cuda.shared.array(BLOCK, float32)
        x = thread_x()
        _, _, K = problem_size(A, B, alpha)
        total = float32(0)
        for k in range(K):
            total += A[0, k] * B[k, x]
        totals[x] = total
        update(C, 0, x, totals[x - 1] * 0 + total if x > 0 else total, alpha, beta)

    outcome = harness.check(relay, lambda M, N: Geometry.line(1, 4), shapes=[(1, 4, 5)])
    assert not outcome


@pytest.mark.simulator
def test_an_error_in_the_kernel_is_told():
    """A subscript out of bounds is an outcome, with thread and block."""
    outcome = harness.check(
        coalesced.kernel, lambda M, N: Geometry((1, 1, 1), (4, 4)), shapes=[(2, 2, 2)]
    )
    assert outcome  # threads beyond C do nothing
    tile = Tile(16, 32, 4, 4, 4)
    outcome = harness.check(square.build(tile), lambda M, N: Geometry.line(1, 64), shapes=[(16, 32, 4)])
    assert "it raised IndexError: tid=" in str(outcome)


def test_what_is_no_kernel_is_refused():
    """And so are no shapes at all."""
    with pytest.raises(TypeError, match="kernel is a function; it should be made by"):
        harness.check(right, blocks)
    with pytest.raises(ValueError, match="shapes is empty"):
        harness.check(coalesced.kernel, blocks, shapes=[])


@pytest.mark.parametrize("rung", [LADDER[2], LADDER[5]], ids=lambda rung: rung.name)
def test_block_tiles_are_found_from_the_grid(rung):
    """The default shapes lie one past them."""
    assert harness._block_tile(rung.geometry) == (rung.tile.BM, rung.tile.BN)


def test_the_seed_decides():
    """The same one gives the same outcome."""
    one, other = (harness.check(kernel_that(right), blocks, seed=3) for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1, 1, 1), (80, 64), "a block is 80 x 64 threads; it can have 1 to 1024"),
        ((1, 1, 1), (0, 1), "a block is 0 x 1 threads"),
        ((1, 65536, 1), (1, 1), "the grid has 65536 blocks in y; it can have 0 to 65535"),
        ((-1, 1, 1), (1, 1), "the grid has -1 blocks in x"),
    ],
)
def test_a_launch_that_no_gpu_takes(grid, block, message):
    """The simulator would take it."""
    with pytest.raises(ValueError, match=message):
        harness.check(kernel_that(right), lambda M, N: Geometry(grid, block))


@pytest.mark.parametrize("geometry", [None, "naive", lambda M, N: None, lambda M, N: ((1, 1), (4, 4))])
def test_what_is_no_geometry(geometry):
    with pytest.raises(TypeError, match="should be a"):
        harness.check(kernel_that(right), geometry)


def test_a_tile_is_for_a_rung():
    with pytest.raises(TypeError, match="tile is for a rung"):
        harness.check(kernel_that(right), blocks, tile=Tile(8, 8, 8))


@pytest.mark.parametrize("shapes", [[(3, 3)], [(3, 3, 3), (3, 3, 3, 5)]])
def test_shapes_that_are_none(shapes):
    with pytest.raises(ValueError, match="each should be M, N and K"):
        harness.check(kernel_that(right), blocks, shapes=shapes)


@cuda.jit
def with_strides(A, B, C, alpha, beta):
    """One row of C after the other, as many at a time as there are threads."""
    M, N, K = problem_size(A, B, alpha)
    for row in range(thread_x(), M, 8):
        for col in range(N):
            total = float32(0)
            for k in range(K):
                total += A[row, k] * B[k, col]
            update(C, row, col, total, alpha, beta)


def test_a_grid_that_does_not_depend_on_the_size():
    """Whatever a block covers then, the problems are small."""
    outcome = harness.check(with_strides, lambda M, N: Geometry((1, 1, 1), (8, 1)))
    assert outcome
    assert outcome.problem.M <= 33


def test_problems_where_none_are_named():
    """On a GPU one more, of many blocks, but not where the grid stays as it is."""
    small = [(5, 5, 37), (4, 4, 32), (1, 1, 1), (4, 1, 0)]
    assert harness._shapes(blocks, crowded=False) == small
    assert harness._shapes(blocks, crowded=True) == [*small, (161, 161, 3001)]
    assert len(harness._shapes(lambda M, N: Geometry((1, 1, 1), (8, 1)), crowded=True)) == 4


@pytest.mark.parametrize(
    ("rows", "cols"), [(1, 1), (4, 4), (16, 16), (128, 128), (128, 256), (256, 128), (1, 256)]
)
def test_a_crowd_of_blocks(rows, cols):
    """Twice as many as an H200 has multiprocessors, off the tile, and not for minutes."""
    down, across = harness._crowd(rows, cols)
    assert -(-down // rows) * -(-across // cols) >= 2 * 132
    assert rows == 1 or down % rows == 1
    assert cols == 1 or across % cols == 1
    assert max(down, across) <= 3001
