"""Benchmarks measure device time, and a plain ``pytest`` runs each of them once, untimed."""

import pathlib
import shlex

import measuring
import pytest

from numba_gemm import environment
from numba_gemm.target import TARGET
from numba_gemm.timing import launch_floor

# Options with which somebody asks for measurements; without one of them a benchmark is a smoke test.
ASKING = ("only", "enable", "json", "save", "autosave", "compare")


def pytest_addoption(parser):
    """Options of these benchmarks."""
    group = parser.getgroup("numba_gemm benchmarks")
    group.addoption(
        "--warm-l2",
        action="store_true",
        help="leave L2 as the launch before left it, and time launches back to back",
    )
    group.addoption(
        "--energy",
        action="store_true",
        help="measure the energy of every multiply of half a millisecond or more, a second each "
        "(without it, at 4096 x 4096 x 4096 only)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    asked = any(getattr(config.option, f"benchmark_{option}", None) for option in ASKING)
    if not asked:
        config.option.benchmark_disable = True
    measuring.OPTIONS = config.option


def pytest_collection_modifyitems(config, items):
    """With ``--benchmark-only``, leave the tests out instead of listing a skip for each."""
    if config.option.benchmark_only:
        kept = [item for item in items if "benchmark" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_benchmark_update_machine_info(config, machine_info):
    """The GPU, its driver and the versions; the same in every run on a machine, so that runs compare."""
    machine_info["numba_gemm"] = environment.describe()


def _local(argument):
    """An argument as one would type it elsewhere: of a whole path, only the name."""
    name, equals, value = str(argument).rpartition("=")
    path = pathlib.PurePath(value)
    return name + equals + (path.name if path.is_absolute() else value)


def pytest_benchmark_update_json(config, benchmarks, output_json):
    """What else it takes to make the figures again."""
    about = {"command": shlex.join(["pytest", *map(_local, config.invocation_params.args)])}
    if TARGET.is_gpu:
        about["launch_floor_seconds"] = launch_floor(warm_l2=config.option.warm_l2).median
    output_json["numba_gemm"] = about


@pytest.fixture(scope="module")
def multiply(request):
    """A problem with random operands on the device; parametrize it indirectly with shapes."""
    return measuring.multiply(request.param)
