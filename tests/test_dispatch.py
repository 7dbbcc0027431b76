"""Which kernel serves a multiply: what was found, else what the model expects, and remembering it."""

import dataclasses

import numpy as np
import pytest

from numba_gemm import LADDER, Problem, Tile, cli, dispatch, gemm, harness
from numba_gemm.model import devices
from numba_gemm.rungs import async_copy, naive, split_k, tiled2d
from numba_gemm.search import found
from numba_gemm.search.found import Found
from numba_gemm.search.space import Candidate
from numba_gemm.search.suite import SUITE
from numba_gemm.target import Target

H200 = devices.named("H200")
V100 = next(gpu for gpu in devices.GPUS if gpu.compute_capability == (7, 0))
TILE = Tile(64, 64, 16, 8, 4, 32, 32, 3)
CUBE = Problem(4096, 4096, 4096)


@pytest.fixture(autouse=True)
def nothing_found(tmp_path, monkeypatch):
    """No results but a test's own, and nothing remembered before or after."""
    monkeypatch.setenv("NUMBA_GEMM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(found, "SHIPPED", tmp_path / "shipped")
    dispatch.forget()
    yield
    dispatch.forget()


def result(rung, tile, seconds, shape=(4096, 4096, 4096), cublas=None):
    return Found(H200.name, Candidate(rung, tile), shape, seconds, cublas, found.versions())


def test_what_was_found_decides():
    """The fastest for the class, with its tile, on that device only; the reason says so."""
    found.keep(
        [
            result("async_copy", TILE, 2.5e-3, cublas=3e-3),
            result("vectorized", Tile(64, 64, 16, 4, 4), 3e-3),
            result("naive", None, 1e-6, (16, 4096, 4096)),
        ]
    )
    choice = dispatch.choose(CUBE, H200)
    assert (choice.rung, choice.tile) == (async_copy.RUNG, TILE)
    assert "fastest of those measured for 4096x4096x4096 whole" in choice.reason
    assert "54.98 TFLOP/s, 1.20 x cuBLAS at 4096 x 4096 x 4096" in choice.reason
    assert dispatch.choose(Problem(3840, 4480, 4096), H200) == choice
    assert dispatch.choose(Problem(16, 4096, 4000), H200).rung is naive.RUNG
    for other in (
        dispatch.choose(Problem(4096, 4096, 2048), H200),
        dispatch.choose(CUBE, devices.named("RTX 4090")),
    ):
        assert "nothing measured for 4096x4096x" in other.reason


def test_other_rows_of_the_same_sizes_will_do():
    """Where nothing was measured for the class itself, and the reason says so."""
    found.keep([result("async_copy", TILE, 2.5e-3)])
    in_place = "for 4096x4096x4096 whole, in place of 4096x4096x4096 odd: "
    assert in_place in dispatch.choose(CUBE, H200, aligned=False).reason
    assert in_place in dispatch.choose(Problem(4093, 4093, 4093), H200).reason
    dispatch.forget()
    found.keep([result("padded", None, 2.5e-3, (4092, 4092, 4092))])
    assert dispatch.choose(Problem(4093, 4093, 4093), H200).rung.name == "padded"
    assert dispatch.choose(CUBE, H200).rung is async_copy.RUNG


def test_found_results_that_do_not_fit_are_passed_over():
    """An unknown rung, an illegal tile, a rung that is too new for the GPU."""
    found.keep(
        [
            result("removed", None, 1e-9),
            result("async_copy", Tile(3, 3, 3, stages=2), 1e-8),
            result("padded", Tile(128, 128, 8, 8, 8, 64, 32), 1e-3),
        ]
    )
    assert dispatch.choose(CUBE, H200).rung.name == "padded"
    old = dataclasses.replace(V100, name=H200.name)
    found.keep([result("async_copy", TILE, 1e-9)])
    assert dispatch.choose(CUBE, old).rung.name == "padded"


@pytest.mark.parametrize("gpu", [H200, V100, devices.named("A6000")], ids=lambda gpu: gpu.name)
def test_the_model_chooses_what_the_gpu_can_run(gpu):
    """For every shape of the suite: the highest rung of the portfolio, with a legal tile."""
    top = "split_k" if gpu.compute_capability >= (8, 0) else "double_buffered"
    for shape in SUITE:
        choice = dispatch.choose(Problem(*shape), gpu)
        assert choice.rung.name == top
        assert not choice.rung.why_illegal(choice.tile)
        assert "the model expects" in choice.reason


def test_tiles_by_size():
    """Large for a large C, small for a small one, flat for a flat one."""

    def tile(*shape):
        return dispatch.choose(Problem(*shape), H200).tile

    assert tile(8192, 8192, 8192) == split_k.TILE
    assert tile(128, 128, 128).BM <= 32
    assert tile(16, 4096, 4096).BM == 16
    assert tile(512, 512, 512).BM * tile(512, 512, 512).BN < 64 * 128


def test_nothing_to_multiply():
    for shape in ((0, 5, 5), (5, 0, 5), (5, 5, 0)):
        assert dispatch.choose(Problem(*shape), H200).tile is None
        assert "nothing" in dispatch.explain(Problem(*shape), H200)


def test_an_older_gpu_gets_the_lowest_rung():
    """Which then says what the GPU lacks."""
    old = dataclasses.replace(V100, compute_capability=(6, 1))
    assert dispatch.choose(CUBE, old).rung is LADDER[0]


def test_explain_says_what_and_why():
    """What is chosen, what else was measured, what the model expects."""
    found.keep([result("async_copy", TILE, 2.5e-3), result("tiled2d", Tile(32, 32, 32), 9e-3)])
    text = dispatch.explain(CUBE, H200)
    first, second, *rest = text.splitlines()
    assert first == f"4096 x 4096 x 4096 on the {H200.name}: async_copy 64x64x16 8x4 w32x32 s3"
    assert second.startswith("  fastest of those measured")
    [measured, expected] = [n for n, line in enumerate(rest) if line.endswith(":")]
    assert "tiled2d 32x32x32 1x1" in rest[measured + 2]
    assert "split_k 128x256x8" in rest[expected + 1]
    assert "multiples of 128 and K of 32, aligned, where N and K are multiples of 4, or else odd" in text
    assert rest[measured] == "Measured for 4096x4096x4096 whole, the fastest tile of each rung:"
    assert "Measured" not in dispatch.explain(Problem(64, 64, 64), H200)


def test_explain_from_the_command_line(capsys):
    """``numba-gemm model --explain``, with and without what it cannot use."""
    assert cli.main(["model", "--explain", "--shape", "16", "4096", "4096", "--gpu", "h200"]) == 0
    assert capsys.readouterr().out.strip() == dispatch.explain(Problem(16, 4096, 4096), H200)
    for bad, message in (
        (["--gpu", "Voodoo"], "there is no GPU 'Voodoo'"),
        (["--tile", "32x32x32"], "--explain and --tile exclude each other"),
        (["--measure-waves"], "--explain and --measure-waves exclude each other"),
        (["--shape", "2147483648", "1", "1"], "--shape has 2147483648"),
    ):
        assert cli.main(["model", "--explain", *bad]) == 2
        assert message in capsys.readouterr().err


# Remembering --------------------------------------------------------------------------------------


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As if there were an H200; counts how often its models are asked."""
    asked = []
    choose = dispatch.choose

    def counted(problem, gpu, aligned=True):
        asked.append((problem.M, problem.N, problem.K, aligned))
        return choose(problem, gpu, aligned)

    class Context:
        class device:
            id = 0

    monkeypatch.setattr(dispatch, "TARGET", Target("gpu", "there is one"))
    monkeypatch.setattr(dispatch.cuda, "current_context", Context, raising=False)
    monkeypatch.setattr(dispatch, "_several_gpus", lambda: True)
    monkeypatch.setattr(dispatch.devices, "current", lambda: H200)
    monkeypatch.setattr(dispatch, "choose", counted)
    return asked


def test_a_choice_is_made_once(on_a_gpu):
    """For a shape and an alignment, until it is to be forgotten."""
    first = dispatch.chosen_here(CUBE)
    assert dispatch.chosen_here(Problem(4096, 4096, 4096, 2.0, 1.0)) is first
    assert len(on_a_gpu) == 1
    dispatch.chosen_here(CUBE, aligned=False)
    dispatch.chosen_here(Problem(4096, 4096, 8))
    assert len(on_a_gpu) == 3
    assert dispatch._remembered.cache_info().hits == 1

    found.keep([result("async_copy", TILE, 1e-3)])
    assert dispatch.chosen_here(CUBE) is first
    dispatch.forget()
    assert dispatch.chosen_here(CUBE).tile == TILE


def test_few_choices_are_remembered(on_a_gpu, monkeypatch):
    """However many shapes there are."""
    monkeypatch.setattr(dispatch, "choose", lambda *given: None)
    for n in range(1, dispatch.REMEMBERED + 10):
        dispatch._remembered(n, 1, 1, True, 0)
    assert dispatch._remembered.cache_info().currsize == dispatch.REMEMBERED


def test_an_unknown_gpu_gets_the_highest_rung(on_a_gpu, monkeypatch):
    def refuse():
        raise RuntimeError("nobody knows its bandwidth")

    monkeypatch.setattr(dispatch.devices, "current", refuse)
    choice = dispatch.chosen_here(CUBE)
    assert (choice.rung, choice.tile) == (dispatch.highest(), None)


# Multiplying --------------------------------------------------------------------------------------


def test_gemm_multiplies_with_what_is_chosen(monkeypatch, seed):
    """Rung and tile, and the operands' alignment is looked at."""
    asked = []

    def chosen(problem, aligned):
        asked.append((problem, aligned))
        return dispatch.Choice(tiled2d.RUNG, Tile(8, 8, 8), "a test")

    launched = []
    prepare = harness.prepare

    def prepared(rung, *arguments, tile=None, **options):
        launched.append((rung, tile))
        return prepare(rung, *arguments, tile=tile, **options)

    monkeypatch.setattr(dispatch, "chosen_here", chosen)
    monkeypatch.setattr(harness, "prepare", prepared)
    A, B, C = harness.random_operands(9, 5, 7, seed)
    result = gemm(A, B, C, beta=1.0, verify=True)
    assert result is C
    assert launched == [(tiled2d.RUNG, Tile(8, 8, 8))]
    assert asked == [(Problem(9, 5, 7, 1.0, 1.0), True)]
    gemm(A, B, rung="coalesced")
    assert len(asked) == 1


@pytest.mark.simulator
def test_the_simulator_takes_the_highest_rung(monkeypatch):
    """As it is, whatever was found: nothing there has a speed."""
    monkeypatch.setattr(dispatch, "choose", None)
    choice = dispatch.chosen_here(Problem(5, 5, 5))
    assert (choice.rung, choice.tile) == (LADDER[-1], None)


def test_bad_operands_are_refused_before_a_choice(monkeypatch):
    monkeypatch.setattr(dispatch, "chosen_here", None)
    with pytest.raises(ValueError, match="B should have as many rows"):
        gemm(np.ones((2, 3), np.float32), np.ones((4, 5), np.float32))
