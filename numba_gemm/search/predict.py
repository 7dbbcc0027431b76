"""What the models say of a candidate: whether the device holds it, and how long it may take.

The order of a search and the choice of a kernel where nothing was measured need a time for each
candidate.  :mod:`numba_gemm.model.prediction` has one for a tile and a block each.  Two things are added
here, both coarse:

* A multiply-add is not all that passes through a thread: for TM * TN of them it reads TM + TN elements.
  Arithmetic is given TM * TN / (TM * TN + TM + TN) of its speed: 0.84 for 8 x 16, 0.67 for 4 x 4.
* A rung that divides k among blocks keeps every multiprocessor busy, for ``SPLIT_SECONDS``.
"""

from __future__ import annotations

import math

from ..model import devices
from ..model.occupancy import occupancy
from ..model.prediction import predict
from ..problem import Problem
from ..rung import Rung
from ..tile import Tile
from .space import Candidate

__all__ = ["LAUNCH_SECONDS", "SPLIT_SECONDS", "limits", "seconds"]

SPLIT_SECONDS = 30e-6
"""What sharing tiles costs, as :data:`numba_gemm.rungs.split_k.SPLIT_COSTS` estimates it on an H200."""

LAUNCH_SECONDS = 2e-6
"""The least that a launch takes on the device, however little it does; an estimate."""


def limits(tile: Tile, gpu: devices.Gpu) -> list[str]:
    """Why no block of *tile* fits on a multiprocessor of *gpu*; empty where one does."""
    share = occupancy(gpu, tile.threads, tile.registers, tile.shared_bytes)
    return [
        f"no block of it fits on a multiprocessor of the {gpu.name}: too few {resource}"
        if resource != "shared memory"
        else f"no block of it fits on a multiprocessor of the {gpu.name}: too little shared memory"
        for resource, blocks in share.limits.items()
        if not blocks
    ]


def efficiency(tile: Tile) -> float:
    """Multiply-adds as a fraction of all that passes through a thread: them, and the elements it reads."""
    products = tile.TM * tile.TN
    return products / (products + tile.TM + tile.TN)


def seconds(rung: Rung, tile: Tile | None, problem: Problem, gpu: devices.Gpu) -> float:
    """The time that *rung* with *tile* (its own where None) may take for *problem* on *gpu*.

    Infinite where not one block fits.  A rung without a tile counts as tiles of one entry.
    """
    tile = tile or rung.tile or Tile(1, 1, 1)
    model = predict(problem, tile, gpu)
    if math.isinf(model.arithmetic):
        return math.inf
    arithmetic = model.arithmetic / efficiency(tile)
    whole = max(arithmetic, model.memory) + LAUNCH_SECONDS
    if rung.split is None or not problem.reads_operands:
        return whole
    # Every multiprocessor has its share, of whole tiles, and there are warps enough.
    flop = 2 * model.tiling.tiles * tile.BM * tile.BN * problem.K
    shared = max(flop / gpu.fp32_peak / efficiency(tile), model.memory)
    return min(whole, shared + SPLIT_SECONDS)


def candidate_seconds(candidate: Candidate, problem: Problem, gpu: devices.Gpu) -> float:
    """:func:`seconds` of a candidate.  Raises ValueError where there is no such rung."""
    from ..dispatch import named

    return seconds(named(candidate.rung), candidate.tile, problem, gpu)
