"""The roofline: FLOPs, bytes, and the ceiling that their ratio puts on a kernel.

A kernel that does I FLOP for each byte it moves cannot be faster than the arithmetic, nor than I times
the memory's bandwidth.  Where the two meet is the ridge point.

All of it is for ``C <- alpha * A @ B + beta * C`` in float32, A of M x K and B of K x N.

Source: S. Williams, A. Waterman and D. Patterson, "Roofline", 2009; "A GEMM Kernel, Step by Step",
"What the problem is allowed to cost"; "Naive to Tiled", section 1.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "FLOAT32_BYTES",
    "arithmetic_seconds",
    "attainable",
    "compulsory_bytes",
    "compulsory_reads",
    "compulsory_writes",
    "flops",
    "intensity",
    "memory_seconds",
    "product_flops",
    "ridge_point",
    "table",
    "tile_intensity",
]

FLOAT32_BYTES = 4


def product_flops(M: int, N: int, K: int) -> int:
    """FLOPs of ``A @ B`` alone, 2*M*N*K: what a TFLOP/s figure divides by the time."""
    return 2 * M * N * K


def flops(M: int, N: int, K: int) -> int:
    """FLOPs of everything: one more multiply-add per entry of C for alpha and beta."""
    return product_flops(M, N, K) + 2 * M * N


def compulsory_reads(
    M: int, N: int, K: int, *, reads_operands: bool = True, reads_c: bool = False
) -> int:
    """Bytes that any kernel reads: A and B once with *reads_operands*, C once with *reads_c*."""
    elements = M * K + K * N if reads_operands else 0
    return FLOAT32_BYTES * (elements + (M * N if reads_c else 0))


def compulsory_writes(M: int, N: int) -> int:
    """Bytes that any kernel writes: C once."""
    return FLOAT32_BYTES * M * N


def compulsory_bytes(
    M: int, N: int, K: int, *, reads_operands: bool = True, reads_c: bool = False
) -> int:
    """Bytes that any kernel moves, read and written."""
    reads = compulsory_reads(M, N, K, reads_operands=reads_operands, reads_c=reads_c)
    return reads + compulsory_writes(M, N)


def intensity(flop: float, nbytes: float) -> float:
    """Arithmetic intensity, FLOP per byte; 0 where nothing is moved."""
    return flop / nbytes if nbytes else 0.0


def tile_intensity(m: int, n: int) -> float:
    """FLOP per byte asked of memory when a tile of m x n float32 entries of C shares what it reads.

    For each k, m + n floats come in and 2*m*n FLOPs are done: m*n / (2*(m+n)), whatever K is.
    """
    return product_flops(m, n, 1) / (FLOAT32_BYTES * (m + n))


def ridge_point(peak: float, bandwidth: float) -> float:
    """FLOP per byte at which arithmetic (FLOP/s) and memory (bytes a second) take equally long."""
    return peak / bandwidth


def arithmetic_seconds(flop: float, peak: float) -> float:
    """Time of so many FLOPs at the peak, in FLOP/s."""
    return flop / peak


def memory_seconds(nbytes: float, bandwidth: float) -> float:
    """Time of so many bytes at the bandwidth, in bytes a second."""
    return nbytes / bandwidth


def attainable(flop_per_byte: float, peak: float, bandwidth: float) -> float:
    """FLOP/s that the roofline allows at this arithmetic intensity."""
    return min(peak, flop_per_byte * bandwidth)


TILES = ((1, 1), (32, 32), (64, 64), (128, 128), (128, 256))


def table(peak: float, bandwidth: float, tiles: Iterable[tuple[int, int]] = TILES) -> str:
    """The ceilings of block tiles and the ridge point, as "A GEMM Kernel, Step by Step" prints them."""
    lines = ["  tile      FLOP/byte      ceiling GFLOP/s"]
    for m, n in tiles:
        i = tile_intensity(m, n)
        ceiling = attainable(i, peak, bandwidth) / 1e9
        lines.append(f"{m:4d} x {n:<4d} {i:10.2f} {ceiling:15.0f}")
    lines.append(f"ridge point {ridge_point(peak, bandwidth):.2f} FLOP/byte")
    return "\n".join(lines)
