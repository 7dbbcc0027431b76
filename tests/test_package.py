"""The package as a stranger meets it: its names, its documentation, its ladder."""

import importlib.metadata
import importlib.resources
import inspect
import pydoc

import pytest

import numba_gemm
from numba_gemm import LADDER, Rung, rungs

PUBLIC = [
    "LADDER",
    "DeviceError",
    "Problem",
    "Rung",
    "TargetError",
    "Tile",
    "TileError",
    "VerificationError",
    "gemm",
]


def test_public_names():
    """The names the documentation promises, no more and no less."""
    assert sorted(numba_gemm.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(numba_gemm))


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_can_be_used(name):
    """Each is found when it is asked for, and is the same object every time."""
    value = getattr(numba_gemm, name)
    assert value is not None
    assert getattr(numba_gemm, name) is value


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "LADDER"])
def test_public_names_are_documented(name):
    """help() has something of its own to say about each, and about its public methods."""
    value = getattr(numba_gemm, name)
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")  # what a dataclass writes by itself
    if inspect.isclass(value):
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{name}.{attribute}"


def test_unknown_names():
    """The usual exception, so that hasattr and the like work."""
    with pytest.raises(AttributeError, match="module 'numba_gemm' has no attribute 'gemmm'"):
        numba_gemm.gemmm  # noqa: B018
    assert not hasattr(numba_gemm, "sgemm")


def test_the_signature_of_gemm():
    """Matrices by position, everything else by name, with the documented defaults."""
    parameters = inspect.signature(numba_gemm.gemm).parameters.values()
    by_name = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert [parameter.name for parameter in parameters] == ["A", "B", "C", *by_name]
    assert by_name == ["alpha", "beta", "rung", "stream", "verify"]
    defaults = [parameter.default for parameter in parameters][2:]
    assert defaults == [None, 1.0, 0.0, "auto", None, False]


def test_version():
    """The version that pip shows is the one the package tells."""
    assert importlib.metadata.version("numba-gemm") == numba_gemm.__version__


def test_type_hints_are_announced():
    """Without py.typed a type checker ignores the hints."""
    assert importlib.resources.files("numba_gemm").joinpath("py.typed").is_file()


# The ladder ---------------------------------------------------------------------------------------


def test_the_order_of_the_ladder():
    """Slowest first."""
    assert [rung.name for rung in LADDER] == [
        "naive",
        "coalesced",
        "tiled2d",
        "column",
        "square",
        "vectorized",
        "autotuned",
        "warptiled",
        "padded",
        "double_buffered",
        "async_copy",
        "split_k",
    ]


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_a_rung_is_a_module(rung):
    """Each rung's module offers its entry, its kernel, build and gemm, and explains itself."""
    module = getattr(rungs, rung.name)
    assert module.RUNG is rung
    assert module.kernel is rung.kernel is module.build()
    assert module.gemm == rung.gemm
    summary, _ = pydoc.splitdoc(inspect.getdoc(module))
    assert summary
    assert "Source:" in module.__doc__
    assert list(inspect.signature(rung.kernel.py_func).parameters) == [
        "A", "B", "C", "alpha", "beta",
    ]  # fmt: skip


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_a_rung_says_what_it_is(rung):
    """Title, idea and published source; reuse follows from the tile."""
    assert isinstance(rung, Rung)
    assert rung.title
    assert rung.idea
    assert rung.idea != rung.title
    assert ("Boehm, kernel" in rung.reference) == (rung.name != "split_k")
    assert rung.requires >= (7, 0)
    assert rung.reuse == ((rung.tile.BM, rung.tile.BN) if rung.tile else (1, 1))


def test_names_and_ideas_are_unique():
    """A rung is picked by its name and told from its neighbours by its idea."""
    for field in ("name", "title", "idea", "reference"):
        assert len({getattr(rung, field) for rung in LADDER}) == len(LADDER)


def test_every_rung_reuses_at_least_as_much_as_the_one_before():
    """Less is asked of global memory at every step, but for tiles that were found by measuring."""
    problem = numba_gemm.Problem(4096, 4096, 4096)
    ladder = [rung for rung in LADDER if rung.name != "autotuned"]
    requested = [problem.requested_bytes(*rung.reuse) for rung in ladder]
    assert requested == sorted(requested, reverse=True)
