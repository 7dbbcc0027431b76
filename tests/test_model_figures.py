"""Every figure that the two reference documents derive, from a function of the models.

Each row: the figure as printed, what computes it, and where it is printed.  A figure is met if the
computed one, rounded or cut off after the digits that are printed, is it; the documents do both.
"""

import math
from decimal import Decimal

import numpy as np
import pytest

from numba_gemm import Problem, Tile
from numba_gemm.model import (
    banks,
    devices,
    hierarchy,
    occupancy,
    prediction,
    published,
    quantization,
    roofline,
    traffic,
)

STEPS = "A GEMM Kernel, Step by Step"
TILED = "Naive to Tiled"

BOEHM = devices.A6000_BOEHM
A6000 = devices.named("A6000")
A100 = devices.named("A100 80GB")
PROBLEM = Problem(4092, 4092, 4092, alpha=0.5, beta=3.0)
CUBE = Problem(4096, 4096, 4096)

SQUARE = occupancy.occupancy(A6000, threads=256, registers=64)
SALYKOVA = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=32, WN=64, stages=2)
ONE_BUFFER = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=32, WN=64)
LEVELS = hierarchy.hierarchy(SALYKOVA)
TILES = quantization.tiling(4092, 4092, 128, 128)
SMALL = quantization.tiling(300, 300, 128, 128)
WAVES = quantization.waves(TILES.tiles, A6000.multiprocessors, SQUARE.blocks)
GROWTH = quantization.growth(
    quantization.tiling(256, 256, 128, 128), quantization.tiling(256, 257, 128, 128)
)


def ceiling(m, n, gpu=BOEHM):
    """GFLOP/s that the roofline allows a tile."""
    return roofline.attainable(roofline.tile_intensity(m, n), gpu.fp32_peak, gpu.memory_bandwidth) / 1e9


def of_cublas(rung):
    """Per cent of cuBLAS on Boehm's A6000."""
    return 100 * published.share(published.A6000_GFLOPS[rung], published.A6000_GFLOPS["cuBLAS"])


def times(rung, below):
    """How many times as fast as the other one."""
    return published.share(published.A6000_GFLOPS[rung], published.A6000_GFLOPS[below])


def a100(rung):
    """TFLOP/s on the A100, from the published time."""
    return published.gflops(CUBE.product_flops, published.A100_SECONDS[rung]) / 1e3


def of_peak(rung):
    """The same in per cent of the peak."""
    return 100 * published.share(a100(rung) * 1e12, A100.fp32_peak)


def rows_apart(rows, columns=4092):
    """Addresses of one element in each of so many rows."""
    return 4 * columns * np.arange(rows)


FIGURES = [
    # What the problem is allowed to cost
    ("137", PROBLEM.flops / 1e9, STEPS),
    ("201", roofline.compulsory_reads(4092, 4092, 4092, reads_c=True) / 1e6, STEPS),
    ("67", roofline.compulsory_writes(4092, 4092) / 1e6, STEPS),
    ("268", PROBLEM.compulsory_bytes / 1e6, STEPS),
    ("511", PROBLEM.intensity, STEPS),
    ("0.35", 1e3 * roofline.memory_seconds(PROBLEM.compulsory_bytes, BOEHM.memory_bandwidth), STEPS),
    ("4.6", 1e3 * roofline.arithmetic_seconds(PROBLEM.flops, BOEHM.fp32_peak), STEPS),
    ("4.6", 1e3 * prediction.floor_seconds(PROBLEM, BOEHM), STEPS),
    ("13", PROBLEM.intensity / roofline.ridge_point(BOEHM.fp32_peak, BOEHM.memory_bandwidth), STEPS),
    ("39.1", roofline.ridge_point(BOEHM.fp32_peak, BOEHM.memory_bandwidth), STEPS),
    ("39.06", roofline.ridge_point(BOEHM.fp32_peak, BOEHM.memory_bandwidth), STEPS),
    ("38.7", A6000.fp32_peak / 1e12, STEPS),
    ("50", roofline.ridge_point(A6000.fp32_peak, A6000.memory_bandwidth), STEPS),
    *(
        row
        for m, n, flop_per_byte, gflops in [
            (1, 1, "0.25", "192"),
            (32, 32, "8.00", "6144"),
            (64, 64, "16.00", "12288"),
            (128, 128, "32.00", "24576"),
            (128, 256, "42.67", "30000"),
        ]
        for row in [
            (flop_per_byte, roofline.tile_intensity(m, n), STEPS),
            (gflops, ceiling(m, n), STEPS),
        ]
    ),
    # Rungs one and two
    ("8184", traffic.worker_floats(4092), STEPS),
    ("32736", traffic.worker_bytes(4092), STEPS),
    ("8184", roofline.product_flops(1, 1, 4092), STEPS),
    ("0.25", roofline.intensity(roofline.product_flops(1, 1, 4092), traffic.worker_bytes(4092)), STEPS),
    ("0.6", 100 * published.share(ceiling(1, 1), BOEHM.fp32_peak / 1e9), STEPS),
    ("32", traffic.transactions(rows_apart(32)), STEPS),
    ("4", traffic.transactions(4 * np.arange(32)), STEPS),
    ("6.4", times("coalesced", "naive"), STEPS),
    *(
        (share, of_cublas(rung), STEPS)
        for rung, share in {
            "naive": "1.3",
            "coalesced": "8.5",
            "tiled2d": "12.8",
            "column": "36.5",
            "square": "68.7",
            "vectorized": "78.4",
            "autotuned": "84.8",
            "warptiled": "93.7",
        }.items()
    ),
    # Rungs three to five
    ("32", roofline.tile_intensity(32, 32) / roofline.tile_intensity(1, 1), STEPS),
    ("2", traffic.shared_loads(), STEPS),
    ("9", 8 * traffic.shared_loads(8, 1), STEPS),
    ("16", 64 * traffic.shared_loads(8, 8), STEPS),
    ("0.9", 1 / traffic.shared_loads(8, 1), STEPS),
    ("4", 1 / traffic.shared_loads(8, 8), STEPS),
    ("1.9", times("square", "column"), STEPS),
    ("16384", occupancy.block_registers(256, 64), STEPS),
    ("0.25", occupancy.block_registers(256, 64) / A6000.limits.registers, STEPS),
    ("4", SQUARE.blocks, STEPS),
    ("32", SQUARE.warps, STEPS),
    ("48", SQUARE.max_warps, STEPS),
    ("67", 100 * SQUARE.fraction, STEPS),
    # The last rung
    ("4", LEVELS.warps[0], STEPS),
    ("2", LEVELS.warps[1], STEPS),
    ("8", math.prod(LEVELS.warps), STEPS),
    ("8", LEVELS.threads // occupancy.WARP, STEPS),
    ("4", LEVELS.lanes[0], STEPS),
    ("8", LEVELS.lanes[1], STEPS),
    ("32", math.prod(LEVELS.lanes), STEPS),
    ("256", LEVELS.threads, STEPS),
    ("16384", LEVELS.shared_bytes, STEPS),
    ("8192", hierarchy.hierarchy(ONE_BUFFER).shared_bytes, STEPS),
    # The fringe and the last wave
    ("32", TILES.down, STEPS),
    ("4096", TILES.covered[0], STEPS),
    ("124", TILES.last[0], STEPS),
    ("0.2", 100 * TILES.excess, STEPS),
    ("2.34", SMALL.M / SMALL.BM, STEPS),
    ("3", SMALL.down, STEPS),
    ("384", SMALL.covered[0], STEPS),
    ("61", 100 * SMALL.useful, STEPS),
    ("1.5", GROWTH[0], STEPS),
    ("0.39", 100 * GROWTH[1], STEPS),
    ("336", WAVES.slots, STEPS),
    ("1024", TILES.tiles, STEPS),
    ("3.05", WAVES.exact, STEPS),
    ("4", WAVES.run, STEPS),
    ("16", WAVES.tail, STEPS),
    ("76", 100 * WAVES.efficiency, STEPS),
    ("1", quantization.waves(336, 84, 4).run, STEPS),
    ("2", quantization.waves(337, 84, 4).run, STEPS),
    ("0.3", 100 * (337 / 336 - 1), STEPS),
    ("1", quantization.waves(114, devices.named("H100 PCIe").multiprocessors).run, STEPS),
    ("2", quantization.waves(115, devices.named("H100 PCIe").multiprocessors).run, STEPS),
    ("1", quantization.waves(115, devices.named("H100 PCIe").multiprocessors).tail, STEPS),
    ("168", quantization.waves(1024, 84, 2).slots, STEPS),
    # What is left
    ("32", banks.Access(rows_apart(32, 32)).wavefronts, STEPS),
    ("4", (banks.Access(np.array([4 * 132])).words[0].argmax()), STEPS),
    # The other document
    ("137.4", CUBE.product_flops / 1e9, TILED),
    (
        "549.7",
        (CUBE.requested_bytes(1, 1) - roofline.compulsory_writes(4096, 4096)) / 1e9,
        TILED + ", 1",
    ),
    ("550", (CUBE.requested_bytes(1, 1)) / 1e9, TILED + ", 1"),
    ("0.25", roofline.tile_intensity(1, 1), TILED),
    ("9.6", roofline.ridge_point(A100.fp32_peak, A100.memory_bandwidth), TILED),
    ("19.5", A100.fp32_peak / 1e12, TILED),
    ("2039", A100.memory_bandwidth / 1e9, TILED),
    ("509.7", ceiling(1, 1, A100), TILED),
    ("2.6", 100 * published.share(ceiling(1, 1, A100), A100.fp32_peak / 1e9), TILED),
    ("0.26", a100("naive"), TILED),
    ("1.3", of_peak("naive"), TILED),
    ("7.12", a100("tiled2d"), TILED),
    ("36.5", of_peak("tiled2d"), TILED),
    ("18.32", a100("cuBLAS"), TILED),
    ("27", published.A100_SECONDS["naive"] / published.A100_SECONDS["tiled2d"], TILED),
    ("8.0", roofline.tile_intensity(32, 32), TILED),
    ("17", CUBE.requested_bytes(32, 32) / 1e9, TILED),
]


def rounds_to(printed, value):
    """Whether *value*, rounded to as many digits as *printed* has or cut off there, is *printed*."""
    unit = 10.0 ** min(0, Decimal(printed).as_tuple().exponent)
    return float(printed) - 0.5 * unit <= float(value) < float(printed) + unit


@pytest.mark.parametrize(
    ("printed", "value", "source"),
    FIGURES,
    ids=[f"{number}-{row[0]}" for number, row in enumerate(FIGURES)],
)
def test_a_published_figure(printed, value, source):
    """The model has the figure."""
    assert rounds_to(printed, value), f"{source}: {printed}, not {value}"


def test_the_comparison_tells_digits_apart():
    """The test above would see a figure that is off by one in its last digit."""
    assert rounds_to("39.1", 39.0625)
    assert not rounds_to("39.2", 39.0625)
    assert not rounds_to("137", 138)


def test_fewer_slots_waste_less():
    """With two blocks a multiprocessor instead of four, the same 1024 tiles waste less."""
    assert quantization.waves(1024, 84, 2).efficiency > WAVES.efficiency


def test_cublas_on_the_a100():
    """93.9% in the document, of 18.32 TFLOP/s by the rounded peak of 19.5; 94.0 unrounded."""
    assert of_peak("cuBLAS") == pytest.approx(93.9, abs=0.15)
    assert rounds_to("93.9", 100 * published.share(18.32, 19.5))


def test_the_table_as_the_document_prints_it():
    """Line by line."""
    assert roofline.table(BOEHM.fp32_peak, BOEHM.memory_bandwidth).splitlines() == [
        "  tile      FLOP/byte      ceiling GFLOP/s",
        "   1 x 1          0.25             192",
        "  32 x 32         8.00            6144",
        "  64 x 64        16.00           12288",
        " 128 x 128       32.00           24576",
        " 128 x 256       42.67           30000",
        "ridge point 39.06 FLOP/byte",
    ]
