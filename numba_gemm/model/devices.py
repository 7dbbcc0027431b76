"""GPUs and their limits: a small table, and what the driver says about the machine's own.

Sources.  Limits of a multiprocessor: CUDA C++ Programming Guide, "Compute Capabilities", by compute
capability (``LIMITS``).  The rest: NVIDIA's data sheets and architecture white papers, named in each
entry's ``source``.  Peaks of tensor cores are without sparsity and accumulate in float32.
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


LIMITS: dict[tuple[int, int], Limits] = {
    (7, 0): Limits(64, 64, 32, 96 * KIB, 96 * KIB, 0, 256),
    (7, 5): Limits(64, 32, 16, 64 * KIB, 64 * KIB, 0, 256),
    (8, 0): Limits(64, 64, 32, 164 * KIB, 163 * KIB),
    (8, 6): Limits(128, 48, 16, 100 * KIB, 99 * KIB),
    (8, 9): Limits(128, 48, 24, 100 * KIB, 99 * KIB),
    (9, 0): Limits(128, 64, 32, 228 * KIB, 227 * KIB),
    (10, 0): Limits(128, 64, 32, 228 * KIB, 227 * KIB),
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
        The highest clock it runs FP32 arithmetic at, in Hz.
    memory_bandwidth
        Of its DRAM, in bytes a second.
    l2_bytes
        Size of its L2 cache.
    tf32_peak, fp16_peak
        FLOP/s of the tensor cores on operands of TF32 and FP16 (BF16 alike, where it exists); None
        where it has none or they are not known.
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
    l2_mib: int,
    source: str,
    *,
    tf32: float | None = None,
    fp16: float | None = None,
) -> Gpu:
    """A row of the table, in the units that data sheets use; tensor peaks in TFLOP/s."""
    return Gpu(
        name,
        capability,
        multiprocessors,
        mhz * 1e6,
        gigabytes_a_second * 1e9,
        l2_mib * MIB,
        LIMITS[capability],
        source,
        tf32 * 1e12 if tf32 else None,
        fp16 * 1e12 if fp16 else None,
    )


GA102 = "NVIDIA Ampere GA102 GPU Architecture white paper"
GA100 = "NVIDIA A100 Tensor Core GPU Architecture white paper and A100 data sheet"
GH100 = "NVIDIA H100 Tensor Core GPU Architecture white paper"

GPUS: tuple[Gpu, ...] = (
    _gpu("V100", (7, 0), 80, 1530, 900, 6, "NVIDIA Tesla V100 GPU Architecture white paper", fp16=125),
    _gpu("T4", (7, 5), 40, 1590, 320, 4, "NVIDIA Turing GPU Architecture white paper", fp16=65),
    _gpu("A100 40GB", (8, 0), 108, 1410, 1555, 40, GA100, tf32=156, fp16=312),
    _gpu("A100 80GB", (8, 0), 108, 1410, 2039, 40, GA100, tf32=156, fp16=312),
    _gpu("A6000", (8, 6), 84, 1800, 768, 6, GA102, tf32=77.4, fp16=154.8),
    _gpu("RTX 3090", (8, 6), 82, 1695, 936, 6, GA102, tf32=35.6, fp16=71),
    _gpu(
        "RTX 4090",
        (8, 9),
        128,
        2520,
        1008,
        72,
        "NVIDIA Ada GPU Architecture white paper",
        tf32=82.6,
        fp16=165.2,
    ),
    _gpu("L4", (8, 9), 58, 2040, 300, 48, "NVIDIA L4 data sheet; L2: the driver", tf32=60, fp16=121),
    _gpu("H100 PCIe", (9, 0), 114, 1755, 2000, 50, GH100, tf32=378, fp16=756),
    _gpu("H100 SXM", (9, 0), 132, 1980, 3350, 50, GH100, tf32=494.7, fp16=989.4),
    _gpu(
        "H200",
        (9, 0),
        132,
        1980,
        4800,
        60,
        "NVIDIA H200 data sheet; multiprocessors, clock and L2: the driver",
        tf32=494.7,
        fp16=989.4,
    ),
    _gpu(
        "B200",
        (10, 0),
        148,
        1980,
        7700,
        126,
        "NVIDIA HGX B200 data sheet, an eighth of it, with the clock at which 148 multiprocessors have "
        "its 75 TFLOP/s; multiprocessors and L2: the driver",
        tf32=1100,
        fp16=2250,
    ),
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
    "a100": "A100 80GB",
    "a100sxm440gb": "A100 40GB",
    "a100pcie40gb": "A100 40GB",
    "a100sxm480gb": "A100 80GB",
    "a100pcie80gb": "A100 80GB",
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
