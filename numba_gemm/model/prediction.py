"""One multiply on one GPU: the time that a tile would take, and the time that no kernel can beat.

This is the *ideal model*.  The *ranking model* of :mod:`numba_gemm.search.predict`, by which candidates
are ordered and ``dispatch.explain`` speaks, adds estimates of other costs to it and lets tiles be
shared, so that the two give different times for the same tile and shape.

The ideal prediction is what is left when a kernel does nothing wrong: every instruction but the
multiply-adds is free, and what is waited for is hidden.  It takes the longer of

* arithmetic: the busiest multiprocessor computes its tiles, whole ones even at an edge, at its share of
  the peak, or at less where too few independent multiply-adds are on it to begin one every cycle;
* memory: everything that the tiles ask of global memory arrives at the bandwidth of DRAM.

The second is pessimistic, as caches answer much of it; it is far from the first for the large tiles
that one would choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import quantization, roofline, traffic
from .occupancy import WARP, Occupancy, occupancy

if TYPE_CHECKING:
    from numba_gemm.problem import Problem
    from numba_gemm.tile import Tile

    from .devices import Gpu

__all__ = ["FMA_LATENCY", "Prediction", "floor_seconds", "predict", "predicted_seconds"]

FMA_LATENCY = 4
"""Cycles until the result of an FP32 multiply-add can be used, from compute capability 7.0 on.

Source: Z. Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018."""


@dataclass(frozen=True)
class Prediction:
    """What a tile makes of a problem on a GPU; times in seconds.

    ``seconds`` is infinite where not even one block fits on a multiprocessor.  ``floor`` is the time no
    kernel can beat, whatever its tile.
    """

    arithmetic: float
    memory: float
    floor: float
    occupancy: Occupancy
    tiling: quantization.Tiling
    waves: quantization.Waves | None
    requested_bytes: int

    @property
    def seconds(self) -> float:
        """The time this tile would take if nothing else limits it."""
        return max(self.arithmetic, self.memory)


def floor_seconds(problem: Problem, gpu: Gpu) -> float:
    """The time no kernel can beat: all arithmetic at the peak, or each byte once at the bandwidth."""
    flop = problem.product_flops if problem.reads_operands else 0
    return max(
        roofline.arithmetic_seconds(flop, gpu.fp32_peak),
        roofline.memory_seconds(problem.compulsory_bytes, gpu.memory_bandwidth),
    )


def predict(
    problem: Problem,
    tile: Tile,
    gpu: Gpu,
    registers: int | None = None,
    shared_bytes: int | None = None,
    *,
    requested_bytes: int | None = None,
    even: bool = False,
) -> Prediction:
    """Model *problem* computed in tiles of *tile*, one block each, on *gpu*.

    *registers* of a thread and *shared_bytes* of a block are those of a compiled kernel where they are
    given, else the tile's own estimates, no more registers than its launch bounds leave.
    *requested_bytes* is what the launch asks of global memory, where more is known of it than the tile.
    With *even*, blocks share the last tiles so that all multiprocessors have equally much to do, at no
    cost, as split_k tries.  The tile is taken to be legal.
    """
    share = occupancy(
        gpu,
        tile.threads,
        tile.launch_registers if registers is None else registers,
        tile.shared_bytes if shared_bytes is None else shared_bytes,
    )
    tiles = quantization.tiling(problem.M, problem.N, tile.BM, tile.BN)
    requested = requested_bytes
    if requested is None:
        requested = traffic.requested_bytes(problem, tile.BM, tile.BN)
    arithmetic, waves = math.inf, None
    if share.blocks:
        waves = quantization.waves(tiles.tiles, gpu.multiprocessors, share.blocks)
        rounds: float = quantization.busiest(tiles.tiles, gpu.multiprocessors)
        if even:
            rounds = tiles.tiles / gpu.multiprocessors
        flop = 0.0
        if problem.reads_operands:
            flop = rounds * roofline.product_flops(tile.BM, tile.BN, problem.K)
        warps = min(share.blocks, math.ceil(rounds)) * quantization.ceil_div(tile.threads, WARP)
        in_flight = WARP * warps * tile.TM * tile.TN
        busy = min(1.0, in_flight / (gpu.limits.fp32_lanes * FMA_LATENCY))
        peak = gpu.fp32_peak / gpu.multiprocessors * busy
        arithmetic = roofline.arithmetic_seconds(flop, peak) if flop else 0.0
    return Prediction(
        arithmetic=arithmetic,
        memory=roofline.memory_seconds(requested, gpu.memory_bandwidth),
        floor=floor_seconds(problem, gpu),
        occupancy=share,
        tiling=tiles,
        waves=waves,
        requested_bytes=requested,
    )


def predicted_seconds(
    problem: Problem,
    tile: Tile,
    gpu: Gpu,
    registers: int | None = None,
    shared_bytes: int | None = None,
) -> float:
    """The time this tile would take if nothing else limits it; see :func:`predict`."""
    return predict(problem, tile, gpu, registers, shared_bytes).seconds
