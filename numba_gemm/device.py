"""The GPU at hand: what it is called and what its arithmetic can reach."""

from __future__ import annotations

from dataclasses import dataclass

from .model import devices
from .target import TARGET, cuda

__all__ = ["Device", "current"]


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
        lanes = devices.limits_of(self.compute_capability).fp32_lanes
        return devices.fp32_peak(lanes * self.multiprocessors, self.clock_hz)


def current() -> Device | None:
    """The GPU that kernels run on; None in the simulator."""
    if not TARGET.is_gpu:
        return None
    device = cuda.get_current_device()
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    major, minor = device.compute_capability
    return Device(name, (major, minor), device.MULTIPROCESSOR_COUNT, device.CLOCK_RATE * 1e3)
