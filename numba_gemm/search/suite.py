"""The shapes that the choice of a kernel is held to: 24, from 64^3 to 8192^3."""

from __future__ import annotations

__all__ = ["SUITE"]

SUITE: tuple[tuple[int, int, int], ...] = (
    # square, whole tiles
    (64, 64, 64),
    (128, 128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    # ragged: fringes, rows that are not aligned
    (777, 777, 777),
    (1000, 1000, 1000),
    (4092, 4092, 4092),
    (4093, 4093, 4093),
    (1000, 777, 4093),
    # tall, wide
    (8192, 512, 512),
    (8192, 128, 1024),
    (512, 8192, 512),
    (128, 8192, 1024),
    (4096, 1024, 4096),
    # long K
    (64, 64, 65536),
    (256, 256, 65536),
    (512, 512, 16384),
    (1024, 1024, 8192),
    # a batch of vectors
    (16, 4096, 4096),
    (4096, 16, 4096),
)
"""M, N, K of each: A is M x K, B is K x N."""
