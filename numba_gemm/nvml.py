"""Clocks, power, energy and throttling of the GPU that kernels run on, read from its driver.

NVML, the management library that comes with the driver, is read through nvidia-ml-py, NVIDIA's own
binding.  Everything here reads; nothing ever sets a clock or a limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .target import TARGET, cuda

__all__ = ["Monitor", "NvmlMissingError", "Reading", "summary"]

# Reasons for a clock below the highest, nvml.h, nvmlClocksEventReasons.  Not among them are those that
# say nothing about a kernel: an idle GPU, clocks set by a user, the clock of a display.
THROTTLING = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, software",
    0x40: "thermal, hardware",
    0x80: "power brake",
}


class NvmlMissingError(RuntimeError):
    """Clocks and power cannot be read; the message says why."""


@dataclass(frozen=True)
class Reading:
    """One moment: the clock of the multiprocessors, the power of the board, NVML's bits for reasons."""

    sm_mhz: int
    watts: float
    reasons: int


class Monitor:
    """Reads the GPU that the current CUDA context is on.

    NVML and CUDA number devices differently, so it is looked up by its place on the PCI bus.  Raises
    NvmlMissingError without a GPU, nvidia-ml-py or a driver that answers.
    """

    def __init__(self) -> None:
        if not TARGET.is_gpu:
            raise NvmlMissingError(f"clocks and power need a GPU, but {TARGET.reason}")
        try:
            import pynvml
        except ImportError as error:
            raise NvmlMissingError(
                f"nvidia-ml-py cannot be imported ({error}); install numba-gemm[bench]"
            ) from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByPciBusId(_pci_bus_id().encode())
            self.read()
        except pynvml.NVMLError as error:
            raise NvmlMissingError(f"the driver does not tell clocks and power: {error}") from error

    def read(self) -> Reading:
        """Clock, power and reasons now."""
        nvml, gpu = self._nvml, self._gpu
        return Reading(
            nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            self._watts(),
            nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
        )

    def _watts(self) -> float:
        """Power now; the mean over the last second where the driver has no better."""
        nvml = self._nvml
        [field] = nvml.nvmlDeviceGetFieldValues(self._gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if field.nvmlReturn == nvml.NVML_SUCCESS:
            return float(field.value.uiVal) / 1e3
        return float(nvml.nvmlDeviceGetPowerUsage(self._gpu)) / 1e3

    def joules(self) -> float:
        """Energy since the driver was loaded; NvmlMissingError where the GPU does not count it."""
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu)) / 1e3
        except self._nvml.NVMLError as error:
            raise NvmlMissingError(f"the driver does not tell energy: {error}") from error

    def limits(self) -> dict[str, Any]:
        """The driver's version, highest clocks in MHz and power limit in W, as they are set."""
        nvml, gpu = self._nvml, self._gpu
        return {
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "max_sm_mhz": nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "max_memory_mhz": nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
            "power_limit_watts": nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
        }


def _pci_bus_id() -> str:
    """Domain, bus and device of the current CUDA device, as NVML writes them."""
    place = cuda.get_current_device().get_device_identity()
    return "{pci_domain_id:08x}:{pci_bus_id:02x}:{pci_device_id:02x}.0".format(**place)


def summary(readings: Iterable[Reading]) -> dict[str, Any]:
    """Median clock and power, lowest clock, and every throttling reason seen; empty without readings."""
    readings = list(readings)
    if not readings:
        return {}
    reasons = 0
    for reading in readings:
        reasons |= reading.reasons
    return {
        "sm_mhz": round(statistics.median(reading.sm_mhz for reading in readings)),
        "lowest_sm_mhz": min(reading.sm_mhz for reading in readings),
        "watts": round(statistics.median(reading.watts for reading in readings), 1),
        "throttled": [name for bit, name in THROTTLING.items() if reasons & bit],
    }
