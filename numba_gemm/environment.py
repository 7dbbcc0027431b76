"""Where and with what something was measured, for the record that goes with the figures."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import __version__, device, nvml
from .target import TARGET, cuda

__all__ = ["describe"]

PACKAGES = ("numba", "numba-cuda", "numpy", "cuda-bindings", "torch", "nvmath-python", "nvidia-ml-py")
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


def describe() -> dict[str, Any]:
    """The GPU, its driver and limits, and the versions of everything that has a share in a figure.

    Nothing in it changes from one run to the next on the same machine: no date, no clock of the
    moment.  In the simulator there is no GPU to describe, and ``device`` says so.
    """
    versions: dict[str, str] = {"python": platform.python_version(), "numba-gemm": __version__}
    versions |= {name: known for name in PACKAGES if (known := _version(name))}
    cupy = next(filter(None, map(_version, CUPY)), None)
    if cupy:
        versions["cupy"] = cupy
    gpu = device.current()
    if gpu is None:
        return {"device": "simulator", "reason": TARGET.reason, "versions": versions}
    major, minor = cuda.cudadrv.driver.get_version()
    found: dict[str, Any] = {
        "device": gpu.name,
        "compute_capability": "{}.{}".format(*gpu.compute_capability),
        "multiprocessors": gpu.multiprocessors,
        "l2_bytes": cuda.get_current_device().L2_CACHE_SIZE,
        "fp32_peak_flops_per_second": gpu.fp32_peak,
        "cuda_driver": f"{major}.{minor}",
        "versions": versions,
    }
    try:
        found |= nvml.Monitor().limits()
    except nvml.NvmlMissingError as error:
        found["nvml"] = str(error)
    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if override is not None:  # it would change what cuBLAS computes, against every setting
        found["NVIDIA_TF32_OVERRIDE"] = override
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
