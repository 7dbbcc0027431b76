"""Reports: what is read, what the tables say, what is written, and that the README holds to its figures.

The figures in here are invented, on a GPU that is not one.
"""

import json
import math
from pathlib import Path

import pytest

from numba_gemm import LADDER, cli, report, report_command
from numba_gemm.model.published import A6000_GFLOPS
from numba_gemm.report import CUBLAS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "h200.json"
README = ROOT / "README.md"
BENCH_README = ROOT / "bench" / "README.md"

PEAK = 50e12
CUBE = (4096, 4096, 4096)


def entry(bench, name, shape, seconds, spread=0.01, **more):
    """One benchmark as pytest-benchmark writes it, with much that a report does not need."""
    M, N, K = shape
    low, high = seconds * (1 - spread / 2), seconds * (1 + spread / 2)
    return {
        "name": f"test[{name}]",
        "fullname": f"bench/test.py::test[{name}]",
        "group": f"{M} x {N} x {K}",
        "params": {},
        "extra_info": {"bench": bench, "name": name, "M": M, "N": N, "K": K, **more},
        "options": {"timer": "Clock"},
        "stats": {"min": low, "max": high, "median": seconds, "mean": seconds, "rounds": 5, "data": []},
    }


def at(tflops, shape=CUBE):
    """The seconds that *shape* takes at that speed."""
    return 2 * math.prod(shape) / tflops / 1e12


@pytest.fixture
def record():
    """A run of everything, invented: rung i at 2 i TFLOP/s, cuBLAS at 20."""
    benchmarks = [
        entry(
            "ladder",
            rung.name,
            CUBE,
            at(2 * i),
            joules=3.0 * i,
            gflop_per_joule=1.5 * i,
            sustained_watts=100.0 * i,
            sm_mhz=1000 + i,
            throttled=["power cap"] if i == 3 else [],
        )
        for i, rung in enumerate(LADDER, 1)
    ]
    benchmarks += [
        entry("ladder", CUBLAS, CUBE, at(20)),
        entry("ladder", "naive", (512, 512, 512), at(1.5, (512, 512, 512))),
        entry("cuda_cpp", "naive", CUBE, at(2.5)),
        entry("suite", "numba_gemm", (64, 64, 64), 4e-6, choice="split_k"),
        entry("suite", CUBLAS, (64, 64, 64), 8e-6),
        entry("suite", "numba_gemm", (4093, 777, 1000), 4e-3, choice="async_copy"),
        entry("suite", CUBLAS, (4093, 777, 1000), 2e-3),
        entry("suite", "numba_gemm", (1, 1, 1), 1e-6, choice="naive"),  # without cuBLAS
        entry("peers", "Numba's example", CUBE, at(3)),
        entry("overhead", "gemm", (64, 64, 64), 123e-6),
        entry("compile", "naive", (512, 512, 512), 1.25, spread=0),
    ]
    return {
        "machine_info": {
            "node": "somewhere",
            "cpu": {"brand_raw": "Some CPU"},
            "numba_gemm": {
                "device": "Invented GPU",
                "fp32_peak_flops_per_second": PEAK,
                "driver": "1.2",
                "versions": {"numba": "0.1"},
            },
        },
        "commit_info": {},
        "benchmarks": benchmarks,
        "datetime": "2001-02-03T04:05:06+00:00",
        "version": "5",
        "numba_gemm": {"command": "pytest --benchmark-only bench", "launch_floor_seconds": 2.5e-6},
    }


@pytest.fixture
def path(record, tmp_path):
    """The file of that run."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(record))
    return path


@pytest.fixture
def run(path):
    return report.load(path)


def refused(capsys, *arguments):
    """The one line with which ``numba-gemm report`` refuses these arguments."""
    assert cli.main(["report", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    return line


def row(table, first):
    """The cells of the row whose first text is *first*."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    [found] = [cells for cells in rows if first in cells[:2]]
    return found


# Reading ------------------------------------------------------------------------------------------


def test_what_is_read(run):
    """Medians, spread and rounds, with what else was recorded."""
    figure = run.of("ladder", CUBE)["tiled2d"]
    assert figure.seconds == pytest.approx(at(6), rel=1e-5)
    assert figure.spread == pytest.approx(0.01)
    assert figure.rounds == 5
    assert figure.more["throttled"] == ["power cap"]
    assert (run.date, run.command) == ("2001-02-03", "pytest --benchmark-only bench")
    assert run.environment["cpu"] == "Some CPU"


def test_the_short_form(run, tmp_path):
    """It reads back as the same run, has a line a figure, and forgets the name of the machine."""
    short = tmp_path / "short.json"
    short.write_text(report.slim(run))
    again = report.load(short)
    assert report.slim(again) == report.slim(run)
    assert again.digest == run.digest
    assert again.environment == run.environment
    for name in report.SECTIONS:
        assert report.SECTIONS[name](again) == report.SECTIONS[name](run)
    text = short.read_text()
    assert "somewhere" not in text
    assert sum('"bench": ' in line for line in text.splitlines()) == len(run.figures)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "missing required field `benchmarks`"),
        ('{"benchmarks": [{}]}', r"missing required field `extra_info` - at `\$.benchmarks\[0\]`"),
        ("[" * 100_000, "Expected `object`, got `array`"),
        ('{"benchmarks": ' + "[" * 100_000, "nested too deep"),
        ("\ufeff{}", "malformed"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"it should be what pytest .* writes: .*" + message):
        report.load(path)


FIGURE, ENVIRONMENT, GONE = "figures", "environment", object()


@pytest.mark.parametrize(
    ("part", "changes", "place"),
    [
        (ENVIRONMENT, {"device": GONE}, "device` - at `$.environment"),
        (ENVIRONMENT, {"fp32_peak_flops_per_second": GONE}, "fp32_peak_flops_per_second"),
        (ENVIRONMENT, {"versions": 3}, "$.environment.versions"),
        (None, {"environment": []}, "$.environment"),
        (None, {"environment": None}, "$.environment"),
        (None, {"command": None}, "$.command"),
        (None, {"date": 7}, "$.date"),
        (None, {"launch_floor_seconds": "x"}, "$.launch_floor_seconds"),
        (None, {"figures": []}, "$.figures"),
        (None, {"figures": [3]}, "$.figures[0]"),
        (FIGURE, {"seconds": 0}, "$.figures[0].seconds"),
        (FIGURE, {"seconds": "1"}, "$.figures[0].seconds"),
        (FIGURE, {"seconds": -1e-3}, "$.figures[0].seconds"),
        (FIGURE, {"seconds": 10**400}, "$.figures[0].seconds"),
        (FIGURE, {"seconds": math.nan}, "malformed"),
        (FIGURE, {"shape": [1, 2]}, "$.figures[0].shape"),
        (FIGURE, {"shape": "4096"}, "$.figures[0].shape"),
        (FIGURE, {"shape": [0, 1, 1]}, "$.figures[0].shape[0]"),
        (FIGURE, {"spread": None}, "$.figures[0].spread"),
        (FIGURE, {"again": "x"}, "$.figures[0].again"),
        (FIGURE, {"again": None}, "$.figures[0].again"),
        (FIGURE, {"throttled": 5}, "$.figures[0].throttled"),
        (FIGURE, {"throttled": [5]}, "$.figures[0].throttled[0]"),
        (FIGURE, {"joules": "x"}, "$.figures[0].joules"),
        (FIGURE, {"sustained_watts": GONE}, "joules should come with"),
        (FIGURE, {"gflop_per_joule": None}, "$.figures[0].gflop_per_joule"),
        (FIGURE, {"simulated": True}, "simulator"),
    ],
)
def test_a_damaged_short_form(run, tmp_path, capsys, part, changes, place):
    """One line that names the file and the place, and status 2."""
    data = json.loads(report.slim(run))
    damaged = {None: data, ENVIRONMENT: data["environment"], FIGURE: data["figures"][0]}[part]
    damaged |= changes
    for name in [name for name, value in damaged.items() if value is GONE]:
        del damaged[name]
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(data))
    line = refused(capsys, path)
    assert line.startswith(f"numba-gemm: {path}: it should be what pytest ")
    assert place in line


def test_the_simulator_is_refused(record, path):
    """Its times say nothing about a GPU, so no table shows them."""
    record["benchmarks"][0]["extra_info"]["simulated"] = True
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="simulator"):
        report.load(path)


def test_parts_of_a_run(record, path, run, tmp_path):
    """Two files of one machine are one run; of two machines, or with a figure twice, they are not."""
    parts = []
    for number, benchmarks in enumerate((record["benchmarks"][:5], record["benchmarks"][5:])):
        part = record | {"benchmarks": benchmarks, "numba_gemm": {"command": f"part {number}"}}
        parts.append(tmp_path / f"part{number}.json")
        parts[-1].write_text(json.dumps(part))
    whole = report.load_all(parts)
    assert whole.figures == run.figures
    assert whole.command == "part 0; part 1"
    assert "2 commands, in the table of the environment." in report.ladder(whole)
    assert "| command | `part 0; part 1` |" in report.environment(whole)
    with pytest.raises(ValueError, match="ladder: naive at 4096 x 4096 x 4096 is there twice"):
        report.load_all([path, parts[0]])
    record["machine_info"]["numba_gemm"]["driver"] = "9.9"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"driver is '9\.9', not '1\.2'"):
        report.load_all([parts[0], path])


# Tables -------------------------------------------------------------------------------------------


def test_the_ladder(run):
    """Every rung in order, with all its shares."""
    table = report.ladder(run)
    places = [table.index(f"`{rung.name}`") for rung in LADDER]
    assert places == sorted(places)
    naive = row(table, "[`naive`](numba_gemm/rungs/naive.py)")
    assert naive[3:] == ["0.250", "2.00", "10.0%", "4.0%", "", "2.50", "1.3%", "", "1.3%"]
    coalesced = row(table, "[`coalesced`](numba_gemm/rungs/coalesced.py)")
    step = A6000_GFLOPS["coalesced"] / A6000_GFLOPS["naive"]
    assert coalesced[4:] == ["4.00", "20.0%", "8.0%", "2.00", "", "8.5%", f"{step:.2f}", ""]
    assert row(table, "cuBLAS")[4:7] == ["20.0", "100.0%", "40.0%"]
    assert "6.00 (power cap)" in table
    assert "Invented GPU, driver 1.2, numba 0.1; 2001-02-03; `pytest --benchmark-only bench`" in table


def test_the_suite(run):
    """Time over time, and the geometric mean of 2 and 1/2."""
    table = report.suite(run)
    assert row(table, "64 x 64 x 64") == [
        "64 x 64 x 64", "`split_k`", "4.00 µs", "8.00 µs", "0.131", "0.0655", "2.00",
    ]  # fmt: skip
    assert "Geometric mean of 2 ratios: 1.000; the lowest is 0.50, at 4093 x 777 x 1000." in table
    assert "does nothing measures 2.50 µs" in table


def test_the_other_tables(run):
    """Each has its figures."""
    assert row(report.energy(run), "column") == ["column", "400", "12.0", "6.00", "1004", ""]
    assert row(report.energy(run), "tiled2d")[-1] == "power cap"
    assert row(report.sizes(run), "naive") == ["naive", "2.00", "1.50"]
    assert row(report.cuda_cpp(run), "naive") == ["naive", "2.50"]
    assert row(report.peers(run), "Numba's example") == ["Numba's example", "3.00"]
    assert row(report.overhead(run), "gemm") == ["gemm", "123.0", "1.0%"]
    assert row(report.compile_time(run), "naive") == ["naive", "1.25"]
    assert "Some CPU" in report.environment(run)


def test_a_run_of_little(record, path):
    """What was not measured is said not to have been."""
    record["benchmarks"] = record["benchmarks"][:1]
    del record["benchmarks"][0]["extra_info"]["joules"]
    path.write_text(json.dumps(record))
    run = report.load(path)
    for name in ("cuda_cpp", "peers", "suite", "energy", "overhead", "compile"):
        assert report.SECTIONS[name](run).startswith("This run has no figures of"), name
    assert "10.0%" not in report.ladder(run)  # no share of a cuBLAS that is not there


# Two runs -----------------------------------------------------------------------------------------


def test_two_runs(record, run, tmp_path):
    """Ratios above a millisecond, those apart by more than 3% marked, and kept in the short form."""
    factors = {"naive": 1.04, "coalesced": 0.98}
    for benchmark in record["benchmarks"]:
        if benchmark["extra_info"]["bench"] in ("ladder", "suite"):
            benchmark["stats"]["median"] *= factors.get(benchmark["extra_info"]["name"], 1)
    record["benchmarks"].pop()  # one figure is in the first run only
    other = tmp_path / "second.json"
    other.write_text(json.dumps(record))
    both, table = report.compare(run, report.load(other))
    [naive] = [
        line for line in table.splitlines() if "| ladder | naive | 4096" in line and "%" not in line
    ]
    assert "| 1.040 | apart |" in naive
    [coalesced] = [line for line in table.splitlines() if "| coalesced |" in line]
    assert "| 0.980 |  |" in coalesced
    assert "64 x 64 x 64" not in table  # microseconds
    assert "1 figures are in one of the runs only" in table
    assert "were within 3% in a second run. The others:" in report.repeat(both)
    assert "+4.0%" in report.repeat(both)
    short = tmp_path / "short.json"
    short.write_text(report.slim(both))
    assert report.repeat(report.load(short)) == report.repeat(both)
    assert report.repeat(run) == "There was no second run."


def test_runs_that_cannot_be_compared(record, path, tmp_path, capsys):
    """Another device, or nothing that both have measured."""
    other = tmp_path / "other.json"
    record["machine_info"]["numba_gemm"]["device"] = "Other GPU"
    other.write_text(json.dumps(record))
    short = tmp_path / "short.json"
    line = refused(capsys, path, "--against", other, "--slim", short)
    assert f"--against {other}: it is of another device, Other GPU; the first run is of one Inv" in line
    record["machine_info"]["numba_gemm"]["device"] = "Invented GPU"
    record["benchmarks"] = [entry("ladder", "naive", (7, 7, 7), 1e-3)]
    other.write_text(json.dumps(record))
    assert f"--against {other}: no figure is in both runs" in refused(capsys, path, "--against", other)
    assert not short.exists()


def test_what_a_second_run_was_measured_with(record, run, tmp_path):
    """Another driver and another version are named."""
    record["machine_info"]["numba_gemm"] |= {"driver": "9.9", "versions": {"numba": "0.2"}}
    other = tmp_path / "other.json"
    other.write_text(json.dumps(record))
    _, table = report.compare(run, report.load(other))
    assert "In the second run, driver is '9.9', not '1.2'; numba is '0.2', not '0.1'." in table
    assert "In the second run" not in report.compare(run, run)[1]


# Texts and pictures -------------------------------------------------------------------------------


def marked(name, old="old\n"):
    return f"before\n<!-- report:{name} -->\n{old}<!-- /report -->\nafter\n"


def test_marked_places(run, tmp_path):
    """Only what is between the markers changes, and filling twice changes nothing."""
    text = marked("suite") + marked("suite-picture", "")
    filled = report.fill(text, run, tmp_path / "results", tmp_path)
    assert filled.startswith("before\n<!-- report:suite -->\n| M x N x K")
    assert filled.endswith("](results/suite.svg)\n<!-- /report -->\nafter\n")
    assert "old" not in filled
    assert report.fill(filled, run, tmp_path / "results", tmp_path) == filled


def test_links_from_another_folder(run, tmp_path):
    """A text below the root links upwards."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "bench").mkdir()
    filled = report.fill(marked("ladder"), run, tmp_path, tmp_path / "bench")
    assert "](../numba_gemm/rungs/naive.py)" in filled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (marked("sweet"), "there is no section 'sweet'; a report has ladder, "),
        (marked("sizes-picture"), "no section 'sizes-picture'"),
        ("hello\n", "it has no <!-- report:NAME --> and <!-- /report --> to fill"),
        ("<!-- report:suite -->\n", "1 places begin with a marker and 0 end"),
        ("<!-- /report -->\n", "0 places begin with a marker and 1 end"),
    ],
)
def test_wrong_markers(run, tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        report.fill(text, run, tmp_path, tmp_path)


def test_ends_of_lines_stay(run, path, tmp_path):
    """A text of another system is filled as it is."""
    readme = tmp_path / "TEXT.md"
    readme.write_bytes(marked("suite").replace("\n", "\r\n").encode())
    assert cli.main(["report", str(path), "--readme", str(readme)]) == 0
    filled = readme.read_bytes().decode()
    assert filled == report.fill(marked("suite"), run, tmp_path, tmp_path).replace("\n", "\r\n")


def test_one_file_for_two_options(path, tmp_path, capsys):
    """Is refused, and what was in it stays."""
    readme = tmp_path / "report.md"
    readme.write_text("mine <!-- report:suite --><!-- /report -->")
    for options in (("--slim", readme), ("--output", tmp_path)):
        assert cli.main(["report", str(path), "--readme", str(readme), *map(str, options)]) == 2
        assert "are both to write" in capsys.readouterr().err
    assert readme.read_text().startswith("mine ")


@pytest.mark.parametrize("command", ["pytest <!-- /report --> x", "<!-- report:suite -->"])
def test_figures_with_a_marker_in_them(record, path, tmp_path, capsys, command):
    """They would end the place that they stand in."""
    record["numba_gemm"]["command"] = command
    path.write_text(json.dumps(record))
    readme = tmp_path / "TEXT.md"
    readme.write_text(marked("environment"))
    assert f"--readme {readme}: the section 'environment' would" in refused(
        capsys, path, "--readme", readme
    )
    assert readme.read_text() == marked("environment")


def test_a_command_stays_in_its_cell(record, path):
    """A bar would begin another, the end of a line another row."""
    record["numba_gemm"]["command"] = "pytest a |\nb"
    path.write_text(json.dumps(record))
    assert report.environment(report.load(path)).endswith("| command | `pytest a \\| b` |")


def test_pictures(run):
    """One of each kind, the same every time, with the fingerprint of its figures."""
    pytest.importorskip("matplotlib")
    from numba_gemm.report_pictures import draw

    pictures = draw(run)
    assert set(pictures) == set(report.PICTURES)
    assert draw(run) == pictures
    for picture in pictures.values():
        assert f"figures {run.digest}" in picture


# The command --------------------------------------------------------------------------------------


def test_the_command_prints(path, capsys):
    """Without anything to write, the tables go to stdout."""
    assert cli.main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    assert [f"## {name}\n" in out for name in report.SECTIONS] == [True] * len(report.SECTIONS)


def test_the_command_writes(path, tmp_path, capsys):
    """Report, pictures, text and short form."""
    pytest.importorskip("matplotlib")
    readme, short, output = tmp_path / "TEXT.md", tmp_path / "short.json", tmp_path / "new" / "out"
    readme.write_text(marked("ladder") + marked("ladder-picture"))
    arguments = ["--output", output, "--readme", readme, "--slim", short]
    assert cli.main(["report", str(path), *map(str, arguments)]) == 0
    assert {file.name for file in output.iterdir()} == {
        "report.md", "ladder.svg", "suite.svg", "energy.svg",
    }  # fmt: skip
    assert "](new/out/ladder.svg)" in readme.read_text()
    assert report.load(short).digest == report.load(path).digest
    assert capsys.readouterr().out == ""


def test_nothing_is_written_for_bad_input(path, tmp_path, capsys):
    """A text with a wrong marker stops everything, and stays as it was."""
    readme, output = tmp_path / "TEXT.md", tmp_path / "out"
    readme.write_text(marked("sweet"))
    arguments = ["--output", output, "--readme", readme, "--slim", tmp_path / "short.json"]
    assert cli.main(["report", str(path), *map(str, arguments)]) == 2
    assert "no section 'sweet'" in capsys.readouterr().err
    assert readme.read_text() == marked("sweet")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["TEXT.md", "run.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.json"], "numba-gemm: nope.json: No such file or directory"),
        (["."], "numba-gemm: .: Is a directory"),
        (["x" * 300], "x: File name too long"),
        (["run.json", "--against", "nope.json"], "--against nope.json: No such file or directory"),
        (["run.json", "--readme", "nope.md"], "--readme nope.md: No such file or directory"),
        (["run.json", "--readme", "."], "--readme .: Is a directory"),
        (["run.json", "--readme", "binary"], "--readme binary: it is no text"),
        (["run.json", "--readme", "plain.md"], "--readme plain.md: it has no <!-- report:NAME -->"),
        (["run.json", "--slim", "no/s.json"], "--slim no/s.json: No such file or directory"),
        (["run.json", "--slim", "."], "--slim .: it is a folder"),
        (["run.json", "--slim", "loop"], "--slim loop: it is a link to itself"),
        (["run.json", "--output", "plain.md"], "--output plain.md: File exists"),
        (["run.json", "--output", "plain.md/a"], "--output plain.md/a: Not a directory"),
    ],
)
def test_paths_that_cannot_be_used(path, tmp_path, monkeypatch, capsys, arguments, message):
    """The line has the option and the path as it was typed, and nothing is written."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "plain.md").write_text("hello\n")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    line = refused(capsys, *arguments)
    assert message in line
    assert str(tmp_path) not in line
    assert sorted(tmp_path.iterdir()) == before


def test_a_failed_write_names_the_file_that_was_meant(path, tmp_path, monkeypatch, capsys):
    def refuse(*arguments):
        raise OSError(28, "No space left on device", *arguments)

    monkeypatch.setattr(report_command.files.os, "replace", refuse)
    assert cli.main(["report", str(path), "--slim", str(tmp_path / "short.json")]) == 1
    err = capsys.readouterr().err
    assert f"No space left on device: '{tmp_path / 'short.json'}'" in err
    assert "numba-gemm-" not in err


def test_the_command_compares(path, capsys):
    """A run agrees with itself."""
    assert cli.main(["report", str(path), "--against", str(path)]) == 0
    out = capsys.readouterr().out
    assert "| 1.000 |  |" in out
    assert "were within 3%" in out


# The figures of this repository -------------------------------------------------------------------


@pytest.mark.parametrize("text", [README, BENCH_README], ids=["README", "bench-README"])
def test_markers_can_be_filled(run, text):
    """Whatever is measured next finds its place."""
    filled = report.fill(text.read_text(), run, RESULTS.parent, text.parent)
    assert "Invented GPU" in filled


@pytest.mark.skipif(not RESULTS.exists(), reason="no complete run is committed in bench/results yet")
@pytest.mark.parametrize("text", [README, BENCH_README], ids=["README", "bench-README"])
def test_the_tables_are_those_of_the_committed_run(text):
    """``numba-gemm report bench/results/h200.json --readme ...`` would change nothing."""
    present = text.read_text()
    assert report.fill(present, report.load(RESULTS), RESULTS.parent, text.parent) == present


@pytest.mark.skipif(not RESULTS.exists(), reason="no complete run is committed in bench/results yet")
def test_the_pictures_are_those_of_the_committed_run():
    """Each picture that a text shows carries the fingerprint of the committed figures."""
    digest = report.load(RESULTS).digest
    for text in (README, BENCH_README):
        for name in report.PICTURES:
            if f"report:{name}-picture" in text.read_text():
                assert f"figures {digest}" in (RESULTS.parent / f"{name}.svg").read_text(), name
