"""How long the device takes, measured on the device.

A launch from Python costs tens of microseconds of host time, more than many kernels run.  So a
round first parks the device on a kernel that only waits, queues its launches behind it, and takes the
time between two events around them: the launches wait for the device, not the device for them.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .target import TARGET, cuda

__all__ = ["DeviceTimer", "Timing", "device_time"]

HOLD_PER_LAUNCH_US = 200
"""How long to park the device for each launch that is queued: thrice what Numba takes to launch."""

MAX_LAUNCHES = 20
ROUND_SECONDS = 0.02


@dataclass(frozen=True)
class Timing:
    """Device time of one launch, in seconds: one figure a round, each the mean of its launches."""

    rounds: tuple[float, ...]
    launches: int

    @property
    def median(self) -> float:
        """The median over the rounds, in seconds."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Slowest round less fastest, as a fraction of the median."""
        return (max(self.rounds) - min(self.rounds)) / self.median


@cuda.jit  # type: ignore[untyped-decorator]
def hold(microseconds: int) -> None:
    """Keep the stream busy for at least so long."""
    for _ in range(microseconds):
        cuda.nanosleep(1000)


class DeviceTimer:
    """Times one piece of work, *launch*, which queues it on *stream*, by CUDA events.

    Making one runs the work once, so that it is compiled, and chooses how many launches fill a round of
    about 20 ms, 20 at most.  Raises RuntimeError without a GPU: the simulator's times say nothing about
    one.
    """

    def __init__(self, launch: Callable[[], Any], stream: Any = 0) -> None:
        if not TARGET.is_gpu:
            raise RuntimeError(f"device time needs a GPU, but {TARGET.reason}")
        self.launch = launch
        self.stream = stream
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Grid size")  # one thread waits best
            self.hold = hold[1, 1, stream]
        self.launches = 1
        launch()
        self.round()  # not counted: clocks rise, caches fill
        self.launches = max(1, min(MAX_LAUNCHES, round(ROUND_SECONDS / max(self.round(), 1e-9))))

    def round(self) -> float:
        """Device time of one launch in seconds, the mean over one round of them."""
        start, stop = cuda.event(), cuda.event()
        self.hold(HOLD_PER_LAUNCH_US * self.launches * getattr(self.launch, "count", 1))
        start.record(self.stream)
        for _ in range(self.launches):
            self.launch()
        stop.record(self.stream)
        stop.synchronize()
        return float(cuda.event_elapsed_time(start, stop)) / 1e3 / self.launches


def device_time(launch: Callable[[], Any], *, rounds: int = 7, stream: Any = 0) -> Timing:
    """Time *launch*, which queues one piece of work on *stream*, over several *rounds*.

    Raises RuntimeError without a GPU.
    """
    timer = DeviceTimer(launch, stream)
    return Timing(tuple(timer.round() for _ in range(rounds)), timer.launches)
