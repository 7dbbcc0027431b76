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


@dataclass(frozen=True)
class Tile:
    """A block tile of BM x BN entries of C, advanced BK at a time along k, TM x TN entries a thread.

    BM, BN
        Rows and columns of C that one block of threads computes.
    BK
        Depth of the chunks of A (BM x BK) and B (BK x BN) held in shared memory.
    TM, TN
        Rows and columns of C that one thread computes and keeps in registers.

    Any whole numbers may be written down; what is wrong with them is said when a kernel is built.
    Anything else raises TileError.
    """

    BM: int
    BN: int
    BK: int
    TM: int = 1
    TN: int = 1

    def __post_init__(self) -> None:
        # Here and not later: kernels are cached by tile, and 32.0 == 32.
        wrong = [
            f"{name} is {value!r}; it should be a whole number"
            for name, value in asdict(self).items()
            if type(value) is not int
        ]
        if wrong:
            raise TileError("this tile", wrong)

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return (self.BM // self.TM) * (self.BN // self.TN)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for one chunk of A and one of B in float32."""
        return 4 * (self.BM + self.BN) * self.BK

    @property
    def registers(self) -> int:
        """Registers a thread cannot do without: its sums, its fragments and 24 for addresses."""
        return self.TM * self.TN + self.TM + self.TN + 24

    @property
    def blocks(self) -> int:
        """Blocks to keep on a multiprocessor, as many as have the registers they need."""
        by_registers = REGISTERS // (self.registers * self.threads)
        by_threads = THREADS // self.threads
        by_shared_memory = SHARED_BYTES // (self.shared_bytes + RESERVED_SHARED_BYTES)
        return max(1, min(by_registers, by_threads, by_shared_memory, MAX_BLOCKS))

    def check(self, requirements: dict[str, bool] | None = None) -> None:
        """Raise TileError unless a kernel can be built from this tile.

        *requirements* are a rung's own: what it needs, and whether the tile has it.
        """
        reasons = self._reasons()
        reasons += [need for need, met in (requirements or {}).items() if not met]
        if reasons:
            raise TileError(self, reasons)

    def _reasons(self) -> list[str]:
        """Every reason why no rung can use this tile; empty when it is legal."""
        for name, value in asdict(self).items():
            if value < 1:
                return [f"{name} is {value}; it should be at least 1"]

        reasons = []
        if self.BM % self.TM:
            reasons.append(f"TM={self.TM} does not divide BM={self.BM}")
        if self.BN % self.TN:
            reasons.append(f"TN={self.TN} does not divide BN={self.BN}")
        if reasons:
            return reasons

        if self.threads % WARP:
            reasons.append(f"{self.threads} threads a block are not whole warps of {WARP}")
        if self.threads > MAX_THREADS:
            reasons.append(f"{self.threads} threads a block are more than {MAX_THREADS}")
        for what, rows, cols in (("BM x BK", self.BM, self.BK), ("BK x BN", self.BK, self.BN)):
            if self.threads % cols or rows * cols % self.threads:
                reasons.append(
                    f"{self.threads} threads cannot fill the {rows} x {cols} chunk ({what}) "
                    "in whole rows, all of them at once"
                )
        if self.shared_bytes > MAX_SHARED_BYTES:
            reasons.append(
                f"{self.shared_bytes} bytes of shared memory are more than {MAX_SHARED_BYTES}"
            )
        limit = min(MAX_REGISTERS, REGISTERS // self.threads)
        if self.registers > limit:
            reasons.append(
                f"a {self.TM} x {self.TN} thread tile takes {self.registers} registers; "
                f"each of {self.threads} threads has {limit}"
            )
        return reasons
