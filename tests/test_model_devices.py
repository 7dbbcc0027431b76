"""The table of GPUs, and what the driver says."""

from types import SimpleNamespace

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
        ("A100 80GB PCIe", 19.5),
        ("A6000", 38.7),
        ("RTX 3090", 35.6),
        ("RTX 4090", 82.6),
        ("L4", 30.3),
        ("H100 PCIe", 51.2),
        ("H100 SXM", 66.9),
        ("H200", 66.9),
        ("B200", 74.4),
    ],
)
def test_lanes_and_clock_make_the_published_peak(name, tflops):
    """Of every GPU in the table, to a tenth of a TFLOP/s; of the B200, NVIDIA has only 75."""
    assert devices.named(name).fp32_peak / 1e12 == pytest.approx(tflops, abs=0.05)


def test_the_whole_table_is_tested_and_sourced():
    """No row without a source or with figures that cannot be."""
    assert len(devices.GPUS) == 13
    for gpu in devices.GPUS:
        assert gpu.source
        assert gpu.limits is devices.LIMITS[gpu.compute_capability]
        assert 3e11 <= gpu.memory_bandwidth <= 8e12
        assert gpu.fp16_peak > gpu.fp32_peak
        assert (gpu.tf32_peak is not None) == (gpu.compute_capability >= (8, 0))


@pytest.mark.parametrize(
    ("name", "multiply_adds", "mhz"),
    [
        ("V100", 512, 1530),
        ("T4", 512, 1590),
        ("A100 40GB", 1024, 1410),
        ("A100 80GB", 1024, 1410),
        ("A100 80GB PCIe", 1024, 1410),
        ("A6000", 512, 1800),
        ("RTX 3090", 256, 1695),
        ("RTX 4090", 256, 2520),
        ("L4", 512, 2040),
        ("H100 PCIe", 2048, 1620),
        ("H100 SXM", 2048, 1830),
        ("H200", 2048, 1830),
    ],
)
def test_tensor_cores_and_clock_make_their_peak(name, multiply_adds, mhz):
    """Dense multiply-adds in FP16 that a multiprocessor does in a cycle; half as many in TF32.

    The B200 is not here: the clock that its tensor cores are rated at is not published.
    """
    gpu = devices.named(name)
    made = 2.0 * multiply_adds * gpu.multiprocessors * mhz * 1e6
    assert gpu.fp16_peak == pytest.approx(made, rel=5e-3)
    if gpu.tf32_peak is not None:
        assert gpu.tf32_peak == pytest.approx(made / 2, rel=1e-2)


def test_tf32_has_half_the_rate_of_fp16():
    """Wherever there is TF32."""
    for gpu in devices.GPUS:
        if gpu.tf32_peak is not None:
            assert gpu.tf32_peak == pytest.approx(gpu.fp16_peak / 2, rel=1e-2)


@pytest.mark.parametrize(
    ("name", "memory_mhz", "bits", "l2_bytes"),
    [
        ("V100", 877, 4096, 6_291_456),
        ("T4", 5001, 256, 4_194_304),
        ("A100 40GB", 1215, 5120, 41_943_040),
        ("A100 80GB", 1593, 5120, 41_943_040),
        ("A100 80GB PCIe", 1512, 5120, 41_943_040),
        ("A6000", 8001, 384, 6_291_456),
        ("RTX 3090", 9751, 384, 6_291_456),
        ("RTX 4090", 10501, 384, 75_497_472),
        ("L4", 6251, 192, 50_331_648),
        ("H100 SXM", 2619, 5120, 52_428_800),
        ("H200", 3201, 6144, 62_914_560),
        ("B200", 3996, 8192, 132_644_864),
    ],
)
def test_what_drivers_report(name, memory_mhz, bits, l2_bytes):
    """Bandwidth of the memory's clock and bus, to what data sheets round or rate lower; L2 exactly."""
    gpu = devices.named(name)
    rounded = {"H200": 0.03, "B200": 0.07}.get(name, 0.003)
    assert gpu.memory_bandwidth == pytest.approx(memory_mhz * 1e6 * 2 * bits / 8, rel=rounded)
    assert gpu.l2_bytes == l2_bytes


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
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("A100-PCIE-80GB", "A100 80GB PCIe"),
        ("Tesla V100-SXM2-32GB", "V100"),
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


@pytest.mark.parametrize("name", ["H300", "", "GTX 1080", "Tesla V100-PCIE-16GB"])
def test_an_unknown_name(name):
    """The message has what was asked for and what there is."""
    with pytest.raises(ValueError, match=f"no GPU '{name}' in the table; it has V100, T4"):
        devices.named(name)


def test_limits_of_integrated_gpus():
    """Orin: shared memory of 8.0, warps and blocks of 8.6; Thor: of 10.0 and of 8.9."""
    orin, thor = devices.LIMITS[8, 7], devices.LIMITS[11, 0]
    assert (orin.warps, orin.blocks) == (devices.LIMITS[8, 6].warps, devices.LIMITS[8, 6].blocks)
    assert orin.shared_bytes == devices.LIMITS[8, 0].shared_bytes
    assert (thor.warps, thor.blocks) == (devices.LIMITS[8, 9].warps, devices.LIMITS[8, 9].blocks)
    assert thor.shared_bytes == devices.LIMITS[10, 0].shared_bytes


def test_limits_of_what_is_not_in_the_table():
    """Those of the capability before; none before Volta."""
    assert devices.limits_of((7, 2)) is devices.LIMITS[7, 0]
    assert devices.limits_of((10, 3)) is devices.LIMITS[10, 0]
    assert devices.limits_of((12, 1)) is devices.LIMITS[12, 0]
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


# What an H200's driver answers; kHz, bits and bytes.
H200_ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "CLOCK_RATE": 1_980_000,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "L2_CACHE_SIZE": 60 * 2**20,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 * 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 * 1024,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
}


@pytest.fixture
def driver(monkeypatch):
    """Puts a driver in place of the machine's, with one GPU: ``driver(name, attribute=value, ...)``."""

    def install(name="NVIDIA H200", count=1, **changes):
        answers = H200_ATTRIBUTES | changes
        names = [f"CU_DEVICE_ATTRIBUTE_{attribute}" for attribute in answers]
        fake = SimpleNamespace(
            CUresult=SimpleNamespace(CUDA_SUCCESS=0),
            CUdevice_attribute=SimpleNamespace(**{attribute: attribute for attribute in names}),
            cuInit=lambda flags: [0],
            cuDeviceGetCount=lambda: (0, count),
            cuDeviceGet=lambda number: (0, number),
            cuDeviceGetName=lambda length, device: (0, name.encode().ljust(length, bytes(1))),
            cuDeviceGetAttribute=lambda which, device: (
                0,
                answers[which.removeprefix("CU_DEVICE_ATTRIBUTE_")],
            ),
        )
        monkeypatch.setattr("cuda.bindings.driver", fake)

    return install


def test_what_the_driver_says(driver):
    """Limits are the table's; the memory's clock and bus make 4.9 TB/s where the data sheet has 4.8."""
    driver()
    gpu, row = devices.current(), devices.named("H200")
    assert gpu.name == "NVIDIA H200"
    assert gpu.limits == row.limits
    assert (gpu.fp32_peak, gpu.l2_bytes) == (row.fp32_peak, row.l2_bytes)
    assert gpu.fp16_peak == row.fp16_peak
    assert gpu.memory_bandwidth == pytest.approx(4.917e12, rel=1e-3)


def test_a_driver_that_hides_the_memorys_clock(driver):
    """The table has the bandwidth, or nobody has."""
    driver(MEMORY_CLOCK_RATE=0)
    assert devices.current().memory_bandwidth == 4.8e12
    driver(name="NVIDIA H300", MEMORY_CLOCK_RATE=0)
    with pytest.raises(RuntimeError, match="H300: neither the driver nor the table knows"):
        devices.current()


def test_a_gpu_that_is_not_in_the_table(driver):
    """It has everything but the peaks of its tensor cores."""
    driver(name="NVIDIA H300")
    gpu = devices.current()
    assert (gpu.name, gpu.tf32_peak, gpu.multiprocessors) == ("NVIDIA H300", None, 132)


def test_a_gpu_that_is_too_old(driver):
    """Named, with what it should be."""
    driver(name="Tesla P100", COMPUTE_CAPABILITY_MAJOR=6)
    with pytest.raises(RuntimeError, match=r"Tesla P100: compute capability is 6\.0; it should be"):
        devices.current()


def test_no_gpu(driver, monkeypatch):
    """None: no device, or no driver."""
    driver(count=0)
    assert devices.current() is None
    driver()

    def fails(flags):
        raise RuntimeError("no driver")

    monkeypatch.setattr("cuda.bindings.driver.cuInit", fails)
    assert devices.current() is None


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
    # Partners' cards boost higher: RTX 3090s up to 1860 MHz where NVIDIA's has 1695.
    assert 0.98 <= gpu.boost_clock_hz / row.boost_clock_hz <= 1.1
    assert gpu.memory_bandwidth == pytest.approx(row.memory_bandwidth, rel=0.07)
    assert gpu.l2_bytes == row.l2_bytes
