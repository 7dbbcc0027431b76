"""How launches are timed: what is inside of an interval, who waits for whom, what is read meanwhile.

A model of a device stands in for the GPU: one queue, worked off in order, with a clock of its own,
fed by a host whose every call takes time.
"""

import sys
import types

import pytest

from numba_gemm import environment, nvml, timing
from numba_gemm.nvml import Monitor, NvmlMissingError, Reading
from numba_gemm.target import TARGET

US = 1e-6


class Model:
    """A host and a device: ``now`` is the host's time, ``free`` when the device will be idle."""

    L2_CACHE_SIZE = 1000

    def __init__(self):
        self.now = self.free = 0.0
        self.busy = 0.0
        self.log = []
        self.event_cost = 2 * US

    def queue(self, what, seconds, host=5 * US):
        """Queue work of so many seconds; returns when it will be done."""
        self.now += host
        self.free = max(self.free, self.now) + seconds
        self.busy += seconds
        self.log.append(what)
        return self.free

    def launch(self, seconds, host=70 * US):
        """A launch, to be called, of a kernel that takes so long."""
        return lambda: self.queue("kernel", seconds, host)

    def get_current_device(self):
        return self

    def device_array(self, size, dtype):
        return size, dtype

    def device_memset(self, buffer, value, size, stream):
        assert buffer == (size, "uint8")
        self.queue(f"flush {size}", 40 * US)

    def event(self):
        return Event(self)

    def event_elapsed_time(self, start, stop):
        return (stop.at - start.at) * 1e3

    def sleep(self, seconds):
        self.now += seconds

    def perf_counter(self):
        return self.now

    @property
    def cudadrv(self):
        return types.SimpleNamespace(driver=self)


class Event:
    """What was queued before it is done at ``at``."""

    def __init__(self, model):
        self.model = model

    def record(self, stream=0):
        self.at = self.model.queue("event", 0, self.model.event_cost)

    def query(self):
        self.model.now += 1 * US
        return self.at <= self.model.now

    def synchronize(self):
        self.model.now = max(self.model.now, self.at)


class Watch:
    """A monitor that notes when it was read."""

    def __init__(self, model, watts=300.0, step=0.05):
        self.model, self.watts, self.step = model, watts, step
        self.times = []

    def read(self):
        self.times.append(self.model.now)
        return Reading(1500, self.watts, 0)

    def joules(self):
        """Moves on in steps, as a driver's counter does."""
        return self.watts * (self.model.now // self.step) * self.step


@pytest.fixture
def model(monkeypatch):
    """Let timing.py run on the model."""
    model = Model()
    monkeypatch.setattr(timing, "TARGET", types.SimpleNamespace(is_gpu=True))
    monkeypatch.setattr(timing, "cuda", model)
    monkeypatch.setattr(timing, "time", model)
    monkeypatch.setattr(
        timing,
        "_one_thread",
        lambda kernel, stream: lambda us: model.queue("hold", us * US),
    )
    return model


@pytest.mark.parametrize("seconds", [3 * US, 100 * US, 5e-3, 0.3])
def test_only_the_launch_is_timed(model, seconds):
    """Neither the host's time, nor the wait, nor the flush is in it."""
    measured = timing.device_time(model.launch(seconds))
    assert measured.median == pytest.approx(seconds)
    assert measured.spread == pytest.approx(0, abs=1e-9)


def test_l2_is_flushed_before_every_launch(model):
    """By overwriting twice its size, outside of the events."""
    timer = timing.DeviceTimer(model.launch(100 * US))
    model.log.clear()
    timer.round()
    one = ["flush 2000", "event", "kernel", "event"]
    assert model.log == ["hold", *one * timer.launches]
    assert timer.launches == timing.MAX_LAUNCHES


def test_a_warm_l2_is_left_alone(model):
    """All launches of a round between two events, with nothing between them."""
    timer = timing.DeviceTimer(model.launch(100 * US), warm_l2=True)
    model.log.clear()
    assert timer.round() == pytest.approx(100 * US)
    assert model.log == ["hold", "event", *["kernel"] * timer.launches, "event"]


def test_a_late_host_gets_more_time(model):
    """A launch that takes the host ten times as long as Numba's is still timed on the device."""
    timer = timing.DeviceTimer(model.launch(10 * US, host=700 * US))
    assert timer.round() == pytest.approx(10 * US)
    assert timer.hold_us > timing.HOLD_PER_LAUNCH_US


def test_work_that_waits_for_the_device_is_refused(model):
    """It cannot be queued ahead, so its figure would be the host's."""

    def launch():
        model.queue("kernel", 10 * US)
        model.now = max(model.now, model.free)

    with pytest.raises(timing.HostBoundError, match="waits for it"):
        timing.DeviceTimer(launch)


def test_a_launch_of_several_kernels_is_held_for_longer(model):
    """The host needs longer to queue them."""
    launch = model.launch(10 * US)
    launch.__dict__["count"] = 3
    assert timing.DeviceTimer(launch).hold_us >= 3 * timing.HOLD_PER_LAUNCH_US


@pytest.mark.parametrize(
    ("seconds", "launches", "rounds"), [(10 * US, 20, 7), (5e-3, 4, 7), (0.2, 1, 5), (2.0, 1, 3)]
)
def test_how_often(model, seconds, launches, rounds):
    """Short work fills rounds, long work has fewer of them."""
    timer = timing.DeviceTimer(model.launch(seconds))
    assert (timer.launches, timer.rounds) == (launches, rounds)
    assert len(timing.device_time(model.launch(seconds)).rounds) == rounds
    assert len(timing.device_time(model.launch(seconds), rounds=2).rounds) == 2


def test_long_work_is_not_run_more_than_needed(model):
    """Once to compile, once to see how long it takes, then its rounds."""
    timer = timing.DeviceTimer(model.launch(2.0))
    [timer.round() for _ in range(timer.rounds)]
    assert model.log.count("kernel") == 5


def test_the_monitor_is_read_while_the_device_works(model):
    """Not before the first launch begins, not after the last has ended."""
    watch = Watch(model)
    timer = timing.DeviceTimer(model.launch(5e-3), monitor=watch)
    assert timer.readings == []
    watch.times.clear()
    timer.round()
    assert len(timer.readings) == len(watch.times) > 5
    assert model.free - timer.launches * 5.1e-3 <= min(watch.times)
    assert max(watch.times) <= model.free


# Energy -------------------------------------------------------------------------------------------


def test_energy_of_a_launch(model):
    """Mean power times the time of a launch, while the device is never idle."""
    energy = timing.device_energy(model.launch(2e-3), 2e-3, Watch(model))
    assert energy.seconds == pytest.approx(2e-3, rel=1e-3)
    assert energy.watts == pytest.approx(300, rel=0.01)
    assert energy.joules == pytest.approx(0.6, rel=0.01)
    assert 1 <= energy.interval < 1.2
    assert model.busy == pytest.approx(model.free, rel=0.01)
    assert not [what for what in model.log if "flush" in what]


def test_energy_of_short_launches_is_refused(model):
    """The host could not keep the device busy, and idle power would be counted as theirs."""
    with pytest.raises(
        ValueError, match=r"seconds is 0\.0001; it should be finite and at least 0\.0005"
    ):
        timing.device_energy(model.launch(1e-4), 1e-4, Watch(model))
    for seconds in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match=f"seconds is {seconds:g}; it should be finite"):
            timing.device_energy(model.launch(1e-4), seconds, Watch(model))


def test_a_counter_that_stands_still(model):
    """Ends with an error instead of never."""
    with pytest.raises(RuntimeError, match="does not move"):
        timing.device_energy(model.launch(2e-3), 2e-3, Watch(model, watts=0.0))


# NVML ---------------------------------------------------------------------------------------------


class FakeNvml(types.ModuleType):
    """nvidia-ml-py on a machine whose second GPU, by NVML's count, is CUDA's first."""

    class NVMLError(Exception):
        """As NVML raises."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_FI_DEV_POWER_INSTANT, NVML_SUCCESS = 1, 2, 186, 0
    instant = 0
    counts = True

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByPciBusId(self, place):
        try:
            return {b"00000000:1b:00.0": "other", b"00000001:2c:00.0": "ours"}[place]
        except KeyError:
            raise self.NVMLError("Not Found") from None

    def nvmlDeviceGetClockInfo(self, gpu, clock):
        assert clock == 1
        return {"ours": 1755, "other": 345}[gpu]

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        assert (gpu, fields) == ("ours", [186])
        value = types.SimpleNamespace(uiVal=431500)
        return [types.SimpleNamespace(nvmlReturn=self.instant, value=value)]

    def nvmlDeviceGetPowerUsage(self, gpu):
        return 400000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        return 0x4 | 0x1

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        if not self.counts:
            raise self.NVMLError("Not Supported")
        return 12345


@pytest.fixture
def fake_nvml(monkeypatch):
    """NVML with the GPU of CUDA's current device at 0001:2c."""
    place = {"pci_domain_id": 1, "pci_bus_id": 0x2C, "pci_device_id": 0}
    device = types.SimpleNamespace(get_device_identity=lambda: place)
    monkeypatch.setattr(nvml, "TARGET", types.SimpleNamespace(is_gpu=True))
    monkeypatch.setattr(nvml, "cuda", types.SimpleNamespace(get_current_device=lambda: device))
    fake = FakeNvml("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_gpu_is_found_by_its_place(fake_nvml):
    """Not by its number, which NVML and CUDA count differently."""
    assert Monitor().read() == Reading(1755, 431.5, 5)
    fake_nvml.instant = 3  # not supported
    assert Monitor().read().watts == 400.0
    assert Monitor().joules() == 12.345


def test_what_nvml_lacks_is_said(fake_nvml, monkeypatch):
    """Another GPU, no counter, no library: a reason each."""
    fake_nvml.counts = False
    with pytest.raises(NvmlMissingError, match="does not tell energy: Not Supported"):
        Monitor().joules()
    monkeypatch.setattr(nvml, "_pci_bus_id", lambda: "00000009:00:00.0")
    with pytest.raises(NvmlMissingError, match="Not Found"):
        Monitor()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlMissingError, match=r"install numba-gemm\[bench\]"):
        Monitor()


@pytest.mark.simulator
def test_no_monitor_in_the_simulator():
    with pytest.raises(NvmlMissingError, match="need a GPU"):
        Monitor()


def test_summary_of_readings():
    """Medians, the lowest clock, every reason that held the clock back, and no other."""
    readings = [Reading(1980, 500, 0), Reading(1200, 700, 0x4 | 0x2), Reading(1500, 600, 0x41)]
    assert nvml.summary(readings) == {
        "sm_mhz": 1500,
        "lowest_sm_mhz": 1200,
        "watts": 600,
        "throttled": ["power cap", "thermal, hardware"],
    }
    assert nvml.summary([]) == {}


# On the GPU ---------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_kernel_that_does_nothing():
    """It takes some microseconds, the wait and the flush are not in it."""
    assert 0 < timing.launch_floor().median < 1e-4


@pytest.mark.gpu
def test_the_monitor_here():
    """Where NVML is there, what it tells of this GPU makes sense."""
    try:
        monitor = Monitor()
    except NvmlMissingError as error:
        pytest.skip(str(error))
    assert monitor.read().sm_mhz > 0
    assert monitor.joules() > 0
    assert monitor.limits()["max_sm_mhz"] > 0


def test_the_environment():
    """It names the device and the versions, and says nothing that changes from run to run."""
    found = environment.describe()
    assert found == environment.describe()
    assert {"python", "numba", "numba-cuda", "numpy", "numba-gemm"} <= set(found["versions"])
    assert ("fp32_peak_flops_per_second" in found) == TARGET.is_gpu
