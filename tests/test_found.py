"""What searches found: classes of shapes, files that two processes write, damaged ones."""

import dataclasses
import functools
import json
import multiprocessing
import os

import pytest

from numba_gemm import Tile
from numba_gemm.search import found
from numba_gemm.search.found import Found, best, classes, keep, load, shape_class
from numba_gemm.search.space import Candidate
from numba_gemm.search.suite import SUITE

DEVICE = "NVIDIA Test-1"
TILE = Tile(64, 64, 16, 8, 4, 32, 32, 3)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache and a folder of shipped results of this test's own, both empty."""
    monkeypatch.setenv("NUMBA_GEMM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(found, "SHIPPED", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    return tmp_path / "cache" / "found" / "test-1.json"


def result(M=4096, N=4096, K=4096, rung="async_copy", seconds=1e-3, **changes):
    given = {
        "device": DEVICE,
        "candidate": Candidate(rung, TILE),
        "shape": (M, N, K),
        "seconds": seconds,
        "cublas_seconds": None,
        "versions": found.versions(),
    }
    return Found(**given | changes)


def test_classes_of_shapes():
    """The power of two next to each size, and what rows allow."""
    assert shape_class(4096, 4096, 4096) == "4096x4096x4096 whole"
    assert shape_class(4092, 4092, 4092) == "4096x4096x4096 aligned"
    assert shape_class(4093, 4093, 4093) == "4096x4096x4096 odd"
    assert shape_class(4096, 4096, 4096, aligned=False) == "4096x4096x4096 odd"
    assert shape_class(16, 4096, 4096) == "16x4096x4096 aligned"
    assert shape_class(3000, 2800, 1) == "4096x2048x1 odd"
    assert shape_class(1, 1, 1) == "1x1x1 odd"


def test_every_shape_of_the_suite_has_a_class_of_its_own():
    """Else one would overwrite what the other found."""
    assert len(SUITE) == len({shape_class(*shape) for shape in SUITE}) == 24
    assert {SUITE[0], SUITE[7]} == {(64,) * 3, (8192,) * 3}


def test_what_is_kept_is_loaded(cache):
    results = [result(), result(256, 256, 256, cublas_seconds=2e-3)]
    assert keep(results) == [cache]
    assert sorted(load(DEVICE), key=lambda found: found.shape) == results[::-1]
    assert load("another GPU") == []
    assert load("test 1") == load(DEVICE)


def test_a_device_by_any_of_its_names(cache):
    """The driver's, the table's and those that the table takes."""
    keep([result(device="NVIDIA H200")])
    assert [found.device for found in load("H200")] == ["NVIDIA H200"]
    assert load("H100") == []


def test_a_new_result_replaces_its_rungs_and_class(cache):
    keep([result(seconds=1e-3), result(rung="split_k", seconds=3e-3)])
    keep([result(4000, 4096, 4096), result(3968, 4096, 4096, seconds=2e-3)])
    kept = {(found.candidate.rung, found.shape): found.seconds for found in load(DEVICE)}
    assert kept == {
        ("async_copy", (4000, 4096, 4096)): 1e-3,  # of another class, with a fringe
        ("async_copy", (3968, 4096, 4096)): 2e-3,
        ("split_k", (4096, 4096, 4096)): 3e-3,
    }


def test_results_of_other_versions_do_not_count(cache):
    """The user's own; what came with the package is not held to them."""
    old = result(versions={"numba-gemm": "0.0"})
    found.write(found.SHIPPED / "test.json", [dataclasses.replace(old, seconds=9.0)])
    keep([old])
    assert [found.seconds for found in load(DEVICE)] == [9.0]
    keep([result(256, 256, 256)])
    assert len(json.loads(cache.read_text())["results"]) == 1


def test_the_kernels_count_as_a_version(tmp_path, monkeypatch):
    """A changed kernel makes other results."""
    before = found.versions()
    assert set(before) >= {"numba-gemm", "numba", "numba-cuda", "kernels"}
    for folder in ("rungs", "primitives"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("pass")
    monkeypatch.setattr(found, "PACKAGE", tmp_path)
    found.versions.cache_clear()
    try:
        assert found.versions()["kernels"] != before["kernels"]
    finally:
        found.versions.cache_clear()


def test_the_best_of_a_class():
    """Fastest first, by FLOP/s and not by time; of one rung the user's own, which comes first."""
    mine, theirs = result(seconds=1e-3), result(seconds=0.5e-3)
    smaller = result(3968, 3968, 3968, rung="split_k", seconds=0.95e-3)
    other = result(512, 512, 512, rung="vectorized", seconds=1e-9)
    wanted = shape_class(4096, 4096, 4096)
    assert best([mine, theirs, smaller, other], wanted) == [mine, smaller]
    assert best([mine, smaller], shape_class(4096, 4096, 4096, aligned=False)) == []
    faster = dataclasses.replace(smaller, seconds=0.9e-3)
    assert best([mine, faster], wanted) == [faster, mine]


def test_classes_in_place_of_another():
    """The same sizes, by how much their rows differ."""
    sizes = "4096x4096x4096"
    assert classes(4096, 4096, 4096) == (f"{sizes} whole", f"{sizes} aligned", f"{sizes} odd")
    assert classes(4092, 4092, 4092) == (f"{sizes} aligned", f"{sizes} whole", f"{sizes} odd")
    assert classes(4093, 4093, 4093) == (f"{sizes} odd", f"{sizes} aligned", f"{sizes} whole")


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"",
        b"\xff",
        b"[]",
        b'{"format": 99, "results": []}',
        b'{"format": 1, "results": [{"device": "NVIDIA Test-1"}]}',
        b'{"format": 1, "results": 3}',
        b"[" * 100_000,
        b'{"format": 1, "more": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_set_aside(cache, damage):
    """With a warning; nothing is lost, and new results are kept."""
    cache.parent.mkdir(parents=True)
    cache.write_bytes(damage)
    with pytest.warns(UserWarning, match="damaged"):
        assert load(DEVICE) == []
    [aside] = cache.parent.glob("*.damaged-*")
    assert aside.read_bytes() == damage
    keep([result()])
    assert load(DEVICE) == [result()]


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": 10**400},
        {"cublas_seconds": "nan"},
        {"shape": [1, 2]},
        {"shape": [float("inf"), 1, 1]},
        {"shape": [10**400, 1, 1]},
        {"candidate": {"rung": "x"}},
        {"candidate": {"rung": "x", "tile": {"BM": 0.5, "BN": 1, "BK": 1}}},
        {"candidate": {"rung": "x", "tile": None, "order": [float("inf")]}},
    ],
)
def test_a_result_that_makes_no_sense_is_damage(cache, change):
    entry = json.loads(json.dumps(dataclasses.asdict(result()))) | change
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps({"format": 1, "results": [entry]}))
    with pytest.warns(UserWarning, match="damaged"):
        assert load(DEVICE) == []


def test_what_cannot_be_read_is_passed_over(cache, tmp_path, monkeypatch):
    """With a warning: a folder, a file in place of a folder, a name too long, a forbidden file."""
    found.write(found.SHIPPED / "b.json", [result()])
    cache.mkdir(parents=True)
    for place, message in (
        (tmp_path / "cache", "Is a directory"),
        (cache.parents[2] / "shipped" / "b.json", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        monkeypatch.setenv("NUMBA_GEMM_CACHE", str(place))
        with pytest.warns(UserWarning, match=f"passed over: {message}"):
            assert load(DEVICE) == [result()]
        with pytest.raises(OSError, match=message):
            keep([result()])

    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    found.SHIPPED.joinpath("b.json").unlink()
    monkeypatch.setattr(found.Path, "exists", forbidden)
    monkeypatch.setattr(found.Path, "read_bytes", forbidden)
    with pytest.warns(UserWarning, match="passed over: Permission denied"):
        assert load(DEVICE) == []


def test_damaged_shipped_results_are_passed_over():
    """They may lie where nothing can be renamed."""
    found.SHIPPED.joinpath("a.json").write_text("{")
    found.write(found.SHIPPED / "b.json", [result()])
    with pytest.warns(UserWarning, match=r"a\.json is passed over"):
        assert load(DEVICE) == [result()]
    assert found.SHIPPED.joinpath("a.json").exists()


def test_results_that_come_with_the_package(monkeypatch):
    """Whatever is there can be read."""
    monkeypatch.undo()
    for path in found.SHIPPED.glob("*.json"):
        assert found._read(path)


def write_many(store, first):
    """Keep results of twenty classes, one by one."""
    for n in range(20):
        store([result(K=2 ** (n % 10) * 4, rung=f"r{first + n // 10}")])


@pytest.mark.parametrize("name", ["keep", "add"])
def test_two_processes_may_write_at_once(cache, name):
    """Nothing of either is lost, and the file is whole whenever it is looked at."""
    cache.parent.mkdir(parents=True)
    store = {"keep": keep, "add": functools.partial(found.add, cache)}[name]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(store, first)) for first in (0, 2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        load(DEVICE)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(load(DEVICE)) == 40


def test_a_failed_write_leaves_the_old_file(cache, monkeypatch):
    keep([result()])
    before = cache.read_bytes()

    def refuse(*arguments):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        keep([result(rung="split_k")])
    assert cache.read_bytes() == before
    assert sorted(path.name for path in cache.parent.iterdir()) == [cache.name, cache.name + ".lock"]
