"""How long the device takes, measured on the device.

A launch from Python costs tens of microseconds of host time, more than many kernels run.  So a
round first parks the device on a kernel that only waits, queues its launches behind it, and takes the
time between two events around them: the launches wait for the device, not the device for them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .target import TARGET, cuda

__all__ = ["Timing", "device_time"]

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


def device_time(launch: Callable[[], Any], *, rounds: int = 7, stream: Any = 0) -> Timing:
    """Time *launch*, which queues one piece of work on *stream*, by CUDA events.

    Each of the *rounds* queues enough launches to run for about 20 ms, 20 at most.  The first call,
    which may compile, and a first round are not counted.

    Raises RuntimeError without a GPU: the simulator's times say nothing about one.
    """
    if not TARGET.is_gpu:
        raise RuntimeError(f"device time needs a GPU, but {TARGET.reason}")
    launch()
    stream_or_device = stream if stream else cuda
    stream_or_device.synchronize()

    start, stop = cuda.event(), cuda.event()

    def one_round(launches: int) -> float:
        hold[1, 1, stream](HOLD_PER_LAUNCH_US * launches)
        start.record(stream)
        for _ in range(launches):
            launch()
        stop.record(stream)
        stop.synchronize()
        return float(cuda.event_elapsed_time(start, stop)) / 1e3 / launches

    one_round(1)
    once = one_round(1)
    launches = max(1, min(MAX_LAUNCHES, round(ROUND_SECONDS / max(once, 1e-9))))
    return Timing(tuple(one_round(launches) for _ in range(rounds)), launches)
