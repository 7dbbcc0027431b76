"""GPUs and their limits: a small table, and what the driver says about the machine's own.

Sources.  Limits of a multiprocessor (``LIMITS``): CUDA C++ Programming Guide, "Compute Capabilities",
which the toolkit's headers ``cuda_occupancy.h`` (also granularities and schedulers) and
``cuda/__device/arch_traits.h`` repeat; FP32 lanes: ``helper_cuda.h`` of NVIDIA's CUDA samples.  The
rest (``GPUS``): NVIDIA's data sheets and architecture white papers, named in each entry's ``source``,
and what drivers report.

Peaks of tensor cores are dense: without structured sparsity, which would double them.  They accumulate
in float32, which costs GeForce cards half the rate.  They are at the clock that NVIDIA rates tensor
cores at, which on Hopper is below that of FP32: 1830 MHz, not 1980, on H100 SXM and H200, and 1620, not
1755, on H100 PCIe (the last one not confirmed: it is the clock that makes the published peak).

The PDFs themselves were not at hand when the entries were last checked, only quotations of them,
drivers' reports and, for tensor peaks, multiply-adds a cycle.  What those do not bear out has a
comment beside it: "not confirmed".
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

__all__ = ["A6000_BOEHM", "GPUS", "LIMITS", "Gpu", "Limits", "current", "named"]

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor of a compute capability has.

    fp32_lanes
        Multiply-adds in float32 that it can begin in a cycle.
    registers, warps, blocks
        Registers of 32 bits, and warps and blocks that may be on it at a time.
    shared_bytes, shared_bytes_per_block
        Shared memory of all its blocks, and the most that one of them may ask for (beyond 48 KiB, as
        dynamic shared memory).
    reserved_shared_bytes, shared_granularity
        What the system takes of it for each block, and the steps in which it is given out, in bytes.
    register_granularity, max_registers
        Registers are given to a warp in steps of so many; a thread may have no more than so many.
    schedulers
        Parts of the multiprocessor that issue one instruction a cycle each; a warp, with its
        registers, lives in one of them.
    """

    fp32_lanes: int
    warps: int
    blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    reserved_shared_bytes: int = 1 * KIB
    shared_granularity: int = 128
    registers: int = 64 * KIB
    register_granularity: int = 256
    max_registers: int = 255
    schedulers: int = 4


# 255 registers a thread is the guide's figure; cuda_occupancy.h has 256.  Blocks and shared memory
# of 12.0 are the guide's and the driver's; the Blackwell Tuning Guide has 32 blocks and 128 KB.
LIMITS: dict[tuple[int, int], Limits] = {
    (7, 0): Limits(64, 64, 32, 96 * KIB, 96 * KIB, 0, 256),
    (7, 5): Limits(64, 32, 16, 64 * KIB, 64 * KIB, 0, 256),
    (8, 0): Limits(64, 64, 32, 164 * KIB, 163 * KIB),
    (8, 6): Limits(128, 48, 16, 100 * KIB, 99 * KIB),
    (8, 7): Limits(128, 48, 16, 164 * KIB, 163 * KIB),
    (8, 8): Limits(128, 48, 16, 100 * KIB, 99 * KIB),  # FP32 lanes: not confirmed
    (8, 9): Limits(128, 48, 24, 100 * KIB, 99 * KIB),
    (9, 0): Limits(128, 64, 32, 228 * KIB, 227 * KIB),
    (10, 0): Limits(128, 64, 32, 228 * KIB, 227 * KIB),
    (11, 0): Limits(128, 48, 24, 228 * KIB, 227 * KIB),
    (12, 0): Limits(128, 48, 24, 100 * KIB, 99 * KIB),
}
"""Limits of a multiprocessor by compute capability."""


def limits_of(compute_capability: tuple[int, int]) -> Limits:
    """The limits of *compute_capability*, or of the latest known one that is not newer.

    Raises ValueError for one older than 7.0.
    """
    known = [capability for capability in LIMITS if capability <= compute_capability]
    if not known:
        raise ValueError(
            "compute capability is {}.{}; it should be at least 7.0".format(*compute_capability)
        )
    return LIMITS[max(known)]


@dataclass(frozen=True)
class Gpu:
    """A GPU as the models see it.

    boost_clock_hz
        The boost clock that its FP32 peak is stated for, in Hz; cards of NVIDIA's partners may have a
        higher one.
    memory_bandwidth
        Of its DRAM, in bytes a second.
    l2_bytes
        Size of its L2 cache.
    tf32_peak, fp16_peak
        FLOP/s of the tensor cores on dense operands of TF32 and FP16 (BF16 alike, where it exists)
        with sums in float32; None where it has none or they are not known.
    limits
        What each multiprocessor has.
    source
        Where the figures are from.
    fp32_ceiling
        FLOP/s to count with in place of what lanes and clock make; None for that.
    """

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    boost_clock_hz: float
    memory_bandwidth: float
    l2_bytes: int
    limits: Limits
    source: str
    tf32_peak: float | None = None
    fp16_peak: float | None = None
    fp32_ceiling: float | None = None

    @property
    def fp32_lanes(self) -> int:
        """FP32 lanes of the whole GPU."""
        return self.multiprocessors * self.limits.fp32_lanes

    @property
    def fp32_peak(self) -> float:
        """FLOP/s with every FP32 lane doing one multiply-add, two FLOPs, a cycle."""
        return self.fp32_ceiling or fp32_peak(self.fp32_lanes, self.boost_clock_hz)


def fp32_peak(lanes: int, clock_hz: float) -> float:
    """FLOP/s of so many FP32 lanes at so many Hz: a multiply-add, two FLOPs, a lane and cycle."""
    return 2.0 * lanes * clock_hz


def _gpu(
    name: str,
    capability: tuple[int, int],
    multiprocessors: int,
    mhz: int,
    gigabytes_a_second: float,
    l2_mib: float,
    source: str,
    *,
    tf32: float | None = None,
    fp16: float | None = None,
) -> Gpu:
    """A row of the table: MHz, GB/s (powers of ten), MiB of L2 and dense tensor peaks in TFLOP/s."""
    return Gpu(
        name,
        capability,
        multiprocessors,
        mhz * 1e6,
        gigabytes_a_second * 1e9,
        int(l2_mib * MIB),
        LIMITS[capability],
        source,
        tf32 * 1e12 if tf32 else None,
        fp16 * 1e12 if fp16 else None,
    )


GV100 = "NVIDIA Tesla V100 GPU Architecture white paper (WP-08608-001), V100 SXM2"
TU104 = "NVIDIA Turing GPU Architecture white paper (WP-09183-001), Tesla T4"
GA100 = "NVIDIA A100 Tensor Core GPU Architecture white paper; bandwidth: NVIDIA A100 data sheet"
GA102 = "NVIDIA Ampere GA102 GPU Architecture white paper V2"
AD102 = "NVIDIA Ada GPU Architecture white paper"
AD104 = (
    "NVIDIA L4 Tensor Core GPU data sheet, tensor peaks halved from those with sparsity; "
    "multiprocessors, clock and L2: the driver"
)
GH100 = "NVIDIA H100 Tensor Core GPU Architecture white paper; bandwidth: NVIDIA H100 data sheet"
GH100_HBM3E = (
    "NVIDIA H200 Tensor Core GPU data sheet, tensor peaks as in the H100 white paper; "
    "multiprocessors, clock and L2: the driver"
)
GB100 = (
    "NVIDIA Blackwell Architecture Technical Brief, table 3, HGX B200 by GPU; "
    "multiprocessors, clock and L2: the driver"
)

# Multiprocessors, clock, L2 and bandwidth are also what drivers report (deviceQuery, nvidia-smi), but
# not confirmed by one are the H100 PCIe's clock, bandwidth and L2, and the RTX 3090's clock (partners'
# cards report 1725 MHz and more).
GPUS: tuple[Gpu, ...] = (
    _gpu("V100", (7, 0), 80, 1530, 900, 6, GV100, fp16=125),
    _gpu("T4", (7, 5), 40, 1590, 320, 4, TU104, fp16=65),
    _gpu("A100 40GB", (8, 0), 108, 1410, 1555, 40, GA100, tf32=156, fp16=312),
    _gpu("A100 80GB", (8, 0), 108, 1410, 2039, 40, GA100 + " (SXM)", tf32=156, fp16=312),
    _gpu("A100 80GB PCIe", (8, 0), 108, 1410, 1935, 40, GA100 + " (PCIe)", tf32=156, fp16=312),
    _gpu("A6000", (8, 6), 84, 1800, 768, 6, GA102 + ", appendix C", tf32=77.4, fp16=154.8),
    _gpu("RTX 3090", (8, 6), 82, 1695, 936, 6, GA102 + ", appendix A", tf32=35.6, fp16=71),
    _gpu("RTX 4090", (8, 9), 128, 2520, 1008, 72, AD102, tf32=82.6, fp16=165.2),
    # That the L4's FP16 peak is with sums in float32: not confirmed, the data sheet does not say.
    _gpu("L4", (8, 9), 58, 2040, 300, 48, AD104, tf32=60, fp16=121),
    _gpu("H100 PCIe", (9, 0), 114, 1755, 2000, 50, GH100, tf32=378, fp16=756),
    _gpu("H100 SXM", (9, 0), 132, 1980, 3350, 50, GH100, tf32=494.7, fp16=989.4),
    _gpu("H200", (9, 0), 132, 1980, 4800, 60, GH100_HBM3E, tf32=494.7, fp16=989.4),
    # The brief has 75 TFLOP/s of FP32, where lanes and clock make 74.4, and rounds dense FP16 and TF32
    # to 2.2 and 1.1 PFLOP/s; 2250 is half of its 4500 with sparsity, and 1125 half of that, as on every
    # other row.  Not confirmed: 1125, and the bandwidth, which the memory's clock (3996 MHz) and 8192
    # bits make 8.2 TB/s and other documents of NVIDIA 8.
    _gpu("B200", (10, 0), 148, 1965, 7700, 126.5, GB100, tf32=1125, fp16=2250),
)
"""The table; ``named`` finds a row."""

A6000_BOEHM = dataclasses.replace(
    next(gpu for gpu in GPUS if gpu.name == "A6000"),
    name="A6000 (Boehm)",
    fp32_ceiling=30e12,
    source="S. Boehm's worklog: 30 TFLOP/s and 768 GB/s, where the data sheet has 38.7 TFLOP/s",
)
"""The A6000 with the ceilings of Boehm's roofline, which the reference figures are derived from."""

ALIASES = {
    "v100sxm2": "V100",
    "v100sxm216gb": "V100",
    "v100sxm232gb": "V100",
    "a100": "A100 80GB",
    "a100sxm440gb": "A100 40GB",
    "a100pcie40gb": "A100 40GB",
    "a100sxm480gb": "A100 80GB",
    "a100pcie80gb": "A100 80GB PCIe",
    "h100": "H100 SXM",
    "h10080gbhbm3": "H100 SXM",
    "h100sxm5": "H100 SXM",
}
"""Other names, as the driver has them or people say."""


def _key(name: str) -> str:
    """A name without case, punctuation and the words that brands put in front of it."""
    key = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"^(nvidia|geforce|tesla|rtx)+", "", key)


def _find(name: str) -> Gpu | None:
    """The row of the table for a name, or None."""
    rows = {_key(gpu.name): gpu for gpu in (*GPUS, A6000_BOEHM)}
    wanted = _key(name)
    return rows.get(_key(ALIASES.get(wanted, wanted)))


def named(name: str) -> Gpu:
    """The GPU of that name in the table, whatever the case and punctuation; ValueError for none."""
    gpu = _find(name)
    if gpu is None:
        known = ", ".join(gpu.name for gpu in (*GPUS, A6000_BOEHM))
        raise ValueError(f"there is no GPU {name!r} in the table; it has {known}")
    return gpu


def current() -> Gpu | None:
    """The machine's own GPU, the first one, as its driver describes it; None where there is none.

    Memory bandwidth is that of the memory's clock and bus (twice a cycle), which may differ by a few
    per cent from the rounded figure of a data sheet.  Where the driver does not tell them, and for the
    peaks of the tensor cores, the table has to know the GPU by its name.

    Asks the driver and makes no context, so that it may be called before or after Numba is imported.
    Raises RuntimeError for a GPU older than compute capability 7.0, and for one whose memory bandwidth
    neither the driver nor the table knows.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    try:
        [status] = driver.cuInit(0)
    except (RuntimeError, OSError):
        return None  # no driver is installed
    success = driver.CUresult.CUDA_SUCCESS
    if status != success:
        return None
    status, count = driver.cuDeviceGetCount()
    if status != success or count == 0:
        return None
    _, device = driver.cuDeviceGet(0)
    _, raw_name = driver.cuDeviceGetName(128, device)
    name = raw_name.split(bytes(1))[0].decode()

    def ask(attribute: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")
        status, value = driver.cuDeviceGetAttribute(which, device)
        return int(value) if status == success else 0

    capability = (ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR"))
    try:
        known = limits_of(capability)
    except ValueError as error:
        raise RuntimeError(f"{name}: {error}") from error
    limits = dataclasses.replace(
        known,
        warps=ask("MAX_THREADS_PER_MULTIPROCESSOR") // 32 or known.warps,
        blocks=ask("MAX_BLOCKS_PER_MULTIPROCESSOR") or known.blocks,
        shared_bytes=ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR") or known.shared_bytes,
        shared_bytes_per_block=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") or known.shared_bytes_per_block,
        reserved_shared_bytes=ask("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        registers=ask("MAX_REGISTERS_PER_MULTIPROCESSOR") or known.registers,
    )
    row = _find(name)
    bandwidth = ask("MEMORY_CLOCK_RATE") * 1e3 * 2 * ask("GLOBAL_MEMORY_BUS_WIDTH") / 8
    if not bandwidth:
        if row is None:
            raise RuntimeError(f"{name}: neither the driver nor the table knows its memory bandwidth")
        bandwidth = row.memory_bandwidth
    return Gpu(
        name=name,
        compute_capability=capability,
        multiprocessors=ask("MULTIPROCESSOR_COUNT"),
        boost_clock_hz=ask("CLOCK_RATE") * 1e3,
        memory_bandwidth=bandwidth,
        l2_bytes=ask("L2_CACHE_SIZE"),
        limits=limits,
        source="the driver",
        tf32_peak=row.tf32_peak if row else None,
        fp16_peak=row.fp16_peak if row else None,
    )
