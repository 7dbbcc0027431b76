"""The GPU at hand: what it is called and what its arithmetic can reach."""

from __future__ import annotations

from dataclasses import dataclass

from .target import TARGET, cuda

__all__ = ["Device", "current"]

# FP32 lanes of a multiprocessor by compute capability; CUDA C++ Programming Guide, "Compute
# Capabilities", throughput of 32-bit floating-point multiply-add.
FP32_LANES = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
FP32_LANES_SINCE_AMPERE = 128


@dataclass(frozen=True)
class Device:
    """A GPU as its driver describes it; ``clock_hz`` is the highest clock it may run at."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float

    @property
    def fp32_peak(self) -> float:
        """FLOP/s with every FP32 lane doing one multiply-add, two FLOPs, a cycle."""
        lanes = FP32_LANES.get(self.compute_capability, FP32_LANES_SINCE_AMPERE)
        return 2.0 * lanes * self.multiprocessors * self.clock_hz


def current() -> Device | None:
    """The GPU that kernels run on; None in the simulator."""
    if not TARGET.is_gpu:
        return None
    device = cuda.get_current_device()
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    major, minor = device.compute_capability
    return Device(name, (major, minor), device.MULTIPROCESSOR_COUNT, device.CLOCK_RATE * 1e3)
