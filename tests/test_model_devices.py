"""The table of GPUs, and what the driver says."""

import pytest

from numba_gemm import device
from numba_gemm.model import devices
from numba_gemm.target import TARGET


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("V100", 15.7),
        ("T4", 8.1),
        ("A100 40GB", 19.5),
        ("A100 80GB", 19.5),
        ("A6000", 38.7),
        ("RTX 3090", 35.6),
        ("RTX 4090", 82.6),
        ("L4", 30.3),
        ("H100 PCIe", 51.2),
        ("H100 SXM", 66.9),
        ("H200", 66.9),
        ("B200", 75.0),
    ],
)
def test_lanes_and_clock_make_the_published_peak(name, tflops):
    """Of every GPU in the table, to a tenth of a TFLOP/s."""
    assert devices.named(name).fp32_peak / 1e12 == pytest.approx(tflops, abs=0.05)


def test_the_whole_table_is_tested_and_sourced():
    """No row without a source or with figures that cannot be."""
    assert len(devices.GPUS) == 12
    for gpu in devices.GPUS:
        assert gpu.source
        assert gpu.limits is devices.LIMITS[gpu.compute_capability]
        assert 3e11 <= gpu.memory_bandwidth <= 8e12
        assert gpu.fp16_peak > gpu.fp32_peak
        assert (gpu.tf32_peak is not None) == (gpu.compute_capability >= (8, 0))


def test_boehms_ceilings():
    """30 TFLOP/s and 768 GB/s, beside the data sheet's 38.7."""
    assert devices.A6000_BOEHM.fp32_peak == 30e12
    assert devices.A6000_BOEHM.memory_bandwidth == devices.named("A6000").memory_bandwidth == 768e9
    assert devices.named("a6000 (boehm)") is devices.A6000_BOEHM


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("h200", "H200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("a100", "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("h100 pcie", "H100 PCIe"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("3090", "RTX 3090"),
        ("rtx-4090", "RTX 4090"),
        ("Tesla T4", "T4"),
    ],
)
def test_names(name, row):
    """As people and drivers have them."""
    assert devices.named(name).name == row


@pytest.mark.parametrize("name", ["H300", "", "GTX 1080"])
def test_an_unknown_name(name):
    """The message has what was asked for and what there is."""
    with pytest.raises(ValueError, match=f"no GPU '{name}' in the table; it has V100, T4"):
        devices.named(name)


def test_limits_of_what_is_not_in_the_table():
    """Those of the capability before; none before Volta."""
    assert devices.limits_of((8, 7)) is devices.LIMITS[8, 6]
    assert devices.limits_of((10, 3)) is devices.LIMITS[10, 0]
    with pytest.raises(ValueError, match=r"compute capability is 6\.1; it should be at least 7\.0"):
        devices.limits_of((6, 1))


def test_the_machines_own():
    """None without a GPU; with one, what Numba says of it."""
    gpu = devices.current()
    if TARGET.is_gpu:
        numba = device.current()
        assert gpu.name == numba.name
        assert gpu.compute_capability == numba.compute_capability
        assert gpu.multiprocessors == numba.multiprocessors
        assert gpu.fp32_peak == numba.fp32_peak
        assert 1e11 < gpu.memory_bandwidth < 2e13


@pytest.mark.gpu
def test_the_driver_and_the_table():
    """Where the table has this GPU, its limits are those of the driver, its bandwidth nearly so."""
    gpu = devices.current()
    try:
        row = devices.named(gpu.name)
    except ValueError:
        pytest.skip(f"the table does not have {gpu.name}")
    assert gpu.limits == row.limits
    assert gpu.multiprocessors == row.multiprocessors
    assert gpu.boost_clock_hz == pytest.approx(row.boost_clock_hz, rel=0.02)
    assert gpu.memory_bandwidth == pytest.approx(row.memory_bandwidth, rel=0.06)
    assert gpu.l2_bytes == pytest.approx(row.l2_bytes, rel=0.1)
