"""The wave cliff, measured: launches of more and more blocks, from below one wave to above two.

C is one tile wide and as many tiles high as there are to be blocks, so every block does the same: BM x K
of A that no other block reads, all of B, a tile of C.  If waves were all there is, time would be flat up
to a full wave and twice as long for one block more.  :mod:`numba_gemm.model.quantization` says where
that model is pessimistic and why; the second curve of the picture counts the blocks of the busiest
multiprocessor instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from . import harness, timing
from .model import devices, occupancy, quantization
from .problem import Problem
from .rung import Rung
from .rungs import async_copy, square
from .target import TARGET, cuda
from .tile import Tile

__all__ = ["DEPTH", "Point", "Series", "block_counts", "measure", "measure_all", "resources"]

DEPTH = 2048
"""K of each launch: deep enough that a block's beginning and end do not count."""

WAVES = 2
"""Full waves to go up to, and one block more."""

RUNGS = (square.RUNG, async_copy.RUNG)
"""Whose tiles are measured: one with several blocks to a multiprocessor and one with few."""


@dataclass(frozen=True)
class Point:
    """One launch: its blocks, the rows of C they make, and the device time with its spread."""

    blocks: int
    M: int
    seconds: float
    spread: float


@dataclass(frozen=True)
class Series:
    """All launches of one rung, and what its compiled kernel takes of a multiprocessor."""

    rung: str
    tile: Tile
    N: int
    K: int
    registers: int
    shared_bytes: int
    multiprocessors: int
    blocks_per_multiprocessor: int
    points: tuple[Point, ...]

    @property
    def label(self) -> str:
        """The rung and its block tile."""
        return f"{self.rung}, {self.tile.BM} x {self.tile.BN}"

    @property
    def slots(self) -> int:
        """Blocks in a full wave."""
        return self.multiprocessors * self.blocks_per_multiprocessor

    def seconds(self, blocks: int) -> float:
        """Measured time of a launch of so many blocks."""
        return next(point.seconds for point in self.points if point.blocks == blocks)

    def cliff(self) -> dict[str, float]:
        """One block more than a full wave, as a multiple of a full wave: measured, and the models'."""
        per, count = self.blocks_per_multiprocessor, self.slots
        return {
            "measured": self.seconds(count + 1) / self.seconds(count),
            "whole_waves": quantization.wave_rounds(count + 1, self.multiprocessors, per) / per,
            "busiest": quantization.busiest(count + 1, self.multiprocessors) / per,
        }

    def as_dict(self) -> dict[str, Any]:
        """The series and its cliff, ready for JSON."""
        return asdict(self) | {"label": self.label, "cliff": self.cliff()}


def block_counts(multiprocessors: int, per: int) -> list[int]:
    """Numbers of blocks to launch: fractions of a wave, and both sides of every step of both models."""
    slots = multiprocessors * per
    steps = {multiprocessors * n + more for n in range(WAVES * per + 1) for more in (0, 1)}
    fractions = {max(1, slots * quarter // 4) for quarter in range(1, 4 * WAVES)}
    return sorted((steps | fractions) - {0})


def resources(kernel: Any) -> tuple[int, int]:
    """Registers of a thread and bytes of shared memory of a block of a kernel that has been launched."""
    compiled = next(iter(kernel.overloads.values()))
    return int(compiled.regs_per_thread), int(compiled.shared_mem_per_block)


def measure(rung: Rung, seed: int, progress: Callable[[], None] = lambda: None) -> Series:
    """Time launches of *rung* at its own tile; one is compared with numpy first.

    Raises RuntimeError without a GPU, and VerificationError where the result is wrong.
    """
    if not TARGET.is_gpu:
        raise RuntimeError(f"device time needs a GPU, but {TARGET.reason}")
    gpu, tile = devices.current(), rung.tile
    assert gpu
    assert tile
    first = Problem(tile.BM, tile.BN, DEPTH)
    A, B, C = harness.random_operands(first.M, first.N, first.K, seed)
    C.fill(float("nan"))
    device_A, device_B, device_C = (cuda.to_device(array) for array in (A, B, C))
    harness.prepare(rung, device_A, device_B, device_C, first)()
    outcome = harness.compare_with_numpy(first, A, B, device_C.copy_to_host())
    if not outcome.passed:
        raise harness.VerificationError(f"{rung.name}: the result is wrong at {outcome.where}")

    registers, shared_bytes = resources(rung.kernel)
    share = occupancy.occupancy(gpu, tile.threads, registers, shared_bytes)
    counts = block_counts(gpu.multiprocessors, share.blocks)
    A, _, C = harness.random_operands(counts[-1] * tile.BM, tile.BN, DEPTH, seed)
    device_A, device_C = cuda.to_device(A), cuda.to_device(C)
    points = []
    for blocks in counts:
        problem = Problem(blocks * tile.BM, tile.BN, DEPTH)
        launch = harness.prepare(rung, device_A[: problem.M], device_B, device_C[: problem.M], problem)
        measured = timing.device_time(launch)
        points.append(Point(blocks, problem.M, measured.median, measured.spread))
        progress()
    return Series(
        rung.name,
        tile,
        tile.BN,
        DEPTH,
        registers,
        shared_bytes,
        gpu.multiprocessors,
        share.blocks,
        tuple(points),
    )


def measure_all(seed: int, progress: Callable[[], None] = lambda: None) -> list[Series]:
    """Measure the rungs of ``RUNGS`` that this GPU runs."""
    gpu = devices.current()
    able = [rung for rung in RUNGS if gpu is None or rung.requires <= gpu.compute_capability]
    return [measure(rung, seed, progress) for rung in able]
