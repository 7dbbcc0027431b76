"""The command line: what it prints, where it writes, and with what status it ends."""

import dataclasses
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from numba_gemm import LADDER, __version__, cli, climb, device
from numba_gemm.rungs import naive
from numba_gemm.target import TARGET, cuda

NAMES = [rung.name for rung in LADDER]


def run(*arguments):
    """The exit status of ``numba-gemm`` with these arguments."""
    return cli.main([str(argument) for argument in arguments])


def refused(*arguments):
    """The same where the parser itself refuses."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    return caught.value.code


@cuda.jit
def wrong_in_one_entry(A, B, C, alpha, beta):
    """A product of ones, but for one entry."""
    i, j = cuda.grid(2)
    if i < C.shape[0] and j < C.shape[1]:
        total = 0.0
        for k in range(A.shape[1]):
            total += A[i, k] * B[k, j]
        C[i, j] = alpha * total + (1 if i == 2 and j == 1 else 0)


@pytest.fixture
def broken_ladder(monkeypatch):
    """A ladder of one rung that is wrong."""
    rung = dataclasses.replace(naive.RUNG, kernel=wrong_in_one_entry)
    monkeypatch.setattr("numba_gemm.rungs.LADDER", (rung,))


def test_climb_shows_every_rung(capsys):
    """One row a rung, in order, and a speed only where there is a GPU."""
    assert run("climb", "--size", 9) == 0
    out = capsys.readouterr().out
    places = [out.index(f" {name} ") for name in NAMES]
    assert places == sorted(places)
    assert ("TFLOP/s" in out) == TARGET.is_gpu
    assert ("bytes asked for" in out) == TARGET.is_simulator


def test_climb_of_a_shape_and_some_rungs(capsys):
    """The rungs come in the order of the ladder, whichever way they were named."""
    assert (
        run("climb", "--shape", 3, 5, 7, "--rungs", "coalesced, naive", "--alpha", 2, "--beta", -1) == 0
    )
    out = capsys.readouterr().out
    assert "C <- 2 A B + -1 C, 3 x 5 x 7" in out
    assert out.index(" naive ") < out.index(" coalesced ")
    assert "tiled2d" not in out


def test_climb_to_json(tmp_path, capsys):
    """The file holds what the table shows and what it takes to make it again."""
    path = tmp_path / "climb.json"
    path.write_text("old")
    assert run("climb", "--size", 5, "--rungs", "naive", "--seed", 3, "--json", path) == 0
    record = json.loads(path.read_text())
    assert record["problem"] == {"M": 5, "N": 5, "K": 5, "alpha": 1.0, "beta": 0.0}
    assert record["seed"] == 3
    assert record["versions"]["numba-gemm"] == __version__
    [step] = record["rungs"]
    assert step["rung"] == "naive"
    assert step["passed"]
    assert (step["seconds"] is None) == TARGET.is_simulator
    assert list(tmp_path.iterdir()) == [path]


def test_json_keeps_links_modes_and_devices(tmp_path, capsys):
    """A link still leads to its file, a file keeps its mode, a pipe or device is written to."""
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert run("climb", "--size", 3, "--rungs", "naive", "--json", link) == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["problem"]["M"] == 3
    assert real.stat().st_mode & 0o777 == 0o640
    assert run("climb", "--size", 3, "--rungs", "naive", "--json", os.devnull) == 0
    assert not os.path.isfile(os.devnull)


def test_a_failed_check_is_status_1(broken_ladder, capsys):
    """The row says that it is wrong, and so does the status."""
    assert run("climb", "--size", 4) == 1
    assert "wrong" in capsys.readouterr().out


def test_a_failed_check_is_in_the_json(broken_ladder, tmp_path, capsys):
    """NaN and infinity do not make the file unreadable."""
    assert run("climb", "--size", 4, "--json", tmp_path / "x") == 1
    assert not json.loads((tmp_path / "x").read_text())["rungs"][0]["passed"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("clim",),
        ("climb", "--size", "0"),
        ("climb", "--size", "-3"),
        ("climb", "--size", "many"),
        ("climb", "--size", "3", "--shape", "1", "2", "3"),
        ("climb", "--shape", "1", "2"),
        ("climb", "--alpha", "nan"),
        ("climb", "--seed", "-1"),
        ("climb", "--beta", "x"),
    ],
    ids=" ".join,
)
def test_what_the_parser_refuses(arguments, capsys):
    """Status 2, a line that says why, and nothing on stdout."""
    assert refused(*arguments) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("climb", "--rungs", "cube"), "there is no rung 'cube'; the ladder has naive, coalesced"),
        (("climb", "--rungs", ""), "there is no rung ''"),
        (("climb", "--json", "no/such/folder/x"), "--json no/such/folder/x: No such file or directory"),
        (("climb", "--json", "."), "--json .: it is a folder"),
        (("climb", "--json", "x" * 300), "--json xxx"),
        (("climb", "--beta", "1e39"), "--beta is 1e+39; it should fit in float32"),
        (("climb", "--size", str(2**31)), "2147483648 x 2147483648 x 2147483648 is too large"),
        (("climb", "--size", str(2**22)), "4194304 x 4194304 x 4194304 is too large"),
        (("inspect", "cube"), "there is no rung 'cube'; the ladder has naive, coalesced"),
        (("inspect", "naive", "--arch", "sm_9x"), "arch is 'sm_9x'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_line(arguments, message, capsys):
    """Status 2 and one clear line, before any work is done."""
    assert run(*arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"numba-gemm: {message}")
    assert output.err.count("\n") == 1


@pytest.mark.simulator
@pytest.mark.parametrize("shape", [("--size", "10000"), ("--shape", "512", "512", "513")], ids=" ".join)
def test_the_simulator_refuses_what_it_would_never_finish(shape, capsys):
    """Status 2 and one line that says how much it takes; nothing is begun."""
    assert run("climb", *shape) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(
        r"numba-gemm: \d+ x \d+ x \d+ is too large for the simulator.* at most 134217728\n", output.err
    )


@pytest.mark.simulator
def test_the_largest_size_that_the_simulator_takes(monkeypatch, capsys):
    """The limit itself is allowed."""
    monkeypatch.setattr(cli, "SIMULATOR_PRODUCTS", 3 * 4 * 5)
    assert run("climb", "--rungs", "naive", "--shape", 3, 4, 5) == 0
    assert run("climb", "--rungs", "naive", "--shape", 3, 4, 6) == 2


def test_ctrl_c_is_status_130(monkeypatch, capsys):
    """No traceback."""

    def interrupted(*arguments):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(climb, "climb", interrupted)
    assert run("climb", "--size", 3) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_inspect_as_json(capsys):
    """Machine-readable reports, in the order asked for."""
    assert run("inspect", "coalesced", "naive", "--arch", "sm_80", "--json") == 0
    reports = json.loads(capsys.readouterr().out)
    assert [report["rung"] for report in reports] == ["coalesced", "naive"]
    assert all(report["arch"] == "sm_80" and "sass" not in report for report in reports)


def test_inspect_as_a_table(capsys):
    """The numbers that decide, and the machine code where it is asked for."""
    assert run("inspect", "naive", "--sass") == 0
    out = capsys.readouterr().out
    assert "registers" in out
    assert "FFMA R" in out


def test_inspect_says_whose_kernel_split_k_shows(capsys):
    """Its row is the one of async_copy, and a line says why; other rungs need none."""
    assert run("inspect", "split_k", "async_copy") == 0
    out = capsys.readouterr().out.replace("\n", " ")
    assert out.count("the figures are those of the kernel that computes whole tiles") == 1
    assert "split_k: the figures" in out
    assert "which is async_copy's." in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("model", "--gpu", "T4"),
        ("model", "--explain", "--gpu", "H200"),
        ("inspect", "naive"),
        ("tune", "--dry-run", "--portfolio", "--shape", "64", "64", "64", "--gpu", "H200"),
    ],
    ids=" ".join,
)
def test_commands_that_run_no_kernel_do_not_say_where_kernels_run(arguments):
    """Nothing on stderr, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "numba_gemm", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout


def test_the_module_is_the_command():
    """``python -m numba_gemm`` in a process of its own, into a pipe that closes early."""
    environment = os.environ | {"NUMBA_GEMM_TARGET": TARGET.kind}
    version = subprocess.run(
        [sys.executable, "-m", "numba_gemm", "--version"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert version.stdout == f"numba-gemm {__version__}\n"
    assert version.stderr == ""


def test_beta_needs_what_C_held(capsys):
    """With beta, C starts from random numbers, not from the NaN that beta = 0 has to overwrite."""
    [step] = climb.climb(climb.Problem(3, 4, 5, 1.0, 2.0), [naive.RUNG], seed=1)
    assert step.passed
    assert np.isfinite(step.worst)


def test_climb_leaves_out_what_an_old_gpu_lacks(monkeypatch, capsys):
    """A GPU of compute capability 7.5 has no asynchronous copies; it climbs the rest."""
    old = device.Device("old", (7, 5), 40, 1.5e9)
    monkeypatch.setattr(device, "current", lambda: old)
    assert cli.main(["climb", "--size", "5", "--rungs", "async_copy,split_k"])
    errors = capsys.readouterr().err
    assert "left out async_copy: it needs compute capability 8.0" in errors
    assert "this GPU runs none of these rungs" in errors


def test_inspect_of_the_whole_ladder_leaves_out_what_an_architecture_lacks():
    """sm_75 compiles all but the rungs that need sm_80."""
    assert cli._runs_on(LADDER[0], "sm_75")
    assert not cli._runs_on(LADDER[-1], "sm_75")
    assert cli._runs_on(LADDER[-1], "sm_120")
