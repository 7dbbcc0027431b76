"""Bank conflicts: how many passes through shared memory a warp's request takes.

Shared memory has 32 banks of four bytes.  In one pass, a *wavefront*, each bank serves one word of four
bytes to whichever lanes want it; lanes that want different words of a bank wait for each other.

A request for 8 or 16 bytes a lane moves more than the 128 bytes that come back in a cycle, so it is
served in two or four phases of 16 or 8 consecutive lanes, and only lanes of a phase can conflict.
A load takes half as many phases, of twice as many lanes, where in the whole warp each lane wants the
same address as its neighbour (lane ^ 1) or as the next but one (lane ^ 2), since what comes back can
then be handed to two lanes at once.

Source: CUDA C++ Programming Guide, "Shared Memory"; for the phases and their halving, the answer
of NVIDIA's staff in the developer forum, "Unexpected shared memory bank conflict" (77228), for compute
capability 7.x.  ``bench/bank_conflicts.py`` holds it against what the profiler counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .occupancy import WARP

if TYPE_CHECKING:
    from numba_gemm.tile import Tile

__all__ = [
    "BANKS",
    "LAYOUTS",
    "Access",
    "accesses",
    "layout",
    "read_a",
    "read_b",
    "read_b_linearized",
    "store_a",
    "store_b",
    "store_b_linearized",
]

BANKS = 32
WORD_BYTES = 4
VECTOR = 4  # floats in 16 bytes

PIECE = 4
"""Rows and columns of the pieces that a split thread tile is in."""


@dataclass(frozen=True, eq=False)
class Access:
    """One request of a warp: *width* bytes, 4, 8 or 16, from each lane's byte address on.

    *addresses* has one for each of up to 32 lanes, in their order; a negative one is a lane that does
    not take part.  *store* tells a store from a load.  Raises ValueError for another width, too many
    lanes, and an address that is no multiple of the width.
    """

    addresses: np.ndarray
    width: int = WORD_BYTES
    store: bool = False
    what: str = ""

    def __post_init__(self) -> None:
        addresses = np.asarray(self.addresses, dtype=np.int64)
        object.__setattr__(self, "addresses", addresses)
        if self.width not in (4, 8, 16):
            raise ValueError(f"width is {self.width}; it should be 4, 8 or 16 bytes")
        if addresses.ndim != 1 or not 1 <= len(addresses) <= WARP:
            raise ValueError(
                f"addresses is of shape {addresses.shape}; it should have one for each of "
                f"1 to {WARP} lanes"
            )
        odd = addresses[(addresses >= 0) & (addresses % self.width != 0)]
        if len(odd):
            raise ValueError(f"address {odd[0]} should be a multiple of {self.width}")

    @property
    def phases(self) -> list[np.ndarray]:
        """The addresses of each phase, without lanes that do not take part."""
        lanes = np.full(WARP, -1, dtype=np.int64)
        lanes[: len(self.addresses)] = self.addresses
        count = self.width // WORD_BYTES
        if count > 1 and not self.store and self._pairs(lanes):
            count //= 2
        phases = [phase[phase >= 0] for phase in np.split(lanes, count)]
        return [phase for phase in phases if len(phase)]

    @staticmethod
    def _pairs(lanes: np.ndarray) -> bool:
        """Whether all lanes want what lane ^ 1 wants, or all what lane ^ 2 wants."""
        numbers = np.arange(WARP)
        for distance in (1, 2):
            other = lanes[numbers ^ distance]
            if np.all((lanes == other) | (lanes < 0) | (other < 0)):
                return True
        return False

    @property
    def words(self) -> np.ndarray:
        """Different words wanted of each bank in each phase, phases x 32."""
        offsets = np.arange(0, self.width, WORD_BYTES)
        counts = []
        for phase in self.phases:
            words = np.unique((phase[:, None] + offsets) // WORD_BYTES)
            counts.append(np.bincount(words % BANKS, minlength=BANKS))
        return np.array(counts, dtype=np.int64).reshape(-1, BANKS)

    @property
    def wavefronts(self) -> int:
        """Passes that the request takes: for each phase, as many as its busiest bank has words."""
        return int(self.words.max(axis=1, initial=0).sum())

    @property
    def degree(self) -> int:
        """Lanes that wait for one another at the worst bank: 1 without a conflict, 0 without a lane."""
        return int(self.words.max(initial=0))


# What the rungs' warps ask for ---------------------------------------------------------------------


def _threads(warp: int) -> np.ndarray:
    """Numbers of the threads of a warp in its block."""
    return WARP * warp + np.arange(WARP)


def _corner(tile: Tile, warp: int, split: bool) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each thread's first entry in the block tile."""
    thread = _threads(warp)
    down, across = (PIECE, PIECE) if split else (tile.TM, tile.TN)
    if tile.WM is None or tile.WN is None:
        lanes_across = tile.BN // tile.TN
        return thread // lanes_across * down, thread % lanes_across * across
    warps_across, lanes_across = tile.BN // tile.WN, tile.lanes[1]
    lane = thread % WARP
    row = warp // warps_across * tile.WM + lane // lanes_across * down
    col = warp % warps_across * tile.WN + lane % lanes_across * across
    return row, col


def _lanes(tile: Tile) -> tuple[int, int]:
    """Threads down and across what is dealt out at once: a warp tile, or the block tile."""
    return tile.lanes if tile.WM else (tile.BM // tile.TM, tile.BN // tile.TN)


def read_a(
    tile: Tile, padding: int = 0, split: bool = False, *, warp: int = 0, k: int = 0, i: int = 0
) -> Access:
    """Four floats of A, transposed in shared memory (As[k, row]), from entry *i* of each thread on.

    Rows of As are longer than BM by *padding* floats.  With *split*, thread tiles are in pieces of
    4 x 4, as far apart as a warp tile allows, so that lanes side by side read side by side.
    """
    row, _ = _corner(tile, warp, split)
    row = row + i * (_lanes(tile)[0] if split else 1)
    return Access(WORD_BYTES * (k * (tile.BM + padding) + row), 16, what="read 4 floats of A")


def read_b(tile: Tile, split: bool = False, *, warp: int = 0, k: int = 0, j: int = 0) -> Access:
    """Four floats of B (Bs[k, col]) from entry *j* of each thread on; *split* as in ``read_a``."""
    _, col = _corner(tile, warp, split)
    col = col + j * (_lanes(tile)[1] if split else 1)
    return Access(WORD_BYTES * (k * tile.BN + col), 16, what="read 4 floats of B")


def store_a(tile: Tile, padding: int = 0, along_k: int | None = None, *, warp: int = 0) -> Access:
    """One float of A a thread, stored transposed; the first of those that it stores.

    A thread has four neighbours of k, and two lanes share a row as far as ``quad_of`` can deal them out
    so; with *along_k*, so many threads share a row and have one k each, as ``copy_async`` does.
    """
    thread = _threads(warp)
    if along_k is None:
        quads = tile.BK // VECTOR
        along, down = quads if quads % 2 else 2, tile.threads // quads
        row = thread // along % down
        k = (thread // (along * down) * along + thread % along) * VECTOR
    else:
        row, k = thread // along_k, thread % along_k
    addresses = WORD_BYTES * (k * (tile.BM + padding) + row)
    return Access(addresses, store=True, what="store 1 float of A")


def store_b(tile: Tile, *, warp: int = 0) -> Access:
    """Four floats of B a thread, stored as they come."""
    thread = _threads(warp)
    across = tile.BN // VECTOR
    k, col = thread // across, thread % across * VECTOR
    return Access(WORD_BYTES * (k * tile.BN + col), 16, True, "store 4 floats of B")


def _linearized(tile: Tile, k: np.ndarray, col: np.ndarray) -> np.ndarray:
    """Where Boehm's kernel 7 keeps Bs[k, col]: what a thread reads at once, TN columns apart."""
    threads = tile.BN // tile.TN
    address: np.ndarray = WORD_BYTES * ((k * tile.TN + col % tile.TN) * threads + col // tile.TN)
    return address


def read_b_linearized(tile: Tile, *, warp: int = 0, k: int = 0, j: int = 0) -> Access:
    """One float of B a thread from a chunk laid out so that lanes side by side read neighbours."""
    col = _threads(warp) % (tile.BN // tile.TN) * tile.TN + j
    return Access(_linearized(tile, np.full_like(col, k), col), what="read 1 float of B")


def store_b_linearized(tile: Tile, *, warp: int = 0) -> Access:
    """One float of B a thread, stored into that layout; the first of the four that it stores."""
    thread = _threads(warp)
    across = tile.BN // VECTOR
    k, col = thread // across, thread % across * VECTOR
    return Access(_linearized(tile, k, col), store=True, what="store 1 float of B")


def _tiled2d(tile: Tile) -> tuple[Access, ...]:
    """A warp is a row of the block: all lanes read the same of A, four k at a time, and a row of B."""
    lane = np.arange(WARP)
    return (
        Access(WORD_BYTES * lane, store=True, what="store 1 float of A"),
        Access(WORD_BYTES * lane, store=True, what="store 1 float of B"),
        Access(np.zeros(WARP), 16, what="read 4 floats of A"),
        Access(WORD_BYTES * (lane % tile.BN), what="read 1 float of B"),
    )


LAYOUTS = ("unpadded", "padded", "linearized", "split", "asynchronous")


def layout(name: str, tile: Tile, padding: int | None = None) -> tuple[Access, ...]:
    """What the first warp of a block asks of shared memory with the layout *name*, store to read.

    ``unpadded``
        Rows of As are BM floats; a thread tile is one piece (the rungs vectorized and warptiled).
    ``padded``
        Rows of As are longer by *padding* floats, 4 by default: 132 for 128.
    ``linearized``
        Bs as in Boehm's kernel 7, which no rung has.
    ``split``
        Padded, and a thread tile in pieces of 4 x 4 (padded, double_buffered).
    ``asynchronous``
        The same, with rows longer by 8, and A stored by the float (async_copy, split_k).

    Raises ValueError for another name.
    """
    if name not in LAYOUTS:
        raise ValueError(f"there is no layout {name!r}; there are {', '.join(LAYOUTS)}")
    usual = {"padded": 4, "split": 4, "asynchronous": 8}.get(name, 0)
    pad = usual if padding is None else padding
    split = name in ("split", "asynchronous")
    if name == "linearized":
        b = store_b_linearized(tile), read_b_linearized(tile)
    else:
        b = store_b(tile), read_b(tile, split)
    along_k = 4 if name == "asynchronous" else None
    return store_a(tile, pad, along_k), b[0], read_a(tile, pad, split), b[1]


RUNG_LAYOUTS = {
    "vectorized": "unpadded",
    "autotuned": "unpadded",
    "warptiled": "unpadded",
    "padded": "split",
    "double_buffered": "split",
    "async_copy": "asynchronous",
    "split_k": "asynchronous",
}


def accesses(rung: str, tile: Tile) -> tuple[Access, ...]:
    """What the first warp of a block of the rung of that name asks of shared memory.

    The scalar rungs above tiled2d, column and square, are left to the compiler, which joins loads of
    neighbouring k as it likes; for them and for rungs without shared memory there is nothing.
    """
    if rung == "tiled2d":
        return _tiled2d(tile)
    return layout(RUNG_LAYOUTS[rung], tile) if rung in RUNG_LAYOUTS else ()
