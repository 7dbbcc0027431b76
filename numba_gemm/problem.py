"""What one multiply is: its sizes, its scalars, its arithmetic and the bytes it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass

from .model import roofline, traffic

__all__ = ["Problem"]


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
        return roofline.product_flops(self.M, self.N, self.K)

    @property
    def flops(self) -> int:
        """FLOPs of everything: one more multiply-add per entry of C for alpha and beta."""
        return roofline.flops(self.M, self.N, self.K)

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel moves: A and B once, C written once, and read where beta is not 0."""
        return roofline.compulsory_bytes(
            self.M, self.N, self.K, reads_operands=self.reads_operands, reads_c=self.beta != 0
        )

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP per compulsory byte; 0 for an empty problem."""
        return roofline.intensity(self.flops, self.compulsory_bytes)

    def requested_bytes(self, m: int, n: int) -> int:
        """Bytes a kernel asks of global memory when m x n entries of C share what they read.

        See :func:`numba_gemm.model.traffic.requested_bytes`.
        """
        return traffic.requested_bytes(self, m, n)
