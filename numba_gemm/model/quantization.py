"""Quantization: an answer is rounded up to whole tiles, and a launch to whole waves.

Tiles that hang over an edge of C compute entries that nobody stores.  And a device holds so many blocks
at a time, a wave; what is left for the last wave leaves the rest of the machine idle.

Where the wave model is pessimistic: it lets every wave take as long as a full one, as if blocks were
released in step.  A multiprocessor takes a new block as soon as one retires, and blocks that share a
multiprocessor go faster when fewer are there: if two blocks keep its arithmetic busy, one alone takes
little more than half of the time that the two take together.  ``wave_rounds`` is the pessimistic count,
``busiest`` the count for multiprocessors that are never held back by having few blocks; measurements
lie between the two, at the first where latency is all and at the second where arithmetic is.

Source: "A GEMM Kernel, Step by Step", "The fringe and the last wave"; NVIDIA, "Matrix Multiplication
Background User's Guide", tile and wave quantization.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Tiling",
    "Waves",
    "busiest",
    "ceil_div",
    "growth",
    "tiling",
    "wave_rounds",
    "waves",
]


def ceil_div(a: int, b: int) -> int:
    """The quotient of two whole numbers, rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class Tiling:
    """A C of M x N covered by ``down`` x ``across`` tiles of BM x BN."""

    M: int
    N: int
    BM: int
    BN: int

    @property
    def down(self) -> int:
        """Tiles in a column."""
        return ceil_div(self.M, self.BM)

    @property
    def across(self) -> int:
        """Tiles in a row."""
        return ceil_div(self.N, self.BN)

    @property
    def tiles(self) -> int:
        """Tiles in all."""
        return self.down * self.across

    @property
    def covered(self) -> tuple[int, int]:
        """Rows and columns that the tiles cover."""
        return self.down * self.BM, self.across * self.BN

    @property
    def computed(self) -> int:
        """Entries that the tiles compute, those beyond the edge included."""
        return self.covered[0] * self.covered[1]

    @property
    def useful(self) -> float:
        """The fraction of them that is part of C; 1 where nothing is computed."""
        return self.M * self.N / self.computed if self.computed else 1.0

    @property
    def excess(self) -> float:
        """Entries computed in vain as a fraction of those of C; 0 where C is empty."""
        return self.computed / (self.M * self.N) - 1 if self.M * self.N else 0.0

    @property
    def last(self) -> tuple[int, int]:
        """Rows and columns of C in the last row and the last column of tiles; 0 of an empty C."""
        return (
            self.M - max(self.down - 1, 0) * self.BM,
            self.N - max(self.across - 1, 0) * self.BN,
        )


def tiling(M: int, N: int, BM: int, BN: int) -> Tiling:
    """How tiles of BM x BN cover a C of M x N; ValueError for a negative size or an empty tile."""
    for name, value, least in (("M", M, 0), ("N", N, 0), ("BM", BM, 1), ("BN", BN, 1)):
        if value < least:
            raise ValueError(f"{name} is {value}; it should be at least {least}")
    return Tiling(M, N, BM, BN)


def growth(before: Tiling, after: Tiling) -> tuple[float, float]:
    """How many times the arithmetic *after* does, and the fraction by which the answer is larger.

    From 256 to 257 columns in tiles of 128: 1.5 times the arithmetic for 0.39% more answer.
    """
    answer = after.M * after.N / (before.M * before.N) - 1
    return after.computed / before.computed, answer


@dataclass(frozen=True)
class Waves:
    """``blocks`` of a launch on a device that holds ``slots`` of them at a time."""

    blocks: int
    slots: int

    @property
    def exact(self) -> float:
        """Waves as a fraction: blocks by slots."""
        return self.blocks / self.slots

    @property
    def run(self) -> int:
        """Waves that the device runs: whole ones."""
        return ceil_div(self.blocks, self.slots)

    @property
    def tail(self) -> int:
        """Blocks in the last wave; 0 where there is none."""
        return self.blocks - max(self.run - 1, 0) * self.slots

    @property
    def efficiency(self) -> float:
        """The fraction of the machine that is busy over all waves; 1 for no blocks."""
        return self.exact / self.run if self.blocks else 1.0


def waves(blocks: int, multiprocessors: int, blocks_per_multiprocessor: int = 1) -> Waves:
    """The waves of a launch; ValueError where the device holds no block at all."""
    for name, value, least in (
        ("blocks", blocks, 0),
        ("multiprocessors", multiprocessors, 1),
        ("blocks_per_multiprocessor", blocks_per_multiprocessor, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}; it should be at least {least}")
    return Waves(blocks, multiprocessors * blocks_per_multiprocessor)


def wave_rounds(blocks: int, multiprocessors: int, blocks_per_multiprocessor: int = 1) -> int:
    """Blocks' worth of arithmetic that a multiprocessor is busy with, if each wave is a full one."""
    return waves(blocks, multiprocessors, blocks_per_multiprocessor).run * blocks_per_multiprocessor


def busiest(blocks: int, multiprocessors: int) -> int:
    """Blocks that the busiest multiprocessor computes, if blocks are dealt out evenly."""
    return waves(blocks, multiprocessors).run
