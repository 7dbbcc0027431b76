"""``numba-gemm model``: its tables, files and refusals, and the measuring of waves."""

import json
import math
import re

import pytest

from numba_gemm import LADDER, Problem, Tile, cli, model_command, terminal, waves
from numba_gemm.model import devices
from numba_gemm.rungs import autotuned, column
from numba_gemm.search.space import short
from numba_gemm.target import TARGET
from numba_gemm.terminal import InputError


def run(*arguments):
    """The exit status of ``numba-gemm model`` with these arguments."""
    return cli.main(["model", *map(str, arguments)])


def refused(capsys, *arguments):
    """The one line with which it is refused."""
    try:
        status = run(*arguments)
    except SystemExit as error:
        status = error.code
    captured = capsys.readouterr()
    assert status == 2
    assert not captured.out
    return captured.err.splitlines()[-1]


def test_the_table(capsys):
    """Every rung, the ceilings, and the time no kernel can beat."""
    assert run("--gpu", "h200") == 0
    out = capsys.readouterr().out
    assert "C <- A B, 4096 x 4096 x 4096, float32" in out
    assert "H200: 132 multiprocessors, 66.9 TFLOP/s, 4,800 GB/s" in out
    assert "2.054 ms" in out
    assert all(f" {rung.name} " in out for rung in LADDER)
    assert "…" not in out
    assert (
        "H200: 132 multiprocessors, 66.9 TFLOP/s, 4,800 GB/s, ridge point 13.94 FLOP/byte"
        in out.splitlines()
    )
    assert re.search(r" +model's *\n.* TFLOP/s *\n", out)


def test_the_reference_problem(capsys):
    """Boehm's A6000 at 4092: 4.6 ms of arithmetic."""
    assert run("--shape", 4092, 4092, 4092, "--gpu", "a6000 (boehm)") == 0
    out = capsys.readouterr().out
    assert "39.06 FLOP/byte" in out.replace("\n", " ")
    assert "4.568 ms" in out


def test_one_tile(capsys):
    """With registers as compiled: four blocks of 64 registers a thread."""
    assert run("--tile", "128x128x8x8x8", "--registers", 64, "--gpu", "A6000") == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(" tile "))
    assert "1,024     4    67%   3.05   76%" in row.replace("  100%", "")


def test_a_gpu_that_cannot_run_every_rung(capsys):
    """Rungs that need newer ones are left out."""
    assert run("--gpu", "t4") == 0
    out = capsys.readouterr().out
    assert " double_buffered " in out
    assert "async_copy" not in out


def test_the_tile_is_that_of_the_gpu():
    """The autotuned rung has one for the compute capability; the others have their own everywhere."""
    a6000 = devices.named("A6000")
    rows = {row.name: row for row in model_command.rows_of_the_ladder(Problem(512, 512, 512), a6000)}
    assert rows["autotuned"].tile == autotuned.FOUND[8, 6]
    assert rows["autotuned"].model.tiling.tiles == 16
    assert all(rows[rung.name].tile == rung.tile for rung in LADDER if rung.name != "autotuned")


def test_the_registers_of_column():
    """Its launch bounds ask for three blocks on a multiprocessor, and the compiler sees to it."""
    h200 = devices.named("H200")
    rows = {row.name: row for row in model_command.rows_of_the_ladder(Problem(512, 512, 512), h200)}
    assert rows["column"].model.occupancy.blocks == column.TILE.blocks == 3


def test_the_record(tmp_path):
    """What the table shows."""
    path = tmp_path / "model.json"
    assert run("--gpu", "H200", "--shape", 300, 300, 64, "--json", path) == 0
    record = json.loads(path.read_text())
    assert record["problem"] == {"M": 300, "N": 300, "K": 64}
    by_name = {row["name"]: row for row in record["modelled"]}
    assert list(by_name) == [rung.name for rung in LADDER]
    assert by_name["square"]["useful"] == pytest.approx(0.61, abs=0.005)
    assert by_name["naive"]["shared_loads"] is None
    assert all(row["seconds"] >= record["floor_seconds"] for row in by_name.values())


def test_the_machines_own_gpu_is_the_default(capsys):
    """H200 where there is none."""
    assert run() == 0
    own = devices.current()
    assert (own.name if own else "H200: 132") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", -1, 2, 3), "argument --shape: -1 should be at least 1"),
        (("--shape", 1, 2), "argument --shape: expected 3 arguments"),
        (("--shape", 2**31, 1, 1), "--shape has 2147483648; no size may be more than 2147483647"),
        (("--shape", *[2**31 - 1] * 3), "--shape is 2147483647 x 2147483647 x 2147483647; a matrix of"),
        (("--shape", 2**31 - 1, 2**31 - 1, 16), "a matrix of that size fits in no memory"),
        (("--gpu", "H300"), "--gpu: there is no GPU 'H300' in the table; it has V100"),
        (("--tile", "128x128"), "--tile is '128x128'; it should be BMxBNxBK"),
        (("--tile", "axbxc"), "--tile is 'axbxc'; it should be BMxBNxBK"),
        (("--tile", "0x128x8"), "--tile: Tile(BM=0"),
        (("--tile", "100x128x8x8x8"), "TM=8 does not divide BM=100"),
        (("--tile", "128x128x8x8x8", "--registers", 256), "fits on a multiprocessor"),
        (("--registers", 64), "give --tile as well"),
        (("--plot", "a.gif"), "--plot is a.gif; it should end in .png or .svg"),
        (("--plot", "/nowhere/a.png"), "--plot /nowhere/a.png: No such file or directory"),
        (("--picture", "banks"), "give --plot FILE as well"),
        (("--measured", "/nowhere"), "--measured /nowhere: No such file or directory"),
        (("--measure-waves", "--gpu", "T4"), "--gpu does not go with --measure-waves"),
        (("--measure-waves", "--tile", "8x8x8"), "--tile does not go with --measure-waves"),
    ],
)
def test_bad_input(capsys, arguments, message):
    """One line that says what it was, and status 2."""
    assert message in refused(capsys, *arguments)


@pytest.mark.simulator
def test_waves_need_a_gpu(capsys, tmp_path):
    """And nothing is written without one."""
    line = refused(capsys, "--measure-waves", "--json", tmp_path / "waves.json")
    assert line.startswith("numba-gemm: --measure-waves needs a GPU, but ")
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="device time needs a GPU"):
        waves.measure(waves.RUNGS[0], seed=1)


@pytest.mark.parametrize(
    ("text", "tile"),
    [
        ("32x32x32", Tile(32, 32, 32)),
        ("64x64x8x8x1", Tile(64, 64, 8, 8)),
        ("128x128x8x8x8x64x32", Tile(128, 128, 8, 8, 8, 64, 32)),
        ("128x256x8x8x16x64x64x2", Tile(128, 256, 8, 8, 16, 64, 64, 2)),
        ("128x128x8x8x16x64x64x2", Tile(128, 128, 8, 8, 16, 64, 64, 2)),
        ("128x256x8 8x16 w64x64 s2", Tile(128, 256, 8, 8, 16, 64, 64, 2)),
        ("128x128x8 8x8 s2", Tile(128, 128, 8, 8, 8, stages=2)),
    ],
)
def test_tiles(text, tile):
    """As far as they are written out."""
    assert model_command.parse_tile(text) == tile
    assert model_command.parse_tile(short(tile)) == tile


@pytest.mark.parametrize(
    "text", ["", "128", "1x2x3x4", "1x2x3x4x5x6", "1x2x3x4x5x6x7x8x9", "1.5x2x3", "1x2x3 s2"]
)
def test_what_is_no_tile(text):
    """Too few, too many, or no whole numbers."""
    with pytest.raises(InputError, match="it should be BMxBNxBK"):
        model_command.parse_tile(text)


# Pictures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture", ["roofline", "ladder", "tiles", "waves", "tilings", "banks"])
def test_pictures(tmp_path, capsys, picture):
    """Each can be had from the command line."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.svg"
    assert run("--gpu", "H200", "--plot", path, "--picture", picture) == 0
    assert path.read_text().startswith("<?xml")
    assert f"numba-gemm: wrote {path}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tile", "picture", "message"),
    [
        ("128x128x8x8x8", "tilings", "it has no warp tile"),
        ("16x32x2x4x4", "banks", "BK should be a multiple of 4"),
    ],
)
def test_a_tile_without_that_picture(capsys, tmp_path, tile, picture, message):
    """The line says what it lacks, and nothing is written."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.png"
    assert message in refused(capsys, "--tile", tile, "--plot", path, "--picture", picture)
    assert not list(tmp_path.iterdir())


def climbed(path, **changes):
    """A file as ``climb --json`` writes it, with a made-up time for one rung."""
    record = {
        "problem": {"M": 64, "N": 64, "K": 64, "alpha": 1.0, "beta": 0.0},
        "device": "NVIDIA H200",
        "cublas_seconds": 1e-6,
        "rungs": [{"rung": "naive", "seconds": 2e-6}, {"rung": "square", "seconds": None}],
    }
    path.write_text(json.dumps(record | changes))
    return path


def test_measured_speeds_are_drawn(tmp_path, capsys):
    """On the GPU that they were measured on."""
    pytest.importorskip("matplotlib")
    path, picture = climbed(tmp_path / "climb.json"), tmp_path / "a.svg"
    shape = ("--shape", 64, 64, 64)
    assert run(*shape, "--measured", path, "--plot", picture, "--picture", "ladder") == 0
    assert "H200: 132" in capsys.readouterr().out
    assert f"{2 * 64**3 / 2e-6 / 1e12:.3g}" in picture.read_text()
    assert f"cuBLAS, {2 * 64**3 / 1e-6 / 1e12:.3g}" in picture.read_text()


ONE = {"rung": "naive", "seconds": 2e-6}
SERIES = {"label": "x", "multiprocessors": 132, "blocks_per_multiprocessor": 1, "points": []}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"cublas_seconds": "x"}, "$.cublas_seconds"),
        ({"cublas_seconds": 10**400}, "$.cublas_seconds"),
        ({"device": ["NVIDIA H200"]}, "$.device"),
        ({"device": None}, "$.device"),
        ({"rungs": [ONE | {"seconds": math.nan}]}, "JSON is malformed"),
        ({"rungs": [ONE | {"seconds": -0.1}]}, "$.rungs[0].seconds"),
        ({"rungs": [ONE | {"rung": ["q"]}]}, "$.rungs[0].rung"),
        ({"problem": {"M": "64", "N": 64, "K": 64}}, "$.problem.M"),
        ({"problem": {"M": 10**400, "N": 64, "K": 64}}, "$.problem.M"),
        ({"waves": []}, "$.waves"),
        ({"waves": 5}, "$.waves"),
        ({"waves": [SERIES]}, "$.waves[0].points"),
        ({"waves": [SERIES | {"points": [{"blocks": 0, "seconds": 1}]}]}, "blocks"),
        ({"waves": [SERIES | {"points": [{"blocks": 1, "seconds": -1}]}]}, "seconds"),
    ],
)
@pytest.mark.parametrize("option", [(), ("--plot", "waves.svg", "--picture", "waves")], ids=len)
def test_damaged_measurements(capsys, tmp_path, monkeypatch, changes, place, option):
    """One line that names the place, whether or not they are to be drawn."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    path = climbed(tmp_path / "climb.json", **changes)
    line = refused(capsys, "--shape", 64, 64, 64, "--measured", path, *option)
    assert "it should be what climb --json or model --measure-waves --json wrote: " in line
    assert place in line
    assert list(tmp_path.iterdir()) == [path]


def test_measurements_that_are_nested_too_deep(capsys, tmp_path):
    path = tmp_path / "climb.json"
    path.write_text("[" * 100_000)
    assert f"--measured {path}: " in refused(capsys, "--measured", path)


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, (), "is of 64 x 64 x 64, --shape is 4096 x 4096 x 4096; they should be the same"),
        ({}, ("--gpu", "A6000"), "--gpu is A6000, but --measured was measured on NVIDIA H200"),
        ({"rungs": 5}, (), "it should be what climb --json or model --measure-waves --json wrote"),
        ({"problem": {}}, (), "it should be what climb --json"),
        ({"waves": [{}]}, (), "it should be what climb --json"),
        ({"rungs": [], "device": "simulator"}, (), "has no times; simulator has no speed"),
    ],
)
def test_measurements_that_do_not_fit(capsys, tmp_path, changes, arguments, message):
    """Another shape or GPU, or no measurements at all."""
    path = climbed(tmp_path / "climb.json", **changes)
    assert message in refused(capsys, "--measured", path, *arguments)


# Waves --------------------------------------------------------------------------------------------


def series(per, seconds):
    """Launches with made-up times, by number of blocks."""
    points = tuple(waves.Point(n, 128 * n, seconds(n), 0.01) for n in waves.block_counts(132, per))
    tile = waves.RUNGS[0].tile
    return waves.Series("square", tile, 128, 2048, 128, 8192, 132, per, points)


def test_both_sides_of_every_step_are_launched():
    """Of a full wave and of every multiple of the multiprocessors."""
    assert waves.block_counts(4, 2) == [1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17]
    assert {132, 133, 264, 265} <= set(waves.block_counts(132, 1))


def test_the_cliff():
    """One block more than a full wave, beside the models'."""
    cliff = series(2, lambda n: 1e-3 * -(-n // 132)).cliff()
    assert cliff == pytest.approx({"measured": 1.5, "whole_waves": 2.0, "busiest": 1.5})


def test_a_record_of_waves_can_be_drawn(tmp_path, monkeypatch, capsys):
    """What --measure-waves writes is what --measured reads; its table has both models."""
    pytest.importorskip("matplotlib")
    measured = [series(1, lambda n: 1e-3 * -(-n // 132)), series(2, lambda n: 1e-3 * -(-n // 132))]
    path, picture = tmp_path / "waves.json", tmp_path / "waves.svg"
    record = {"device": "NVIDIA H200", "waves": [one.as_dict() for one in measured]}
    terminal.write_json(path, record)
    assert run("--measured", path, "--plot", picture, "--picture", "waves") == 0
    assert "measured" in picture.read_text()
    capsys.readouterr()
    terminal.stdout().print(model_command._waves_table("NVIDIA H200", measured))
    out = capsys.readouterr().out
    assert sum("square" in line for line in out.splitlines()) == sum(len(one.points) for one in measured)


@pytest.mark.gpu
def test_waves_are_measured(tmp_path, monkeypatch):
    """Few launches of one rung: times are there and the record can be read again."""
    monkeypatch.setattr(waves, "DEPTH", 64)
    monkeypatch.setattr(waves, "RUNGS", waves.RUNGS[:1])
    path = tmp_path / "waves.json"
    assert run("--measure-waves", "--json", path) == 0
    [one] = json.loads(path.read_text())["waves"]
    assert all(point["seconds"] > 0 for point in one["points"])
    assert run("--measured", path) == 0
    assert TARGET.is_gpu
