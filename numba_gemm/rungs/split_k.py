"""Split k: blocks share the sums of the tiles that would leave multiprocessors idle.

A device computes as many tiles at a time as it has multiprocessors, 132 on an H200. With 528 tiles, 4 x
132, it is busy four times as long as one takes; with 561, the 33 x 17 tiles of a C of 4097 x 4097, five
times, and for the last fifth most of it idles. A C of 256 x 256 has two tiles, whatever K is. The tiles
that do not fill the device are therefore not given to a block each: their chunks of k, all in a row,
are dealt out in equal shares, and a block may get the end of one tile and the beginning of the next. It
writes its sums to a workspace, and a second kernel adds up those of each tile, always in the same
order, so that the result does not change from run to run.

That costs the workspace, written and read once, and one more launch: about as long as a block
needs for SPLIT_COSTS chunks. Where sharing saves less than that, it is not done (``plan``), and the
kernel of the rung below, ``kernel``, computes all tiles. Else one launch does both: its first blocks
take the shares, the others a tile each.

For example, five tiles of 100 chunks on four multiprocessors: four tiles are computed whole, and the
fifth in shares of 25 chunks. With seven tiles, three remain, and of their 300 chunks each block takes
75: the first 75 of one tile, then 25 of that and 50 of the next, and so on. As there are more blocks
than remaining tiles, a share is never longer than a tile, and a block never has parts of more than
two.

Source: M. Osama, D. Merrill, C. Cecka, M. Garland and J. D. Owens, "Stream-K: Work-centric Parallel
Decomposition for Dense Matrix-Matrix Multiplication on the GPU", 2023, there called data-parallel
with a Stream-K remainder; "split-K" for the special case of few tiles.
"""

import functools

from numba import cuda, float32, int64

from numba_gemm.harness import Geometry
from numba_gemm.model.traffic import Habits, workspace_bytes
from numba_gemm.primitives import (
    ALIGNMENT,
    block_x,
    index,
    launch_bounds,
    load4,
    problem_size,
    rows_are_aligned,
    store4,
    thread_x,
    update4,
)
from numba_gemm.rung import Rung
from numba_gemm.tile import MAX_THREADS, Tile

from .async_copy import PADDING, TILE, build, kernel, pipeline

SPLIT_COSTS = 24
"""What splitting costs, in chunks that a block could multiply meanwhile: partial sums written and
read again, one more launch.  An estimate: some 30 us on an H200, where a chunk takes 1.3."""

MOST_GROUPS = 16
"""Threads among which the partial sums of an entry are divided, at most."""

ENOUGH = 4
"""The fewest partial sums that make another thread worthwhile: ``divide`` takes more threads only while
each still has so many to add, which it can read without waiting for one before it asks for the next."""

FOUND_ORDER = tuple(range(16))
"""The order in which a thread multiplies its columns; see the rung below."""

SHORTEST = 8
"""A block's share of k is at least so many chunks, but for the last block's."""


@functools.cache
def build_shared(tile: Tile = TILE):
    """The kernel that computes whole tiles, and partial sums of the others.

    The first *sharing* blocks share the tiles from *whole* on, *share* chunks of k each, and write
    their sums to W; the others compute a tile of C each.
    """
    BM, BN, BK, TM, TN, STAGES = tile.BM, tile.BN, tile.BK, tile.TM, tile.TN, tile.stages
    DEPTH, PADDED_BM = STAGES * BK, BM + PADDING
    multiply_range, write_tile = pipeline(tile, FOUND_ORDER)

    @cuda.jit(**launch_bounds(tile.threads, tile.blocks))
    def shared(A, B, C, alpha, beta, W, whole, sharing, share):
        As = cuda.shared.array((DEPTH, PADDED_BM), float32, alignment=ALIGNMENT)
        Bs = cuda.shared.array((DEPTH, BN), float32, alignment=ALIGNMENT)
        sums = cuda.local.array((TM, TN), float32)

        M, N, K = problem_size(A, B, alpha)
        across, down = (N + (BN - 1)) // BN, (M + (BM - 1)) // BM
        chunks = int64(K // BK)
        # Not block_x(): whatever an index touches has 32 bits, too few for all chunks of all tiles.
        block = cuda.blockIdx.x
        if block < sharing:  # in chunks, counted through all tiles
            begin = whole * chunks + block * share
            end = min(begin + share, int64(across) * int64(down) * chunks)
        else:
            begin = (block - sharing) * chunks
            end = begin + chunks
        slot = block_x() * 2
        while begin < end:
            here = index(begin // chunks)
            first = begin % chunks
            last = min(first + (end - begin), chunks)
            remainder = K % BK if last == chunks else index(0)
            row0, col0 = here // across * BM, here % across * BN
            multiply_range(A, B, row0, col0, index(first), index(last), remainder, As, Bs, sums)
            if block < sharing:
                write_tile(W, slot * BM, index(0), slot * BM + BM, sums, float32(1), float32(0))
                cuda.syncthreads()  # all have read the chunks before the next tile's arrive
            else:
                write_tile(C, row0, col0, M, sums, alpha, beta)
            begin += last - first
            slot += 1

    return shared


@functools.cache
def build_total(tile: Tile = TILE, groups: int = 1):
    """The kernel that adds up partial sums: a block for each row of a tile, four columns a thread.

    There are *groups* threads for them.  Thread g adds up partial sums g, g + groups, g + 2 groups and
    so on.
    """
    BM, BN = tile.BM, tile.BN
    FOURS = BN // 4

    @cuda.jit
    def total(W, C, alpha, beta, tile0, share, chunks):
        subtotals = cuda.shared.array((groups, BN), float32, alignment=ALIGNMENT)
        M, N = index(C.shape[0]), index(C.shape[1])
        across = (N + (BN - 1)) // BN
        tile, r = block_x() // BM, block_x() % BM
        group, c = thread_x() // FOURS, thread_x() % FOURS * 4
        here = index(tile0) + tile
        row, col = here // across * BM + r, here % across * BN + c

        # Slots come in pairs, one pair a block: a share is part of two tiles at most.  The first block
        # of a tile may have begun with the tile before, and then this one is in its second slot.
        begin, end = int64(tile) * chunks, (int64(tile) + 1) * chunks
        first, last = index(begin // share), index((end - 1) // share)
        s0, s1, s2, s3 = float32(0), float32(0), float32(0), float32(0)
        if group == 0:
            slot = 2 * first + (1 if int64(first) * share < begin else 0)
            s0, s1, s2, s3 = load4(W, slot * BM + r, c)
        for block in range(first + 1 + group, last + 1, groups):
            x0, x1, x2, x3 = load4(W, 2 * block * BM + r, c)
            s0, s1, s2, s3 = s0 + x0, s1 + x1, s2 + x2, s3 + x3
        store4(subtotals, group, c, (s0, s1, s2, s3))
        cuda.syncthreads()
        if group == 0 and row < M:
            for g in range(1, groups):
                x0, x1, x2, x3 = load4(subtotals, g, c)
                s0, s1, s2, s3 = s0 + x0, s1 + x1, s2 + x2, s3 + x3
            update4(C, row, col, (s0, s1, s2, s3), alpha, beta, rows_are_aligned(C))

    return total


def plan(tiles: int, chunks: int, concurrent: int) -> tuple[int, int]:
    """How many tiles to compute whole, and among how many blocks to share the chunks of the rest.

    *concurrent* blocks run at the same time.  Tiles that fill all of them are best left whole.  What
    remains would leave some of them idle for as long as one tile takes; it is shared where that is
    faster, by more blocks than tiles, so that a share is no longer than a tile.
    """
    rest = tiles % concurrent
    blocks = min(concurrent, rest * chunks // SHORTEST)
    if blocks <= rest or -(-rest * chunks // blocks) + SPLIT_COSTS >= chunks:
        return tiles, 0
    return tiles - rest, blocks


def divide(parts: int, tile: Tile) -> int:
    """Among how many threads to divide the addition of so many partial sums, a power of two."""
    most = min(MOST_GROUPS, MAX_THREADS // (tile.BN // 4))
    groups = 1
    while 2 * groups <= most and parts >= ENOUGH * 2 * groups:
        groups *= 2
    return groups


def split(A, B, C, alpha, beta, tile, multiprocessors, stream):
    """The launches for one multiply: kernel, geometry and arguments of each, in order."""
    M, N, K = A.shape[0], B.shape[1], A.shape[1]
    tiles = RUNG.geometry(M, N, tile).blocks
    chunks = K // tile.BK if alpha else 0
    whole, blocks = plan(tiles, chunks, multiprocessors * tile.blocks)
    if not blocks:
        geometry = Geometry.line(whole, tile.threads)
        return [(RUNG.build(tile), geometry, (A, B, C, alpha, beta))]

    share = -(-(tiles - whole) * chunks // blocks)
    W = cuda.device_array((2 * blocks * tile.BM, tile.BN), "float32", stream=stream)
    geometry = Geometry.line(blocks + whole, tile.threads)
    arguments = A, B, C, alpha, beta, W, whole, blocks, share
    shared = build_shared(tile), geometry, arguments
    groups = divide(blocks // (tiles - whole), tile)
    geometry = Geometry.line((tiles - whole) * tile.BM, groups * tile.BN // 4)
    total = build_total(tile, groups), geometry, (W, C, alpha, beta, whole, share, chunks)
    return [shared, total]


def workspace(problem, tile, multiprocessors):
    """Bytes that are written to the workspace and read from it."""
    tiles = RUNG.geometry(problem.M, problem.N, tile).blocks
    chunks = problem.K // tile.BK if problem.alpha else 0
    whole, blocks = plan(tiles, chunks, multiprocessors * tile.blocks)
    return workspace_bytes(tiles - whole, chunks, blocks, tile.BM, tile.BN)


RUNG = Rung(
    name="split_k",
    title="Split k",
    idea="blocks share the k of the tiles that do not fill the device",
    reference="Osama et al., Stream-K",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.line(-(-M // tile.BM) * -(-N // tile.BN), tile.threads),
    tile=TILE,
    make=build,
    habits=Habits(rereads_edges=True),
    split=split,
    workspace=workspace,
    requires=(8, 0),
)
gemm = RUNG.gemm
