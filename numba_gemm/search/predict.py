"""What the models say of a candidate: whether the device holds it, and how long it may take.

The order of a search, and the choice of a kernel where nothing was measured, need a time for each
candidate: that of the *ranking model*, which is here.  It builds on the *ideal model* of
:mod:`numba_gemm.model.prediction`, which has one for a tile and a block each: that of its arithmetic or
of its memory traffic, whichever is longer, if nothing else counts.  For the same tile and shape the two
say different times, and only the order of this one's is meant.  To tell candidates apart that are equal
by the ideal model, three things are added, all of them coarse:

* Multiply-adds are not all that passes through a thread: for TM * TN of them it reads TM + TN elements,
  and each chunk has its barrier, addresses and copies.  :func:`efficiency` is their share.
* Arithmetic and traffic overlap, but not perfectly: the root of the sum of their squares lies between
  the longer of the two and their sum.
* A rung that divides k among blocks keeps every multiprocessor busy, for ``SPLIT_SECONDS``.
"""

from __future__ import annotations

import math

from ..model import devices
from ..model.occupancy import occupancy
from ..model.prediction import predict
from ..problem import Problem
from ..rung import Rung
from ..rungs import named
from ..tile import Tile
from .space import Candidate

__all__ = [
    "CHUNK_INSTRUCTIONS",
    "LAUNCH_SECONDS",
    "SPLIT_SECONDS",
    "candidate_seconds",
    "efficiency",
    "limits",
    "seconds",
]

SPLIT_SECONDS = 30e-6
"""What sharing tiles costs, as :data:`numba_gemm.rungs.split_k.SPLIT_COSTS` estimates it on an H200."""

CHUNK_INSTRUCTIONS = 64
"""What a thread executes once a chunk, besides multiplying it; an estimate."""

LAUNCH_SECONDS = 2e-6
"""The least that a launch takes on the device, however little it does; an estimate."""


def limits(tile: Tile, gpu: devices.Gpu) -> list[str]:
    """Why no block of *tile* fits on a multiprocessor of *gpu*; empty where one does."""
    share = occupancy(gpu, tile.threads, tile.launch_registers, tile.shared_bytes)
    return [
        f"no block of it fits on a multiprocessor of the {gpu.name}: too few {resource}"
        if resource != "shared memory"
        else f"no block of it fits on a multiprocessor of the {gpu.name}: too little shared memory"
        for resource, blocks in share.limits.items()
        if not blocks
    ]


def efficiency(tile: Tile) -> float:
    """Multiply-adds as a fraction of what passes through a thread for a chunk: see the module."""
    products = tile.BK * tile.TM * tile.TN
    return products / (products + tile.BK * (tile.TM + tile.TN) + CHUNK_INSTRUCTIONS)


def seconds(rung: Rung, tile: Tile | None, problem: Problem, gpu: devices.Gpu) -> float:
    """The time that *rung* with *tile* (its own where None) may take for *problem* on *gpu*.

    Infinite where not one block fits.  A rung without a tile counts as tiles of one entry.
    """
    tile = tile or rung.tile or Tile(1, 1, 1)
    model = predict(problem, tile, gpu)
    if math.isinf(model.arithmetic):
        return math.inf
    whole = math.hypot(model.arithmetic / efficiency(tile), model.memory) + LAUNCH_SECONDS
    if rung.split is None or not problem.reads_operands:
        return whole
    # Every multiprocessor has its share, of whole tiles, and there are warps enough.
    flop = 2 * model.tiling.tiles * tile.BM * tile.BN * problem.K
    shared = math.hypot(flop / gpu.fp32_peak / efficiency(tile), model.memory)
    return min(whole, shared + SPLIT_SECONDS)


def candidate_seconds(candidate: Candidate, problem: Problem, gpu: devices.Gpu) -> float:
    """:func:`seconds` of a candidate.  Raises ValueError where there is no such rung."""
    return seconds(named(candidate.rung), candidate.tile, problem, gpu)
