"""Where kernels run is decided once, when the package is first used, and said in one line.

Numba cannot change its mind within a process, so most of these tests start a Python of their own.
"""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from numba_gemm.target import find_gpu

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # hides a GPU where there is one
VARIABLES = ("NUMBA_GEMM_TARGET", "NUMBA_GEMM_QUIET", "NUMBA_ENABLE_CUDASIM", "CUDA_VISIBLE_DEVICES")
USE = "import numba_gemm.rungs; from numba_gemm.target import TARGET; print(TARGET.kind)"


@pytest.fixture
def python(tmp_path):
    """Run a program in a Python of its own, in an empty folder, with these variables set."""

    def run(program, **variables):
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        return subprocess.run(
            [sys.executable, "-c", program],
            env=kept | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def assert_chose(finished, kind, reason):
    """The program ended well, the target is *kind*, and one line of stderr says why."""
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"{kind}\n"
    [line] = finished.stderr.splitlines()
    assert line.startswith("numba_gemm: ")
    assert reason in line


def assert_refused(finished, *phrases):
    """The program ended with a TargetError that says these things, and printed nothing else."""
    assert finished.returncode != 0
    assert finished.stdout == ""
    *traceback, last = finished.stderr.splitlines()
    assert traceback[0] == "Traceback (most recent call last):"
    assert last.startswith("numba_gemm.errors.TargetError: ")
    for phrase in phrases:
        assert phrase in last
    assert not any(line.startswith("numba_gemm: ") for line in traceback)


# What the environment asks for --------------------------------------------------------------------


def test_the_simulator_where_there_is_no_gpu(python):
    """Nothing is asked for, so it is whatever works; the line says what was missing."""
    assert_chose(python(USE, **NO_GPU), "simulator", "kernels run in Numba's CUDA simulator: ")


def test_the_line_can_be_left_out(python):
    """As commands do that run no kernel; what is refused is said all the same."""
    finished = python(USE, NUMBA_GEMM_TARGET="simulator", NUMBA_GEMM_QUIET="1")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "simulator\n", "")
    assert_refused(python(USE, NUMBA_GEMM_TARGET="moon", NUMBA_GEMM_QUIET="1"), "'moon'")


@pytest.mark.gpu
def test_the_gpu_where_there_is_one(python):
    """The line names the GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    finished = python(USE, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}))
    assert_chose(finished, "gpu", "kernels run on the GPU: ")
    assert "compute capability" in finished.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NUMBA_GEMM_TARGET", "simulator"),
        ("NUMBA_GEMM_TARGET", " Simulator "),
        ("NUMBA_ENABLE_CUDASIM", "1"),
    ],
)
def test_the_simulator_on_demand(python, name, value):
    """Either variable asks for it, and the line says which did."""
    assert_chose(python(USE, **{name: value}), "simulator", f"{name}={value.strip().lower()}")


@pytest.mark.parametrize(
    ("name", "value"), [("NUMBA_GEMM_TARGET", "gpu"), ("NUMBA_ENABLE_CUDASIM", "0")]
)
def test_a_gpu_on_demand_where_there_is_none(python, name, value):
    """No silent fallback: who asks for a GPU learns what is missing."""
    assert_refused(python(USE, **NO_GPU, **{name: value}), f"{name}={value} asks for a GPU, but ")


def test_a_target_that_does_not_exist(python):
    """The message says what there is."""
    finished = python(USE, NUMBA_GEMM_TARGET="nonsense")
    assert_refused(finished, "NUMBA_GEMM_TARGET is 'nonsense'; it should be 'gpu' or 'simulator'")


def test_our_variable_is_the_stronger(python):
    """NUMBA_GEMM_TARGET overrides Numba's switch, in either direction."""
    finished = python(USE, NUMBA_GEMM_TARGET="simulator", NUMBA_ENABLE_CUDASIM="0")
    assert_chose(finished, "simulator", "NUMBA_GEMM_TARGET=simulator")
    finished = python(USE, **NO_GPU, NUMBA_GEMM_TARGET="gpu", NUMBA_ENABLE_CUDASIM="1")
    assert_refused(finished, "NUMBA_GEMM_TARGET=gpu asks for a GPU")


def test_the_simulator_multiplies(python):
    """A whole multiply in a fresh process, by the public name."""
    program = (
        "import numpy as np, numba_gemm\n"
        "print(numba_gemm.gemm(np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32)).tolist())"
    )
    finished = python(program, NUMBA_GEMM_TARGET="simulator")
    assert finished.stdout == "[[1.0], [1.0]]\n"
    assert len(finished.stderr.splitlines()) == 1


# What the program has imported before -------------------------------------------------------------


def test_numba_imported_first(python):
    """Numba alone has not chosen yet."""
    assert_chose(python(f"import numba; {USE}", **NO_GPU), "simulator", "simulator: ")


def test_a_variable_set_after_numba_was_imported(python):
    """The environment counts as it is when the package is imported, not when Numba was."""
    program = f"import numba, os; os.environ['NUMBA_ENABLE_CUDASIM'] = '1'; {USE}"
    assert_chose(python(program), "simulator", "NUMBA_ENABLE_CUDASIM=1")


def test_numba_cuda_imported_first_in_the_simulator(python):
    """The program has chosen the simulator, and so do we."""
    finished = python(f"import numba.cuda; {USE}", NUMBA_ENABLE_CUDASIM="1")
    assert_chose(finished, "simulator", "the CUDA simulator that the program imported")


def test_numba_cuda_imported_first_without_a_gpu(python):
    """Too late to switch: the message says what to do."""
    finished = python(f"import numba.cuda; {USE}", **NO_GPU)
    assert_refused(finished, "import numba_gemm first", "NUMBA_ENABLE_CUDASIM=1")


@pytest.mark.parametrize(
    ("wanted", "switch", "how"),
    [("gpu", "1", "as the simulator"), ("simulator", "0", "without the simulator")],
)
def test_numba_cuda_imported_first_against_our_variable(python, wanted, switch, how):
    """The program's choice and ours differ, which nobody can mend any more."""
    finished = python(f"import numba.cuda; {USE}", NUMBA_GEMM_TARGET=wanted, NUMBA_ENABLE_CUDASIM=switch)
    assert_refused(finished, f"NUMBA_GEMM_TARGET={wanted}, but", f"already imported numba.cuda {how}")


# What an import does ------------------------------------------------------------------------------


def test_importing_the_package_does_nothing_yet(python):
    """No GPU is looked for, numba.cuda is not imported, nothing is printed."""
    finished = python("import numba_gemm, sys; sys.exit('numba.cuda' in sys.modules)")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "module", ["rungs.tiled2d", "rungs", "primitives", "harness", "timing", "operands", "dispatch"]
)
def test_any_module_may_come_first(python, module):
    """Whichever is imported first, the target is decided before numba.cuda is imported."""
    program = f"import numba_gemm.{module}; from numba_gemm.target import TARGET; print(TARGET.kind)"
    assert_chose(python(program, NUMBA_GEMM_TARGET="simulator"), "simulator", "simulator")


def test_problems_and_tiles_need_no_target(python):
    """Arithmetic about multiplies and tiles is possible where no kernel ever runs."""
    finished = python(
        "import numba_gemm, sys\n"
        "numba_gemm.Problem(1, 2, 3), numba_gemm.Tile(8, 8, 8)\n"
        "sys.exit('numba.cuda' in sys.modules)"
    )
    assert (finished.returncode, finished.stderr) == (0, "")


def test_importing_compiles_nothing(python):
    """A kernel is compiled when it is first launched, not for everyone who imports it."""
    program = (
        "from numba_gemm import LADDER\nprint([rung.name for rung in LADDER if rung.kernel.overloads])"
    )
    finished = python(program, NUMBA_GEMM_TARGET="compiler")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "[]\n"


# Looking for a GPU --------------------------------------------------------------------------------


@pytest.fixture
def answer(monkeypatch):
    """Set what a function of the driver returns; it begins as a driver with one usable GPU."""
    driver = pytest.importorskip("cuda.bindings.driver")
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def set_answer(function, *results, status="CUDA_SUCCESS"):
        answers = (getattr(driver.CUresult, status), *results)
        monkeypatch.setattr(driver, function, lambda *arguments: answers)

    set_answer("cuInit")
    set_answer("cuDeviceGetCount", 1)
    set_answer("cuDeviceGet", 0)
    set_answer("cuDeviceGetName", b"Imaginary 9000" + bytes(114))
    set_answer("cuDriverGetVersion", 13000)
    set_answer("cuDeviceGetAttribute", 9)  # of the capability, both its major and its minor number
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lambda name: None)
    return set_answer


def test_a_usable_gpu(answer):
    """Its name without the driver's padding, and its compute capability."""
    name = "Imaginary 9000 (compute capability 9.9)"
    assert find_gpu() == (name, name)


def test_no_driver(answer, monkeypatch):
    """What cuda.bindings raises when it finds no libcuda."""

    def fail(flags):
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    monkeypatch.setattr("cuda.bindings.driver.cuInit", fail)
    assert find_gpu() == (None, "no NVIDIA driver is installed")


def test_a_driver_that_does_not_start(answer):
    """The driver's own code is in the phrase."""
    answer("cuInit", status="CUDA_ERROR_NO_DEVICE")
    assert find_gpu() == (None, "the NVIDIA driver does not start (CUDA_ERROR_NO_DEVICE)")


@pytest.mark.parametrize("status", ["CUDA_SUCCESS", "CUDA_ERROR_NOT_INITIALIZED"])
def test_no_gpu(answer, status):
    """A driver with nothing to drive."""
    answer("cuDeviceGetCount", 0, status=status)
    assert find_gpu() == (None, "the NVIDIA driver shows no GPU")


def test_a_gpu_that_is_too_old(answer):
    """Older than Volta, which the package is built for."""
    answer("cuDeviceGetAttribute", 6)
    found = "Imaginary 9000 (compute capability 6.6) is older than compute capability 7.0"
    assert find_gpu() == (None, found)


def test_major_and_minor_are_not_mixed_up(answer, monkeypatch):
    """Volta itself, 7.0, is the oldest that will do; its minor number is less than its major."""

    def attribute(which, device):
        [success] = driver.cuInit(0)
        return success, {"MAJOR": 7, "MINOR": 0}[which.name.rpartition("_")[2]]

    driver = pytest.importorskip("cuda.bindings.driver")
    monkeypatch.setattr(driver, "cuDeviceGetAttribute", attribute)
    assert find_gpu()[0] == "Imaginary 9000 (compute capability 7.0)"


@pytest.mark.parametrize("missing", ["nvvm", "nvrtc"])
@pytest.mark.parametrize(("version", "extra"), [(12080, "cu12"), (13000, "cu13"), (13020, "cu13")])
def test_no_compiler_libraries(answer, monkeypatch, missing, version, extra):
    """The phrase says what to install, for this driver."""
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def load(name):
        if name == missing:
            raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    answer("cuDriverGetVersion", version)
    gpu, found = find_gpu()
    assert gpu is None
    assert "Imaginary 9000 (compute capability 9.9), but not the CUDA libraries" in found
    assert f"pip install 'numba-gemm[{extra}]'" in found


def test_no_bindings(monkeypatch):
    """Numba's CUDA package without its optional parts."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    gpu, found = find_gpu()
    assert gpu is None
    assert found.startswith("the CUDA Python bindings cannot be imported: ")


def test_the_error_can_be_caught_by_its_public_name(python):
    """Importing the name decides nothing, and it is the class that deciding raises."""
    finished = python(
        "import numba_gemm\n"
        "try:\n"
        "    numba_gemm.gemm\n"
        "except numba_gemm.TargetError:\n"
        "    print('caught')\n",
        NUMBA_GEMM_TARGET="nonsense",
    )
    assert finished.stdout == "caught\n"


def test_the_simulator_needs_no_cuda_library(python):
    """numba-cuda asks the CUDA runtime for its version while it is imported, simulator or not."""
    finished = python(
        "from cuda.bindings import runtime\n"
        "def missing(): raise RuntimeError('no libcudart')\n"
        "runtime.getLocalRuntimeVersion = missing\n"
        "import numpy as np, numba_gemm\n"
        "print(numba_gemm.gemm(np.ones((1, 2), np.float32), np.ones((2, 1), np.float32)))\n",
        NUMBA_GEMM_TARGET="simulator",
    )
    assert finished.stdout == "[[2.]]\n", finished.stderr


@pytest.mark.simulator
def test_threads_that_come_at_once_get_one_shared_array():
    """The simulator by itself may make two, and a kernel then computes garbage, once in a long while."""
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            shared, start, arrays = FakeCUDAShared(0), threading.Barrier(8), []

            def ask(shared=shared, start=start, arrays=arrays):
                start.wait()
                arrays.append(shared.array(4, np.float32))

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len({id(array) for array in arrays}) == 1
    finally:
        sys.setswitchinterval(interval)
