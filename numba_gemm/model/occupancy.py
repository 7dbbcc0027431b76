"""Occupancy: how many blocks, and so warps, share a multiprocessor.

A block needs its registers, its shared memory and room among the warps and blocks all at once, and
keeps them from start to finish.  Whichever runs out first is the limit.

Source: CUDA C++ Best Practices Guide, "Calculating Occupancy"; the rules by which registers and shared
memory are given out are those of ``cuda_occupancy.h`` in NVIDIA's toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .quantization import ceil_div

if TYPE_CHECKING:
    from .devices import Gpu

__all__ = ["WARP", "Occupancy", "block_registers", "occupancy"]

WARP = 32
MAX_THREADS = 1024


@dataclass(frozen=True)
class Occupancy:
    """What fits on one multiprocessor.

    ``blocks`` and ``warps`` at a time, of at most ``max_warps``; ``limits`` has, for each resource, the
    blocks that it has room for.
    """

    blocks: int
    warps: int
    max_warps: int
    limits: dict[str, int]

    @property
    def fraction(self) -> float:
        """Warps that are there as a fraction of those that could be: the occupancy."""
        return self.warps / self.max_warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that run out first."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks)


def _round_up(value: int, step: int) -> int:
    return ceil_div(value, step) * step


def block_registers(threads: int, registers: int, granularity: int = 1) -> int:
    """Registers of a block of *threads* with so many each, given to a warp in steps of *granularity*.

    64 sums a thread and 256 threads make 16384, before anything else is counted.
    """
    return ceil_div(threads, WARP) * _round_up(registers * WARP, granularity)


def occupancy(gpu: Gpu, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Blocks of *threads* that share a multiprocessor of *gpu*.

    *registers* are those of a thread, *shared_bytes* those of a block, without what the system reserves.
    There is room for 0 blocks where one asks for more than a block may have.

    Raises ValueError for threads that are not 1 to 1024 and for negative registers or bytes.
    """
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"threads is {threads}; it should be from 1 to {MAX_THREADS}")
    for name, value in (("registers", registers), ("shared_bytes", shared_bytes)):
        if value < 0:
            raise ValueError(f"{name} is {value}; it should be at least 0")
    limits = gpu.limits
    warps = ceil_div(threads, WARP)
    room = {
        "registers": limits.blocks,
        "shared memory": limits.blocks,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    if registers > limits.max_registers:
        room["registers"] = 0
    elif registers:
        # A warp lives in one part of the multiprocessor, with a part of the registers.
        a_warp = block_registers(WARP, registers, limits.register_granularity)
        in_one_part = limits.registers // limits.schedulers // a_warp
        room["registers"] = in_one_part * limits.schedulers // warps
    if shared_bytes > limits.shared_bytes_per_block:
        room["shared memory"] = 0
    elif shared_bytes or limits.reserved_shared_bytes:
        taken = _round_up(shared_bytes + limits.reserved_shared_bytes, limits.shared_granularity)
        room["shared memory"] = limits.shared_bytes // taken
    blocks = min(room.values())
    return Occupancy(blocks, blocks * warps, limits.warps, room)
