"""What holds for every multiply, searched for a counterexample by hypothesis."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from numba_gemm import Problem, Tile, TileError
from numba_gemm.harness import compare_with_numpy, random_operands
from numba_gemm.rungs import (
    async_copy,
    column,
    double_buffered,
    padded,
    split_k,
    square,
    vectorized,
    warptiled,
)
from numba_gemm.target import TARGET, cuda

UNIT_ROUNDOFF = 2.0**-24
LARGEST_SIZE = 18 if TARGET.is_simulator else 140

sizes = st.integers(0, LARGEST_SIZE)
depths = st.integers(0, LARGEST_SIZE // 2)
shapes = st.tuples(sizes, sizes, depths)

moderate = st.floats(-100, 100, width=32)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
whole = st.integers(-8, 8).map(float)
whole_or_special = whole | st.sampled_from([np.nan, np.inf, -np.inf])


def matrix(rows, cols, elements):
    """A float32 matrix of that shape; hypothesis fills most of a large one with one value."""
    return hnp.arrays(np.float32, (rows, cols), elements=elements)


@st.composite
def operands(draw, elements):
    """A, B and C of matching shapes."""
    M, N, K = draw(shapes)
    return tuple(draw(matrix(*shape, elements)) for shape in ((M, K), (K, N), (M, N)))


def problem_of(A, B, **scalars):
    """The Problem of these matrices."""
    return Problem(A.shape[0], B.shape[1], A.shape[1], **scalars)


def bits(array):
    """The array's bit patterns, which compare NaN and the sign of zero, too."""
    return array.view(np.uint32)


@given(matrices=operands(finite), alpha=finite, beta=finite)
@example(matrices=(np.full((1, 1), 1e30, np.float32),) * 3, alpha=1e-30, beta=0)
@example(matrices=(np.full((2, 2), 1e-45, np.float32),) * 3, alpha=3e38, beta=0.5)
def test_agrees_with_numpy(rung, matrices, alpha, beta):
    """Of any magnitude, subnormal to overflow: within the bound, entry by entry."""
    A, B, C0 = matrices
    C = rung.gemm(A, B, C0.copy(), alpha, beta)
    outcome = compare_with_numpy(problem_of(A, B, alpha=alpha, beta=beta), A, B, C, C0)
    assert outcome.passed, outcome


@given(matrices=operands(whole_or_special), alpha=whole_or_special, beta=whole_or_special)
def test_special_values_go_where_arithmetic_puts_them(rung, matrices, alpha, beta):
    """NaN and infinity among whole numbers: equal to the formula, with the rules of BLAS."""
    A, B, C0 = matrices
    expected = np.zeros(C0.shape)
    with np.errstate(invalid="ignore"):
        if alpha != 0 and A.shape[1] > 0:
            expected += alpha * (A[:, :, None] * B[None, :, :]).sum(axis=1, dtype=np.float64)
        if beta != 0:
            expected += beta * C0.astype(np.float64)
    np.testing.assert_array_equal(rung.gemm(A, B, C0.copy(), alpha, beta), expected)


@given(matrices=operands(moderate), alpha=moderate)
def test_alpha_scales_the_product(rung, matrices, alpha):
    """alpha multiplies the finished sum, so it commutes with the multiply to the last bit."""
    A, B, _ = matrices
    np.testing.assert_array_equal(rung.gemm(A, B, alpha=alpha), np.float32(alpha) * rung.gemm(A, B))


@given(data=st.data(), M=sizes, N=st.integers(1, LARGEST_SIZE))
def test_the_identity_changes_nothing(rung, data, M, N):
    """A @ I and I @ A are A, to the last bit of every finite number."""
    A = data.draw(matrix(M, N, finite))
    np.testing.assert_array_equal(rung.gemm(A, np.eye(N, dtype=np.float32)), A)
    np.testing.assert_array_equal(rung.gemm(np.eye(M, dtype=np.float32), A), A)


@given(matrices=operands(moderate), C=st.sampled_from([np.nan, np.inf, -np.inf, 3e38]))
def test_beta_zero_forgets_C(rung, matrices, C):
    """Whatever C held, bit for bit the same result as without a C."""
    A, B, C0 = matrices
    C0[:] = C
    overwritten = rung.gemm(A, B, cuda.to_device(C0)).copy_to_host()
    np.testing.assert_array_equal(bits(overwritten), bits(rung.gemm(A, B)))


@given(matrices=operands(moderate))
def test_the_transpose_of_a_product(rung, matrices):
    """(A @ B)^T is B^T @ A^T, within twice the bound: rows and columns play the same part."""
    A, B, _ = matrices
    there = rung.gemm(A, B).T.astype(np.float64)
    back = rung.gemm(np.ascontiguousarray(B.T), np.ascontiguousarray(A.T))
    magnitude = (np.abs(A).astype(np.float64) @ np.abs(B)).T
    gamma = (A.shape[1] + 3) * UNIT_ROUNDOFF
    assert np.all(np.abs(there - back) <= 2.1 * gamma * magnitude + 1e-43)


def small_tiles():
    """Tiles of one to four warps that no general rule refuses."""
    for BM, BN, BK, TM, TN in itertools.product(
        (4, 8, 16, 24, 32), (8, 16, 32, 48, 64), (1, 2, 3, 4, 8, 12), (1, 2, 4, 8), (1, 2, 4, 8)
    ):
        tile = Tile(BM, BN, BK, TM, TN)
        try:
            tile.check()
        except TileError:
            continue
        if tile.threads <= 128:
            yield tile


SQUARE_TILES = list(small_tiles())
COLUMN_TILES = [tile for tile in SQUARE_TILES if tile.TN == 1]

some_sizes = st.tuples(*[st.integers(1, 65)] * 3)


def assert_right_or_refused(rung, tile, sizes, chunks=1, wide=False):
    """The rung refuses the tile, or is right on a C that it covers with one to four blocks.

    K is a little more than so many *chunks* at most.  *wide* rounds up to rows of whole vectors.
    """
    assume(not rung.why_illegal(tile))
    edges = tile.BM, tile.BN, tile.BK * chunks
    M, N, K = (min(size, edge + 1) for size, edge in zip(sizes, edges, strict=True))
    if wide:
        N, K = -(-N // 4) * 4, -(-K // 4) * 4
    A, B, C0 = random_operands(M, N, K, seed=0)
    C = rung.gemm(A, B, C0.copy(), 0.5, -1, tile=tile)
    outcome = compare_with_numpy(Problem(M, N, K, 0.5, -1), A, B, C, C0)
    assert outcome.passed, outcome


@settings(max_examples=20)  # on a GPU, each is compiled
@given(tile=st.sampled_from(SQUARE_TILES), sizes=some_sizes)
@example(tile=Tile(16, 64, 4, TM=4, TN=8), sizes=(16, 64, 4))  # rows of B longer than the block
def test_every_tile_of_square(tile, sizes):
    """A tile that is not refused gives the right result, at its edges as well."""
    assert_right_or_refused(square.RUNG, tile, sizes)


@settings(max_examples=20)  # on a GPU, each is compiled
@given(tile=st.sampled_from(COLUMN_TILES), sizes=some_sizes)
@example(tile=Tile(8, 32, 12, TM=8), sizes=(8, 32, 12))  # 32 threads share rows of 12
def test_every_tile_of_column(tile, sizes):
    """The same for columns."""
    assert_right_or_refused(column.RUNG, tile, sizes)


def small_warp_tiles():
    """Tiles for vectors of four, cut into one to four warp tiles, that no general rule refuses."""
    for BM, BN, BK, TM, TN, WM, WN in itertools.product(
        (8, 16, 32, 48), (16, 32, 48, 64), (4, 8, 12, 16), (4, 8), (4, 8, 16), (8, 16, 32), (16, 32, 64)
    ):
        tile = Tile(BM, BN, BK, TM, TN, WM, WN)
        try:
            tile.check(vector=4, warps=True)
        except TileError:
            continue
        if tile.threads <= 128:
            yield tile


WARP_TILES = list(small_warp_tiles())

VECTOR_RUNGS = {  # and how many chunks they may hold
    vectorized.RUNG: (1,),
    warptiled.RUNG: (1,),
    padded.RUNG: (1,),
    double_buffered.RUNG: (2,),
    async_copy.RUNG: (2, 3),
    split_k.RUNG: (2, 3),
}


@pytest.mark.parametrize("rung", VECTOR_RUNGS, ids=lambda rung: rung.name)
@settings(max_examples=8)  # on a GPU, each is compiled
@given(data=st.data(), tile=st.sampled_from(WARP_TILES), sizes=some_sizes, wide=st.booleans())
def test_every_tile_of_the_vector_rungs(rung, data, tile, sizes, wide):
    """The same for vectors and warps, through several chunks, with rows that are aligned and not."""
    tile = replace(tile, stages=data.draw(st.sampled_from(VECTOR_RUNGS[rung]), label="stages"))
    if rung is vectorized.RUNG:  # it has no warp tiles
        tile = replace(tile, WM=None, WN=None)
    assert_right_or_refused(rung, tile, sizes, chunks=3, wide=wide)


@settings(max_examples=4)  # on a GPU, each is compiled
@given(
    tile=st.sampled_from(WARP_TILES), sizes=some_sizes, wide=st.booleans(), shortest=st.integers(1, 3)
)
@example(tile=Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32), sizes=(17, 33, 25), wide=False, shortest=2)
def test_every_tile_of_split_k_shared(tile, sizes, wide, shortest):
    """The same where blocks share what is so small that they would not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_k, "SPLIT_COSTS", 0)
        patch.setattr(split_k, "SHORTEST", shortest)
        assert_right_or_refused(split_k.RUNG, replace(tile, stages=2), sizes, chunks=3, wide=wide)
