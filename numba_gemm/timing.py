"""How long the device takes, and how much energy, measured on the device.

A launch from Python costs tens of microseconds of host time, more than many kernels run.  So a round
first parks the device on a kernel that only waits, and queues everything behind it: the launches wait
for the device, not the device for them.  A round in which the host was late all the same is thrown away
and repeated with a longer wait.

Each launch is timed by a pair of events of its own, and before each, outside of the pair, a buffer
twice as large as the L2 cache is overwritten, so that every launch finds its operands in DRAM.  Two
events around a kernel that does nothing are a few microseconds apart (:func:`launch_floor`), and every
figure contains that.  With *warm_l2* nothing is overwritten: one pair of events encloses all launches
of a round, back to back, and what the one before left in L2 is there.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .nvml import Monitor, Reading
from .target import TARGET, cuda

__all__ = [
    "DeviceTimer",
    "Energy",
    "HostBoundError",
    "Timing",
    "device_energy",
    "device_time",
    "launch_floor",
]

HOLD_PER_LAUNCH_US = 200
"""How long to park the device for each launch that is queued, several times what Numba takes for one."""

MOST_PATIENCE = 64
"""How many times as long as that it may be parked before the work is taken to wait for the device."""

MAX_LAUNCHES = 20
ROUND_SECONDS = 0.02

MAX_ROUNDS = 7
MIN_ROUNDS = 3
ALL_ROUNDS_SECONDS = 1.0

FLUSH_FACTOR = 2
"""How many times the size of L2 is overwritten between launches."""


class HostBoundError(RuntimeError):
    """The work cannot be queued ahead: it waits for the device, or the host is far too slow."""


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


@cuda.jit  # type: ignore[untyped-decorator]
def nothing() -> None:
    """Do nothing, to see what a launch costs the device."""


class DeviceTimer:
    """Times one piece of work, *launch*, which queues it on *stream*, by CUDA events.

    Making one runs the work, so that it is compiled, and chooses ``launches``, how many of them fill a
    round of about 20 ms (20 at most), and ``rounds``, how many rounds fit in about a second (3 to 7).
    L2 is flushed before each launch unless *warm_l2*.  While the device works off a round, *monitor*
    is asked for clock and power, and ``readings`` collects what it says.

    Raises RuntimeError without a GPU, since the simulator's times say nothing about one, and
    HostBoundError for work that waits for the device.
    """

    def __init__(
        self,
        launch: Callable[[], Any],
        stream: Any = 0,
        *,
        warm_l2: bool = False,
        monitor: Monitor | None = None,
    ) -> None:
        if not TARGET.is_gpu:
            raise RuntimeError(f"device time needs a GPU, but {TARGET.reason}")
        self.launch = launch
        self.stream = stream
        self.monitor = monitor
        self.readings: list[Reading] = []
        self.flush = None if warm_l2 else _Flush(stream)
        self.hold = _one_thread(hold, stream)
        self.hold_us = HOLD_PER_LAUNCH_US * getattr(launch, "count", 1)
        self.patience = MOST_PATIENCE * self.hold_us
        self.launches = 1
        launch()
        seconds = self.round()  # not counted: clocks rise, caches fill
        if seconds < ROUND_SECONDS:
            seconds = self.round()
        self.launches = max(1, min(MAX_LAUNCHES, round(ROUND_SECONDS / max(seconds, 1e-9))))
        affordable = round(ALL_ROUNDS_SECONDS / max(seconds * self.launches, 1e-9))
        self.rounds = max(MIN_ROUNDS, min(MAX_ROUNDS, affordable))
        self.readings.clear()

    def round(self) -> float:
        """Device time of one launch in seconds, the mean over one round of them."""
        while True:
            pairs = self._queue()
            late = pairs[0][0].query()  # it had begun before all was queued, and may have starved
            self._wait(pairs[0][0], pairs[-1][1])
            if not late:
                total = sum(float(cuda.event_elapsed_time(*pair)) for pair in pairs)
                return total / 1e3 / self.launches
            self.hold_us *= 2
            if self.hold_us > self.patience:
                raise HostBoundError(
                    "the launches cannot be queued ahead of the device: something in them waits for it"
                )

    def _queue(self) -> list[tuple[Any, Any]]:
        """Queue a round behind a wait; returns the events around what is timed."""
        self.hold(self.hold_us * self.launches)
        if not self.flush:
            start, stop = cuda.event(), cuda.event()
            start.record(self.stream)
            for _ in range(self.launches):
                self.launch()
            stop.record(self.stream)
            return [(start, stop)]
        pairs = [(cuda.event(), cuda.event()) for _ in range(self.launches)]
        for start, stop in pairs:
            self.flush()
            start.record(self.stream)
            self.launch()
            stop.record(self.stream)
        return pairs

    def _wait(self, start: Any, stop: Any) -> None:
        """Wait for *stop*, reading the monitor between *start* and then."""
        while self.monitor and not stop.query():
            if start.query():
                self.readings.append(self.monitor.read())
            time.sleep(1e-3)
        stop.synchronize()


class _Flush:
    """Overwrites a buffer larger than L2, so that nothing of what was there remains."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.size = FLUSH_FACTOR * cuda.get_current_device().L2_CACHE_SIZE
        self.buffer = cuda.device_array(self.size, "uint8")

    def __call__(self) -> None:
        cuda.cudadrv.driver.device_memset(self.buffer, 0, self.size, self.stream)


def _one_thread(kernel: Any, stream: Any) -> Any:
    """The kernel, to be launched with one thread, without Numba's warning that this is few."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Grid size")
        return kernel[1, 1, stream]


def device_time(
    launch: Callable[[], Any], *, rounds: int | None = None, stream: Any = 0, warm_l2: bool = False
) -> Timing:
    """Time *launch*, which queues one piece of work on *stream*, over several *rounds*.

    Without *rounds* it is as many as fit in about a second, 3 to 7.  Raises what DeviceTimer does.
    """
    timer = DeviceTimer(launch, stream, warm_l2=warm_l2)
    return Timing(tuple(timer.round() for _ in range(rounds or timer.rounds)), timer.launches)


def launch_floor(*, warm_l2: bool = False) -> Timing:
    """What is measured for a kernel that does nothing: no launch takes less.

    Raises RuntimeError without a GPU.
    """
    return device_time(_one_thread(nothing, 0), warm_l2=warm_l2)


# Energy -------------------------------------------------------------------------------------------

ENERGY_SECONDS = 1.0
ENERGY_WARM_UP = 0.2
LEAST_FOR_ENERGY = 5e-4
"""Device time of a launch in seconds above which the host keeps the device busy."""


@dataclass(frozen=True)
class Energy:
    """What one launch takes when it is repeated without a pause.

    ``joules`` is the energy of one launch, ``watts`` the mean power of the whole board over
    ``interval`` seconds, ``seconds`` the device time of one launch meanwhile.
    """

    joules: float
    watts: float
    seconds: float
    interval: float


def device_energy(
    launch: Callable[[], Any],
    seconds: float,
    monitor: Monitor,
    *,
    stream: Any = 0,
    interval: float = ENERGY_SECONDS,
) -> Energy:
    """Repeat *launch*, which takes about *seconds*, for *interval* seconds and read the energy counter.

    The launches follow each other without a flush, whose energy would count.  The driver moves the
    counter on in steps, some tens of milliseconds apart; the mean power is the slope from one step to
    another at least *interval* later.

    Raises ValueError for launches so short that the host cannot keep the device busy, and for *seconds*
    that are no time, RuntimeError where the counter does not move.
    """
    if not LEAST_FOR_ENERGY <= seconds < math.inf:
        raise ValueError(
            f"seconds is {seconds:g}; it should be finite and at least {LEAST_FOR_ENERGY:g}"
        )
    batch = max(1, round(ROUND_SECONDS / seconds))
    steps: list[tuple[float, float]] = []
    in_flight: deque[Any] = deque()
    queued = 0
    start, stop = cuda.event(), cuda.event()
    start.record(stream)
    begin, last = time.perf_counter(), monitor.joules()
    while len(steps) < 2 or steps[-1][0] - steps[0][0] < interval:
        while len(in_flight) < 2:
            for _ in range(batch):
                launch()
            queued += batch
            event = cuda.event()
            event.record(stream)
            in_flight.append(event)
        if in_flight[0].query():
            in_flight.popleft()
        joules, now = monitor.joules(), time.perf_counter()
        if joules != last and now - begin > ENERGY_WARM_UP:
            steps.append((now, joules))
        last = joules
        if now - begin > 5 * interval + ENERGY_WARM_UP:
            raise RuntimeError("the driver's energy counter does not move")
        time.sleep(2e-4)
    stop.record(stream)
    stop.synchronize()
    each = float(cuda.event_elapsed_time(start, stop)) / 1e3 / queued
    (first, before), (final, after) = steps[0], steps[-1]
    watts = (after - before) / (final - first)
    return Energy(watts * each, watts, each, final - first)
