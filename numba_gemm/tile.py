"""Tile parameters: how a rung cuts C into blocks and threads, and which cuts are legal."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Tile", "TileError"]

# Limits of a block; from REGISTERS on, what the blocks of a multiprocessor share (compute capability
# 8.6, the least since Ampere).
WARP = 32
MAX_THREADS = 1024
MAX_SHARED_BYTES = 48 * 1024
MAX_REGISTERS = 255
REGISTERS = 64 * 1024
THREADS = 1536
SHARED_BYTES = 100 * 1024
RESERVED_SHARED_BYTES = 1024
MAX_BLOCKS = 16


class TileError(ValueError):
    """These tile parameters do not make a kernel; ``reasons`` lists why, and so does the message."""

    def __init__(self, tile: object, reasons: list[str]) -> None:
        super().__init__(str(tile), reasons)  # all of it, so that it can be pickled
        self.tile = str(tile)
        self.reasons = reasons

    def __str__(self) -> str:
        return f"{self.tile} is illegal: {'; '.join(self.reasons)}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


@dataclass(frozen=True)
class Tile:
    """A block tile of BM x BN entries of C, advanced BK at a time along k, TM x TN entries a thread.

    BM, BN
        Rows and columns of C that one block of threads computes.
    BK
        Depth of the chunks of A (BM x BK) and B (BK x BN) held in shared memory.
    TM, TN
        Rows and columns of C that one thread computes and keeps in registers.
    WM, WN
        Rows and columns of C that one warp computes; None for a rung that deals out threads without
        regard to warps.
    stages
        Chunks held in shared memory at a time.

    Any whole numbers may be written down; what is wrong with them is said when a kernel is built.
    Anything else raises TileError.
    """

    BM: int
    BN: int
    BK: int
    TM: int = 1
    TN: int = 1
    WM: int | None = None
    WN: int | None = None
    stages: int = 1

    def __post_init__(self) -> None:
        # Here and not later: kernels are cached by tile, and 32.0 == 32.
        wrong = [
            f"{name} is {value!r}; it should be a whole number"
            for name, value in asdict(self).items()
            if type(value) is not int and not (value is None and name in ("WM", "WN"))
        ]
        if (self.WM is None) != (self.WN is None):
            wrong.append(f"WM is {self.WM} and WN is {self.WN}; both should be given, or neither")
        if wrong:
            raise TileError("this tile", wrong)

    @property
    def threads(self) -> int:
        """Threads in a block; 0 of a thread tile without entries, which no kernel has."""
        if self.TM < 1 or self.TN < 1:
            return 0
        return (self.BM // self.TM) * (self.BN // self.TN)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for the chunks of A and B in float32, without padding."""
        return 4 * (self.BM + self.BN) * self.BK * self.stages

    @property
    def registers(self) -> int:
        """Registers a thread cannot do without: its sums, its fragments and 24 for addresses."""
        return self.TM * self.TN + self.TM + self.TN + 24

    @property
    def register_cap(self) -> int:
        """Registers a thread gets at most: what it needs in steps of 32, as far as a block has them."""
        a_block_has = REGISTERS // max(1, self.threads) // 8 * 8  # they are dealt out in eights
        return min(-(-self.registers // 32) * 32, a_block_has, MAX_REGISTERS)

    @property
    def blocks(self) -> int:
        """Blocks to keep on a multiprocessor, as many as have the registers they need."""
        threads = max(1, self.threads)
        by_registers = REGISTERS // (self.registers * threads)
        by_threads = THREADS // threads
        by_shared_memory = SHARED_BYTES // (self.shared_bytes + RESERVED_SHARED_BYTES)
        return max(1, min(by_registers, by_threads, by_shared_memory, MAX_BLOCKS))

    @property
    def launch_registers(self) -> int:
        """Registers a thread gets where a kernel asks for ``blocks``: what it needs, or what they leave.

        A block of 512 threads that each need 41 is one of three, which have 40 each.
        """
        a_thread_has = REGISTERS // (self.blocks * max(1, self.threads)) // 8 * 8
        return min(self.registers, a_thread_has)

    def check(
        self,
        requirements: dict[str, bool] | None = None,
        *,
        vector: int = 1,
        warps: bool = False,
        staged: bool = False,
        padding: int = 0,
    ) -> None:
        """Raise TileError unless a kernel can be built from this tile.

        *requirements* are a rung's own: what it needs, and whether the tile has it.  The threads fill
        the chunks *vector* floats at a time.  With *warps*, the rung deals out warp tiles; *staged*, it
        holds several chunks; what it has no use for is refused.  Rows of A in shared memory, one for
        each k, are longer than BM by *padding* floats.
        """
        reasons = self._reasons(vector, padding)
        if warps and self.WM is None:
            reasons.append("it has no warp tile, WM x WN")
        if not warps and self.WM is not None:
            reasons.append("the rung deals out no warp tiles; WM and WN should be left out")
        if not staged and self.stages > 1:
            reasons.append(f"stages is {self.stages}; the rung holds one chunk, and it should be 1")
        reasons += [need for need, met in (requirements or {}).items() if not met]
        if reasons:
            raise TileError(self, reasons)

    @property
    def lanes(self) -> tuple[int, int]:
        """Lanes of a warp down and across its warp tile."""
        assert self.WM
        assert self.WN
        return self.WM // self.TM, self.WN // self.TN

    def _reasons_of_warps(self) -> list[str]:
        """Why warps cannot share the block tile so; empty when they can."""
        assert self.WM
        assert self.WN
        reasons = [
            f"{inner}={getattr(self, inner)} does not divide {outer}={getattr(self, outer)}"
            for inner, outer in (("WM", "BM"), ("WN", "BN"), ("TM", "WM"), ("TN", "WN"))
            if getattr(self, outer) % getattr(self, inner)
        ]
        down, across = self.lanes
        if not reasons and down * across != WARP:
            reasons.append(
                f"a warp tile of {self.WM} x {self.WN} is {down} x {across} thread tiles, "
                f"and a warp has {WARP} lanes"
            )
        return reasons

    def _reasons(self, vector: int, padding: int) -> list[str]:
        """Every reason why no rung can use this tile; empty when it is legal."""
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                return [f"{name} is {value}; it should be at least 1"]

        reasons = []
        if self.BM % self.TM:
            reasons.append(f"TM={self.TM} does not divide BM={self.BM}")
        if self.BN % self.TN:
            reasons.append(f"TN={self.TN} does not divide BN={self.BN}")
        if reasons:
            return reasons

        if self.WM and self.WN:
            reasons += self._reasons_of_warps()
        if self.threads % WARP:
            are = "is" if self.threads == 1 else "are"
            reasons.append(f"{_threads(self.threads)} a block {are} not whole warps of {WARP}")
        if self.threads > MAX_THREADS:
            reasons.append(f"{self.threads} threads a block are more than {MAX_THREADS}")
        for name in ("BK", "BN", "TM", "TN"):
            if getattr(self, name) % vector:
                reasons.append(f"{name}={getattr(self, name)} is not a multiple of {vector}")
        for what, rows, cols in (("BM x BK", self.BM, self.BK), ("BK x BN", self.BK, self.BN)):
            across = max(1, cols // vector)
            if self.threads % across or rows % (self.threads // across):
                reasons.append(
                    f"{_threads(self.threads)} cannot fill the {rows} x {cols} chunk ({what}) "
                    "in whole rows, all of them at once"
                )
        shared_bytes = self.shared_bytes + 4 * padding * self.BK * self.stages
        if shared_bytes > MAX_SHARED_BYTES:
            reasons.append(f"{shared_bytes} bytes of shared memory are more than {MAX_SHARED_BYTES}")
        limit = min(MAX_REGISTERS, REGISTERS // self.threads)
        if self.registers > limit:
            each = "its one thread" if self.threads == 1 else f"each of {self.threads} threads"
            reasons.append(
                f"a {self.TM} x {self.TN} thread tile takes {self.registers} registers; "
                f"{each} has {limit}"
            )
        return reasons
