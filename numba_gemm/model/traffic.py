"""What a rung asks of memory: bytes of global memory, transactions, loads from shared memory.

"Asked for" counts every element that a worker requests, whether DRAM or a cache answers.  A worker is
whoever shares what is read: a thread of the rungs without a tile, the block of the others.

Source: "A GEMM Kernel, Step by Step", rungs one to five; "Naive to Tiled", sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .quantization import ceil_div, tiling
from .roofline import FLOAT32_BYTES

if TYPE_CHECKING:
    from numba_gemm.problem import Problem
    from numba_gemm.tile import Tile

__all__ = [
    "NO_HABITS",
    "SECTOR_BYTES",
    "Habits",
    "Reads",
    "reads",
    "requested_bytes",
    "shared_loads",
    "transactions",
    "worker_bytes",
    "worker_floats",
    "workspace_bytes",
]

SECTOR_BYTES = 32
"""What global memory is read and written in, at least: CUDA C++ Best Practices Guide, "Coalesced
Access to Global Memory"."""


@dataclass(frozen=True)
class Habits:
    """What a rung reads that a worker with a tile need not.

    rereads_edges
        Where a block tile hangs over an edge of C, the last row of A or column of B is read again in
        place of each one that is not there; else nothing is read for it.
    extra_chunks
        Chunks of A and B that a block fetches and does not use.
    """

    rereads_edges: bool = False
    extra_chunks: int = 0


NO_HABITS = Habits()
"""Every element that is read is one that the tile needs."""


def worker_floats(K: int, m: int = 1, n: int = 1) -> int:
    """Floats that a worker reads for m x n entries of C: m rows of A and n columns of B.

    A naive thread at K = 4092 reads 8184.
    """
    return (m + n) * K


def worker_bytes(K: int, m: int = 1, n: int = 1) -> int:
    """The same in bytes: 32736 for that thread."""
    return FLOAT32_BYTES * worker_floats(K, m, n)


def requested_bytes(problem: Problem, m: int, n: int, BK: int = 1, habits: Habits = NO_HABITS) -> int:
    """Bytes a launch asks of global memory when m x n entries of C share what they read.

    Every tile of C reads its m rows of A and n columns of B, so A is asked for once per column of
    tiles and B once per row of tiles; C costs what it must.  m = n = 1 is a kernel without reuse.
    *BK* is the depth of a chunk and *habits* what the kernel reads besides.
    """
    M, N, K = problem.M, problem.N, problem.K
    elements = M * N * (2 if problem.beta != 0 else 1)
    if problem.reads_operands:
        tiles = tiling(M, N, m, n)
        rows, cols = tiles.covered if habits.rereads_edges else (M, N)
        elements += rows * K * tiles.across + cols * K * tiles.down
        if K >= BK:
            elements += tiles.tiles * worker_floats(habits.extra_chunks * BK, m, n)
    return FLOAT32_BYTES * elements


@dataclass(frozen=True)
class Reads:
    """Floats of A and B that a whole block asks global memory for, and a thread's equal part of them."""

    thread: float
    block: int


def reads(K: int, threads: int, tile: Tile | None = None) -> Reads:
    """What a block of *threads* and each of its threads read for a whole tile over all of K.

    With a *tile*, the threads share the BM rows of A and BN columns of B; without one, each reads a row
    and a column for itself.
    """
    block = worker_floats(K, tile.BM, tile.BN) if tile else threads * worker_floats(K)
    return Reads(block / threads, block)


def workspace_bytes(tiles: int, chunks: int, blocks: int, BM: int, BN: int) -> int:
    """Bytes written to and read from the workspace when *blocks* share the k of *tiles*.

    The chunks of all tiles, *chunks* each and all in a row, are dealt out in equal shares.  Each part of
    a tile that lies in one share is a partial sum of BM x BN floats, written once and read once.
    """
    if not blocks:
        return 0
    share = ceil_div(tiles * chunks, blocks)
    starts = set(range(0, tiles * chunks, share)) | set(range(0, tiles * chunks, chunks))
    return 2 * FLOAT32_BYTES * BM * BN * len(starts)


def transactions(addresses: Sequence[int] | np.ndarray, width: int = FLOAT32_BYTES) -> int:
    """Sectors of 32 bytes that the lanes of a warp touch, *width* bytes from each of *addresses* on.

    Lanes a row apart touch 32, neighbours 4, and lanes that want the same element 1.
    """
    first = np.asarray(addresses, dtype=np.int64)
    touched = np.concatenate([first // SECTOR_BYTES, (first + width - 1) // SECTOR_BYTES])
    return len(np.unique(touched))


def shared_loads(TM: int = 1, TN: int = 1, vector: int = 1) -> float:
    """Loads from shared memory for one multiply-add of a thread that computes TM x TN entries of C.

    For each k it reads TM elements of A and TN of B, *vector* at a time, and multiplies each with each:
    (TM + TN) / (TM * TN), which is 2 for one entry and (TM + 1) / TM for a column.
    """
    return (ceil_div(TM, vector) + ceil_div(TN, vector)) / (TM * TN)
