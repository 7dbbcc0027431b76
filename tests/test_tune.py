"""``numba-gemm tune``: what it lists, what it refuses, and what it keeps when there is a GPU."""

import json
import math
import re

import pytest
from fake_lab import FakeLab

from numba_gemm import LADDER, Tile, cli, dispatch, records
from numba_gemm.model import devices
from numba_gemm.rungs import autotuned, double_buffered, vectorized
from numba_gemm.search import found, plot, tune
from numba_gemm.search.portfolio import PORTFOLIO
from numba_gemm.search.space import Candidate
from numba_gemm.search.suite import SUITE
from numba_gemm.target import Target

H200 = devices.named("H200")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own, and nothing that comes with the package."""
    monkeypatch.setenv("NUMBA_GEMM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(found, "SHIPPED", tmp_path / "shipped")
    dispatch.forget()
    yield tmp_path / "cache"
    dispatch.forget()


def run(*arguments):
    """The exit status of ``numba-gemm tune`` with these arguments."""
    return cli.main(["tune", *map(str, arguments)])


def names(out):
    """The candidates in the tables of *out*, in order."""
    return re.findall(r"^ +\d+  ([a-z_]\w+(?: \w+)+)  ", out, re.MULTILINE)


# Dry runs -----------------------------------------------------------------------------------------


def test_a_dry_run_lists_the_space_in_order(tmp_path, capsys):
    """Most promising first, the same each time, with the reasons for what is refused."""
    path = tmp_path / "dry.json"
    given = "--dry-run", "--gpu", "h200", "--rung", "vectorized", "--seed", 3
    assert run(*given, "--json", path) == 0
    out = capsys.readouterr().out
    record = json.loads(path.read_text())
    [listed] = record["shapes"]
    assert listed["shape"] == [4096, 4096, 4096]
    candidates = [records.convert(entry, Candidate) for entry in listed["candidates"]]
    assert Candidate("vectorized", Tile(128, 128, 16, 8, 8)) in candidates
    assert [str(candidate) for candidate in candidates] == names(out)
    expected = [entry["predicted_seconds"] for entry in listed["candidates"]]
    by_model = [value for place, value in enumerate(expected) if place % 4 != 3]
    assert by_model == sorted(by_model)
    assert "TM=2 is not a multiple of 4" in out
    assert "some for several reasons" in out
    rows = [line for line in out.splitlines() if re.match(r" +\d+  vectorized ", line)]
    random = [place for place, row in enumerate(rows) if row.rstrip().endswith("drawn at random")]
    assert random == list(range(3, len(rows), 4))
    assert sum(entry["tiles"] for entry in record["refused"]) > 1000

    assert run(*given) == 0
    assert capsys.readouterr().out == out
    assert run(*given[:-1], 4) == 0
    assert sorted(names(capsys.readouterr().out)) == sorted(names(out))


def test_a_dry_run_of_the_portfolio(capsys, monkeypatch):
    """Every shape of the suite; only what the GPU can run."""
    assert run("--dry-run", "--portfolio", "--gpu", "H200") == 0
    out = capsys.readouterr().out
    for shape in SUITE:
        assert "{} x {} x {} on the H200".format(*shape) in out
    assert len(names(out)) == 24 * len(PORTFOLIO)
    assert "at random" not in out
    assert run("--dry-run", "--portfolio", "--gpu", "V100", "--shape", 64, 64, 64) == 0
    assert {name.split()[0] for name in names(capsys.readouterr().out)} == {
        "double_buffered",
        "vectorized",
    }


def test_shapes_from_a_file(tmp_path):
    path = tmp_path / "shapes"
    path.write_text("# mine\n64 64 64\n\n 16, 4096, 4096 # a batch\n64 64 64\n")
    assert tune.read_shapes(path) == [(64, 64, 64), (16, 4096, 4096)]


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rung", "nave"], "there is no rung 'nave'; the ladder has naive, "),
        (["--rung", "naive"], "the rung naive has no tile parameters"),
        (["--rung", "async_copy", "--gpu", "V100"], "async_copy needs compute capability 8.0"),
        (["--gpu", "Voodoo"], "there is no GPU 'Voodoo' in the table"),
        (["--portfolio", "--rung", "square"], "--portfolio and --rung exclude each other"),
        (["--portfolio", "--orders", 3], "--portfolio and --orders exclude each other"),
        (
            ["--orders", 99999999999, "--rung", "async_copy"],
            "99999999999 orders of 16 columns are too many",
        ),
        (["--orders", 3, "--rung", "square"], "the rung square has no order of columns"),
        (["--orders", 3, "--rung", "async_copy", "--gpu", "V100"], "cannot run the rung async_copy"),
        (["--shape", 2**31, 1, 1], "2147483648 x 1 x 1 is too large"),
        (["--shape", 2**22, 2**22, 1], "is too large"),
        (["--found", "/nowhere/found.json"], "--found /nowhere/found.json: No such file"),
        (["--plot", "a.txt"], "--plot a.txt: its name should end in one of ."),
        (["--plot", "/nowhere/a.png"], "--plot /nowhere/a.png: No such file"),
        (["--json", "/nowhere/a.json"], "--json /nowhere/a.json: No such file"),
        (["--shapes", "/nowhere/shapes"], "--shapes /nowhere/shapes: No such file"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert run("--dry-run", *arguments) == 2
    captured = capsys.readouterr()
    [line] = captured.err.splitlines()
    assert message in line
    assert captured.out == ""


@pytest.mark.parametrize("line", ["1 2", "1 2 3 4", "1 2 x", "0 1 1", "-1 1 1", "1.5 2 3"])
def test_a_bad_line_of_shapes_is_named(tmp_path, capsys, line):
    path = tmp_path / "shapes"
    path.write_text(f"1 1 1\n{line}\n")
    assert run("--dry-run", "--rung", "tiled2d", "--shapes", path) == 2
    assert f"{path}, line 2: {line!r} should be M N K" in capsys.readouterr().err


def test_files_of_shapes_without_any(tmp_path, capsys):
    path = tmp_path / "shapes"
    for content in (b"", b"# nothing\n"):
        path.write_bytes(content)
        assert run("--dry-run", "--shapes", path) == 2
        assert "there are no shapes in it" in capsys.readouterr().err
    path.write_bytes(b"\xff\xfe\x00")
    assert run("--dry-run", "--shapes", path) == 2
    assert "it is no text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--budget", 0], ["--budget", "nan"], ["--seed", -1], ["--shape", 0, 1, 1], ["--shape", 1, 1]],
)
def test_what_the_parser_refuses(arguments):
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2


@pytest.mark.simulator
def test_measuring_needs_a_gpu(capsys, cache):
    assert run("--rung", "tiled2d") == 2
    assert "tune measures on a GPU, but " in capsys.readouterr().err
    assert run("--rung", "tiled2d", "--gpu", "H200") == 2
    assert "--gpu names a GPU for --dry-run" in capsys.readouterr().err
    assert not cache.exists()


# With a GPU, all but the GPU ----------------------------------------------------------------------


class Speeds(dict):
    """Times of candidates, which only the tile's area decides; one is faster than that."""

    def __missing__(self, candidate):
        tile = candidate.tile
        return 1e-3 * (2 + 1 / (tile.BM * tile.BN))


FASTEST = Candidate("vectorized", Tile(64, 128, 16, 8, 8))
WRONG = Candidate("vectorized", Tile(64, 64, 16, 8, 8))


@pytest.fixture
def lab(monkeypatch):
    """A lab that needs no GPU, in a process that believes to have one."""
    lab = FakeLab(Speeds({FASTEST: 1.25e-3, WRONG: 1e-3}), {WRONG: "verify"})
    monkeypatch.setattr(tune, "ProcessLab", lambda gpu, shapes, seed: lab)
    monkeypatch.setattr(tune, "TARGET", Target("gpu", "there is one"))
    monkeypatch.setattr(tune.devices, "current", lambda: H200)
    return lab


def test_the_winner_is_kept_and_used(lab, tmp_path, capsys, cache):
    """In the user's cache, in FILE, in JSON, on the screen; gemm would take it."""
    files = tmp_path / "tune.json", tmp_path / "found.json"
    assert run("--rung", "vectorized", "--json", files[0], "--found", files[1]) == 0
    out, err = capsys.readouterr()
    rows = [line for line in out.splitlines() if "vectorized " in line]
    assert rows[0].strip().startswith(f"{FASTEST}  ")
    assert "80.0%" in rows[0]
    assert f"{Candidate('vectorized', vectorized.TILE)}, its own" in out
    assert f"{WRONG} verify: the entry" in out

    [result] = found.load("H200")
    assert (result.candidate, result.shape) == (FASTEST, (4096, 4096, 4096))
    assert result.seconds == pytest.approx(1.25e-3, rel=0.01)
    assert result.cublas_seconds == 1e-3
    assert [entry.candidate for entry in found._read(files[1])] == [FASTEST]
    assert dispatch.choose(tune.Problem(4096, 4096, 4096), H200).tile == FASTEST.tile
    assert str(cache / "found" / "h200.json") in err.replace("\n", "")

    record = json.loads(files[0].read_text())
    assert record["rounds"] == [1, 3, 7]
    [entry] = record["shapes"]
    assert records.convert(entry["winner"], Candidate) == FASTEST
    assert entry["of_cublas"] == pytest.approx(0.8, rel=0.01)
    places = {standing["predicted_rank"] for standing in entry["standings"]}
    assert len(places) == len(entry["standings"]) == len({candidate for candidate, _ in lab.raced}) - 1
    [failure] = entry["failures"]
    assert failure["failed"] == "verify"
    assert records.convert(failure, Candidate) == WRONG


def test_files_that_could_not_be_written_in_the_end(lab, tmp_path, capsys):
    """Are refused before the search: devices, files of another kind, one file for two."""
    mine = tmp_path / "mine.md"
    mine.write_text("# mine")
    both = tmp_path / "both.svg"
    for given, message in (
        (("--found", "/dev/full"), "--found /dev/full: it is a device or a pipe"),
        (("--found", mine), "it has no results of a search"),
        (("--json", both, "--plot", both), "--json and --plot are both to write"),
        (("--gpu", ""), "--gpu names a GPU for --dry-run"),
        (("--rung", ""), "there is no rung"),
    ):
        assert run("--rung", "vectorized", *given) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert mine.read_text() == "# mine"
    assert not lab.raced


def test_what_is_kept_does_not_wait_for_the_rest(lab, cache, tmp_path, monkeypatch):
    """Winners are in the cache, and the journal is not over, where something else fails in the end."""

    def fail(*arguments):
        raise MemoryError

    monkeypatch.setattr(tune.terminal, "write_json", fail)
    given = "--rung", "vectorized", "--json", tmp_path / "tune.json"
    assert run(*given) != 0
    assert found.load("H200")
    assert not list(cache.glob("tune/*.done.jsonl"))


def test_a_rung_is_compared_with_the_one_below(lab, capsys):
    """What the search gained over the tile that its kernel had there is in the table."""
    assert run("--rung", "autotuned") == 0
    out = capsys.readouterr().out
    assert f"{Candidate('autotuned', autotuned.TILE)}, its own" in out
    assert f"{Candidate('autotuned', vectorized.TILE)}, that of vectorized" in out


def test_the_portfolio_is_raced_on_every_shape(lab, tmp_path, capsys):
    """One result a shape, and the mean share of cuBLAS at the end."""
    shapes = tmp_path / "shapes"
    shapes.write_text("64 64 64\n512 512 16384\n")
    assert run("--portfolio", "--shapes", shapes) == 0
    assert {found.shape for found in found.load("H200")} == {(64, 64, 64), (512, 512, 16384)}
    assert len({candidate for candidate, _ in lab.raced}) == len(PORTFOLIO)
    assert "2 shapes: 0.500 x cuBLAS in the geometric mean" in capsys.readouterr().out


def test_an_interrupted_search_goes_on(lab, capsys, cache, monkeypatch):
    """Ctrl-C ends it with 130; the same command measures only what is left."""
    race = lab.race

    def interrupted(*arguments):
        if len(lab.raced) == 50:
            raise KeyboardInterrupt
        return race(*arguments)

    monkeypatch.setattr(lab, "race", interrupted)
    assert run("--rung", "vectorized") == 130
    assert "the same command goes on from" in capsys.readouterr().err
    assert found.load("H200") == []
    monkeypatch.setattr(lab, "race", race)
    assert run("--rung", "vectorized") == 0
    assert "going on from 50 outcomes" in capsys.readouterr().err
    assert len(lab.raced) == len(set(lab.raced))
    assert [path.name for path in (cache / "tune").glob("*.jsonl")] == [
        path.name for path in (cache / "tune").glob("*.done.jsonl")
    ]


def test_what_cannot_be_kept_loses_nothing_else(lab, tmp_path, capsys, cache, monkeypatch):
    """The cache cannot be written to at the end, when the search is over."""
    files = tmp_path / "tune.json", tmp_path / "found.json"
    cache.mkdir()
    (cache / "found").write_text("in the way")
    given = "--portfolio", "--shape", 64, 64, 64
    assert run(*given, "--json", files[0], "--found", files[1]) == 1
    assert str(cache / "found") in capsys.readouterr().err.replace("\n", "")
    assert json.loads(files[0].read_text())["shapes"]
    assert len(found._read(files[1])) == 1

    (cache / "found").unlink()

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tune.terminal, "write_json", refuse)
    assert run(*given, "--json", files[0]) == 1
    assert "No space left" in capsys.readouterr().err
    assert len(found.load("H200")) == 1


def test_nothing_right_is_a_failure(lab, monkeypatch):
    monkeypatch.setattr(lab, "broken", dict.fromkeys(PORTFOLIO, "verify"))
    assert run("--portfolio", "--shape", 64, 64, 64) == 1
    assert found.load("H200") == []


def test_without_cublas(lab, monkeypatch, capsys):
    """The search needs none; that it is missing is said once."""

    def missing(*arguments):
        raise tune.CandidateError("launch", "CublasMissingError: no CuPy")

    monkeypatch.setattr(lab, "race_cublas", missing)
    assert run("--portfolio", "--shape", 64, 64, 64) == 0
    assert capsys.readouterr().err.count("no share of cuBLAS") == 1
    assert found.load("H200")[0].cublas_seconds is None


def test_orders_are_printed_and_not_kept(lab, capsys):
    """They go into a rung's module, by hand."""
    best = (15, *range(15))
    order = Candidate("double_buffered", double_buffered.TILE, best)
    lab.speeds[order] = 1e-3
    real = tune.permutations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "permutations", lambda *given: [*real(*given), order])
        assert run("--rung", "double_buffered", "--orders", 12) == 0
    captured = capsys.readouterr()
    assert f"FOUND_ORDER = {best}" in captured.out.replace("\n", "")
    assert ", its own" in captured.out
    assert found.load("H200") == []


# The picture --------------------------------------------------------------------------------------


def test_the_picture(lab, tmp_path):
    """Drawn by tune, and again from its JSON."""
    pytest.importorskip("matplotlib")
    drawn, record, again = tmp_path / "a.svg", tmp_path / "a.json", tmp_path / "b.svg"
    assert run("--rung", "vectorized", "--plot", drawn, "--json", record) == 0
    assert "<svg" in drawn.read_text()
    assert plot.main([str(record), str(again)]) == 0
    assert again.exists()
    assert plot.main([str(drawn), str(again)]) == 2
    assert plot.main([]) == 2


def test_the_default_rung_is_the_highest_that_has_tiles():
    assert tune._highest(H200) is LADDER[-1]
    assert tune._highest(devices.named("V100")).name == "double_buffered"


def test_times_are_finite_in_json():
    assert tune._finite(math.inf) is None
