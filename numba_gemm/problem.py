"""What one multiply is: its sizes, its scalars, its arithmetic and the bytes it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLOAT32_BYTES", "Problem"]

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Problem:
    """``C <- alpha * A @ B + beta * C`` with A of M x K, B of K x N and C of M x N float32 entries.

    Sizes may be 0.  Raises ValueError where one is negative.
    """

    M: int
    N: int
    K: int
    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        for name in "MNK":
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be at least 0")

    @property
    def reads_operands(self) -> bool:
        """False where A and B do not matter: alpha is 0, or there is no k to sum over."""
        return self.alpha != 0 and self.K > 0

    @property
    def product_flops(self) -> int:
        """FLOPs of ``A @ B`` alone, 2*M*N*K: what a TFLOP/s figure divides by the time."""
        return 2 * self.M * self.N * self.K

    @property
    def flops(self) -> int:
        """FLOPs of everything: one more multiply-add per entry of C for alpha and beta."""
        return self.product_flops + 2 * self.M * self.N

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel moves: A and B once, C written once, and read where beta is not 0."""
        elements = self.M * self.N
        if self.beta != 0:
            elements += self.M * self.N
        if self.reads_operands:
            elements += self.M * self.K + self.K * self.N
        return FLOAT32_BYTES * elements

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP per compulsory byte; 0 for an empty problem."""
        return self.flops / self.compulsory_bytes if self.compulsory_bytes else 0.0

    def requested_bytes(self, m: int, n: int) -> int:
        """Bytes a kernel asks of global memory when m x n entries of C share what they read.

        Every tile of C reads its m rows of A and n columns of B, so A is asked for once per column of
        tiles and B once per row of tiles; C costs what it must.  m = n = 1 is a kernel without reuse.
        """
        elements = 0
        if self.reads_operands:
            tiles_down, tiles_across = -(-self.M // m), -(-self.N // n)
            elements = self.M * self.K * tiles_across + self.K * self.N * tiles_down
        c_bytes = FLOAT32_BYTES * self.M * self.N * (2 if self.beta != 0 else 1)
        return FLOAT32_BYTES * elements + c_bytes
