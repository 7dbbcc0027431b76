"""A rung of the ladder: one kernel, and what there is to know about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import harness
from .harness import Geometry
from .model import traffic
from .problem import Problem
from .tile import Tile, TileError

__all__ = ["Rung"]


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder.

    name
        The module's name in :mod:`numba_gemm.rungs`.
    title, idea
        What to call it, and what it does that the rung below does not, in a sentence.
    reference
        Where the idea is published, with Boehm's kernel number where it has one.
    kernel
        The ``@cuda.jit`` kernel at the default tile: ``kernel[grid, block](A, B, C, alpha, beta)``.
    cover
        ``cover(M, N, tile)``: the grid and block for a C of M x N.
    tile
        The default tile parameters, or None for a rung that has none.
    tiles
        The tile parameters by compute capability, for a rung that has other ones on other GPUs.
    make
        Makes the kernel for other tile parameters; None for a rung that has none.
    split
        Divides a multiply into several launches, for a rung that needs more than its one kernel:
        ``split(A, B, C, alpha, beta, tile, multiprocessors, stream)`` returns the kernel, geometry and
        arguments of each, in order.
    habits
        What its blocks read of A and B beyond their tile's share.
    workspace
        ``workspace(problem, tile, multiprocessors)``: the bytes it writes to and reads from a workspace,
        for a rung that has one.
    requires
        The lowest compute capability that runs it.
    """

    name: str
    title: str
    idea: str
    reference: str
    kernel: Any = field(repr=False)
    cover: Callable[[int, int, Any], Geometry] = field(repr=False)
    tile: Tile | None = None
    tiles: Mapping[tuple[int, int], Tile] = field(default_factory=dict, repr=False, hash=False)
    make: Callable[[Tile], Any] | None = field(default=None, repr=False)
    split: Callable[..., list[tuple[Any, Geometry, tuple[Any, ...]]]] | None = field(
        default=None, repr=False
    )
    habits: traffic.Habits = traffic.NO_HABITS
    workspace: Callable[[Problem, Tile, int], int] | None = field(default=None, repr=False)
    requires: tuple[int, int] = (7, 0)

    def build(self, tile: Tile | None = None) -> Any:
        """The kernel for *tile*, the rung's own by default.

        Raises TileError, a ValueError, where the tile is illegal or the rung has no tile parameters,
        and TypeError where it is no tile.
        """
        if not isinstance(tile, Tile | None):
            raise TypeError(f"tile is a {type(tile).__name__}; it should be a Tile")
        if tile is None or tile == self.tile:
            return self.kernel
        if self.make is None:
            raise TileError(tile, [f"the rung {self.name} has no tile parameters"])
        with harness.between_launches():
            return self.make(tile)

    def tile_on(self, compute_capability: tuple[int, int]) -> Tile | None:
        """The tile for GPUs of that compute capability: the default one where it has no other."""
        return self.tiles.get(compute_capability, self.tile)

    def why_illegal(self, tile: Tile) -> list[str]:
        """Every reason why this rung cannot be built for *tile*; empty where it can."""
        try:
            self.build(tile)
        except TileError as error:
            return error.reasons
        return []

    def geometry(self, M: int, N: int, tile: Tile | None = None) -> Geometry:
        """The launch geometry, grid and block, for a C of M x N."""
        return self.cover(M, N, tile or self.tile)

    @property
    def reuse(self) -> tuple[int, int]:
        """Rows and columns of C that share what is read from global memory: (1, 1) without a tile."""
        return (self.tile.BM, self.tile.BN) if self.tile else (1, 1)

    def requested_bytes(
        self, problem: Problem, tile: Tile | None = None, multiprocessors: int | None = None
    ) -> int:
        """Bytes it asks of global memory, what it reads again and its workspace included.

        *multiprocessors* is how many there are to share the work; by default, as many as the device
        has, or as the harness assumes in the simulator.
        """
        tile = tile or self.tile
        if tile is None:
            return traffic.requested_bytes(problem, 1, 1, habits=self.habits)
        requested = traffic.requested_bytes(problem, tile.BM, tile.BN, tile.BK, self.habits)
        if self.workspace:
            requested += self.workspace(problem, tile, multiprocessors or harness.multiprocessors())
        return requested

    def gemm(
        self,
        A: Any,
        B: Any,
        C: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        *,
        tile: Tile | None = None,
        stream: Any = None,
        verify: bool = False,
    ) -> Any:
        """``C <- alpha * A @ B + beta * C`` with this rung; see :func:`numba_gemm.gemm`."""
        return harness.run(self, A, B, C, alpha, beta, tile=tile, stream=stream, verify=verify)
