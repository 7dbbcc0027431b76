"""The walkthrough: notebook and text agree, every link leads somewhere, every exercise has a solution.

Its cells are executed by notebooks/execute.py, which CI runs as well; here is what needs no kernel.
"""

import ast
import copy
import importlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from matplotlib.figure import Figure

from numba_gemm import LADDER, Problem, codegen, harness, plots, report, walkthrough
from numba_gemm.model import devices, occupancy
from numba_gemm.rungs import coalesced, double_buffered, naive, square
from numba_gemm.target import cuda

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
TEXT, NOTEBOOK = FOLDER / "walkthrough.py", FOLDER / "walkthrough.ipynb"
LINK = re.compile(r"(!?)\[(?:[^][]|!?\[[^]]*\]\([^)]*\))*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def notebook():
    """The notebook as it is committed."""
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def text():
    """The text that it is made of."""
    return jupytext.read(TEXT)


def prose(notebook):
    """All of its Markdown, cells and outputs."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    came_out = [output.get("data", {}).get("text/markdown", "") for output in outputs(notebook)]
    return "\n\n".join([*cells, *came_out])


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


# The notebook --------------------------------------------------------------------------------------


def test_notebook_and_text_agree(notebook, text):
    """``python notebooks/execute.py`` after a change of walkthrough.py."""
    made = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert made == [(cell.cell_type, cell.source) for cell in text.cells]


def test_the_notebook_is_valid(notebook):
    """By nbformat's own rules."""
    nbformat.validate(notebook)


def test_outputs_are_of_one_run_from_top_to_bottom(notebook):
    """Counted from 1, with nothing left out and nothing that failed."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


def test_the_notebook_is_small():
    """Whoever opens it in a browser has to fetch it."""
    assert NOTEBOOK.stat().st_size < 3e6


def test_no_path_of_a_machine_is_in_it(notebook):
    """Neither in what it says nor in what came out."""
    readable = copy.deepcopy(notebook)
    for output in outputs(readable):
        output.get("data", {}).pop("image/png", None)
    assert not re.search(r"(?<![\w.])/(tmp|root|home|work|usr|Users|opt)/", json.dumps(readable))


def test_pictures_say_in_words_what_they_show(notebook):
    """For those who cannot see them."""
    pictures = [output for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) >= len(LADDER)
    for output in pictures:
        assert len(output.metadata["image/png"]["alt"]) > 20


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_every_rung_has_its_part(text, rung):
    """A heading, its source, a run, its record and an exercise, in this order."""
    everything = "\n".join(cell.source for cell in text.cells)
    begin = everything.index(f'<a id="{rung.name}"></a>\n## Rung {LADDER.index(rung) + 1}: {rung.name}')
    part = everything[begin:].partition("</details>")[0]
    places = [
        re.search(pattern, part)
        for pattern in (
            r"\*\*The idea:\*\*",
            rf"(source\({rung.name}\.RUNG|difference\(\w+\.RUNG, {rung.name}\.RUNG)",
            rf"run\({rung.name}\.RUNG\)",
            rf"recorded\({rung.name}\.RUNG\)",
            r"\*\*Exercise\.\*\*",
            "<summary>Solution</summary>",
        )
    ]
    assert all(places)
    starts = [place.start() for place in places]
    assert starts == sorted(starts)


def test_every_link_leads_somewhere(notebook):
    """To a file of the repository, or to an anchor in the notebook."""
    everything = prose(notebook)
    anchors = re.findall(r'<a id="([^"]+)"></a>', everything)
    assert len(anchors) == len(set(anchors))
    links = LINK.findall(everything)
    assert len(links) > 60
    for _, target in links:
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (FOLDER / target).exists(), target


def test_the_readme_leads_here_first():
    """Its first picture and its first link."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = re.search(r"\[!\[[^]]+\]\(([^)]+)\)\]\(([^)]+)\)", readme)
    assert picture
    assert (ROOT / picture[1]).exists()
    assert picture[2] == "notebooks/walkthrough.ipynb"
    assert LINK.search(readme).start() >= picture.start()


# Exercises -----------------------------------------------------------------------------------------


def exercises():
    """The code of each exercise and of its solution, by name, and what was imported for them."""
    cells = jupytext.read(TEXT).cells
    found = {}
    for cell, after in itertools.pairwise(cells):
        if "exercise" in cell.metadata.get("tags", ()):
            solution = re.search(r"<details>.*?```python\n(.*?)```", after.source, re.DOTALL)
            found[f"exercise {len(found) + 1}"] = cell.source, solution[1]
    return found


def outcome_of(code, names):
    """The value of the last expression of a cell."""
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


@pytest.fixture(scope="module")
def imported(text):
    """What the notebook's second code cell defines."""
    names = {"__name__": "walkthrough"}
    exec([cell.source for cell in text.cells if cell.cell_type == "code"][1], names)
    return names


def test_there_is_an_exercise_for_every_rung():
    """And one for the search."""
    assert len(exercises()) == len(LADDER) + 1


@pytest.mark.simulator
@pytest.mark.parametrize("name", exercises())
def test_an_exercise_can_be_solved(imported, name):
    """As it stands it is not, and by its solution it is."""
    exercise, solution = exercises()[name]
    names = dict(imported)
    before = outcome_of(exercise, names)
    assert not before or isinstance(before, list)  # reasons why a tile is illegal
    after = outcome_of(solution, names)
    assert after
    assert not isinstance(after, list)


COMPILE = """
import json, sys
import of_the_exercises
from numba import cuda
from numba_gemm import codegen

codegen._require_libraries()
matrix, scalar = cuda.types.float32[:, ::1], cuda.types.float32
for name in json.load(sys.stdin):
    kernel = getattr(of_the_exercises, name)
    with codegen._stand_in_device((8, 0)):
        cuda.compile_ptx(kernel.py_func, (matrix, matrix, matrix, scalar, scalar), cc=(8, 0))
    print(name)
"""


def test_the_kernels_of_the_exercises_compile(monkeypatch, tmp_path, text):
    """For a GPU, where Numba takes less than Python does."""
    imports = [cell.source for cell in text.cells if cell.cell_type == "code"][1]
    parts, names = [imports], []
    for exercise, codes in exercises().items():
        for code, which in zip(codes, ("as_it_is", "solved"), strict=True):
            if "def mine(" in code:
                names.append(f"{exercise.replace(' ', '_')}_{which}")
                cell = [node for node in ast.parse(code).body if not isinstance(node, ast.Expr)]
                source = "\n".join(ast.unparse(node) for node in cell)
                parts.append(source.replace("def mine(", f"def {names[-1]}("))
    (tmp_path / "of_the_exercises.py").write_text("\n\n".join(parts))
    assert len(names) == 22
    monkeypatch.syspath_prepend(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        env=codegen._compiler_environment(),
        check=False,
    )
    if "ToolchainError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.stdout.split() == names, done.stderr


# What the cells share --------------------------------------------------------------------------------


def test_sources_are_those_of_the_files():
    """Of a kernel, of the function that builds one, and of a part of it."""
    whole = Path(importlib.import_module("numba_gemm.rungs.square").__file__).read_text(encoding="utf-8")
    shown = walkthrough.source(square.RUNG).data
    assert shown.startswith("[`numba_gemm/rungs/square.py`](../numba_gemm/rungs/square.py)")
    body = shown.partition("```python\n")[2].partition("\n```")[0]
    assert body in whole
    assert body.startswith("@functools.cache\ndef build(")
    assert body.endswith("return kernel")
    kernel = walkthrough.source(naive.RUNG).data
    assert "```python\n@cuda.jit\ndef kernel(A, B, C, alpha, beta):\n    M, N, K" in kernel
    part = walkthrough.source(square.RUNG, "kernel").data
    assert "\n@cuda.jit(**launch_bounds" in part
    with pytest.raises(LookupError, match="square has no function 'nothing'"):
        walkthrough.source(square.RUNG, "nothing")


def test_a_difference_has_the_lines_that_differ():
    """And a line around them."""
    shown = walkthrough.difference(naive.RUNG, coalesced.RUNG).data
    lines = shown.partition("```diff\n")[2].partition("\n```")[0].splitlines()
    assert [line[0] for line in lines if line[:1] in "+-"] == ["-", "-", "+", "+"]
    assert any(line.startswith("+    col = block_x() * BLOCK + thread_x()") for line in lines)


def test_a_run_is_checked(monkeypatch):
    """What is wrong is not called right."""
    assert "`square` at " in (said := walkthrough.run(square.RUNG).data)
    assert "is right; the largest error is" in said
    wrong = type("Step", (), {"passed": False, "worst": 7.0, "seconds": 1e-3})
    monkeypatch.setattr(walkthrough, "climb", lambda *_: iter([wrong]))
    assert "is WRONG; the largest error is 700.0%" in walkthrough.run(square.RUNG).data


@pytest.mark.parametrize("rung", [naive.RUNG, LADDER[-1]], ids=["naive", "split_k"])
def test_a_record_is_read_from_the_file_or_missed(monkeypatch, tmp_path, rung):
    """TFLOP/s, of the peak, of cuBLAS, and the card."""
    results = tmp_path / "h200.json"
    monkeypatch.setattr(walkthrough, "RESULTS", results)
    walkthrough.record.cache_clear()
    assert "no recorded run" in walkthrough.recorded(rung).data
    assert walkthrough.speeds() == {}

    shape = (report.SIZE,) * 3
    figures = tuple(
        report.Figure("ladder", name, shape, seconds, 0.01, 7)
        for name, seconds in ((rung.name, 4e-3), (report.CUBLAS, 2e-3))
    )
    about = {"device": "a card", "fp32_peak_flops_per_second": 1e14}
    results.write_text(report.slim(report.Run(figures, about, "2026-01-02", "a command")))
    walkthrough.record.cache_clear()
    said = walkthrough.recorded(rung).data
    assert "34.4 TFLOP/s at 4096 x 4096 x 4096 on one a card, 34.4% of its peak" in said
    assert "50.0% of cuBLAS in the same run (2026-01-02)" in said
    assert ("1.3% of cuBLAS" in said) == (rung is naive.RUNG)
    walkthrough.record.cache_clear()


@pytest.mark.skipif(not walkthrough.RESULTS.exists(), reason="there is no recorded run")
@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_the_notebook_shows_the_recorded_run(notebook, rung):
    """``python notebooks/execute.py`` after a new record."""
    assert walkthrough.recorded(rung).data in prose(notebook)


def test_rungs_that_the_gpu_is_too_old_for_are_left_out(monkeypatch):
    """A T4 has no asynchronous copies, and the notebook goes on."""
    old = type("Device", (), {"compute_capability": (7, 5)})
    monkeypatch.setattr(walkthrough.this_device, "current", lambda: old)
    assert walkthrough.able(naive.RUNG)
    assert not walkthrough.able(LADDER[-1])
    assert "needs compute capability 8.0" in walkthrough.run(LADDER[-1]).data


def test_a_picture_is_on_white_and_small():
    """It is read on a dark page as well."""
    from io import BytesIO

    from PIL import Image

    shown = walkthrough.picture(plots.bars({"one": 1.0, "two": 2.0}, "what", "title"), "two bars")
    with Image.open(BytesIO(shown.data)) as pixels:
        assert pixels.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    assert len(shown.data) < 60e3
    assert shown.alt == "two bars"


def test_tables_put_numbers_to_the_right():
    """And texts to the left."""
    shown = walkthrough.table(["what", "how much"], [["a", 12345.6], ["b", 0.12345]]).data
    assert shown.splitlines() == ["| what | how much |", "|---|---:|", "| a | 12346 |", "| b | 0.123 |"]


def test_numbers_have_three_digits():
    """Zeros among them, and no point at the end."""
    numbers = (0.498187, 18.01, 50, 495.0, 9.999, 1234.5)
    assert [walkthrough.three_digits(x) for x in numbers] == [
        "0.498",
        "18.0",
        "50.0",
        "495",
        "10.0",
        "1234",
    ]


def test_registers_are_what_the_launch_bounds_leave():
    """Of double_buffered 65536 / (128 * 2), of which a thread can name 255; so many blocks do fit."""
    h200 = devices.named("H200")
    assert walkthrough.registers_left(double_buffered.TILE, h200) == 255
    assert walkthrough.registers_left(square.TILE, h200) == 128
    for tile in (rung.tile for rung in LADDER if rung.tile):
        left = walkthrough.registers_left(tile, h200)
        assert occupancy.occupancy(h200, tile.threads, left, tile.shared_bytes).blocks >= tile.blocks


@pytest.mark.simulator
def test_the_rungs_agree_bit_for_bit():
    """As the notebook says of the small problem: the same input, added up in the same order."""
    M, N, K = walkthrough.SIMULATED
    A, B, C = harness.random_operands(M, N, K, 0)
    results = set()
    for rung in LADDER:
        device_C = cuda.to_device(C)
        small = walkthrough.small(rung)
        operands = cuda.to_device(A), cuda.to_device(B), device_C
        harness.prepare(small, *operands, Problem(M, N, K))()
        results.add(device_C.copy_to_host().tobytes())
    assert len(results) == 1


@pytest.mark.simulator
def test_the_small_tiles_are_legal():
    """For the rungs that they are for."""
    assert set(walkthrough.TILES) == {rung.name for rung in LADDER if rung.tile}
    for rung in LADDER:
        if rung.tile:
            assert not rung.why_illegal(walkthrough.TILES[rung.name])
    assert walkthrough.small(square.RUNG).tile == walkthrough.TILES["square"]


# The pictures that it brought ------------------------------------------------------------------------


def texts(figure: Figure):
    """Everything that is written in a figure."""
    found = []
    for axes in figure.axes:
        found += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        found += [each.get_text() for each in axes.texts]
    return found


def test_operands_picks_out_what_a_tile_needs():
    """Rows of A, columns of B, the tile of C and a thread's part of it."""
    figure = plots.operands(16, (4, 8), (4, 8), chunk=(8, 2), part=(2, 1))
    of_a, of_b, of_c = figure.axes
    corners = [[patch.get_xy() for patch in axes.patches] for axes in (of_a, of_b, of_c)]
    assert corners == [[(0, 4), (8, 4)], [(8, 0), (8, 8)], [(8, 4), (8, 4)]]
    assert "green: one thread, 2 x 1" in of_c.get_xlabel()


def test_sectors_are_counted():
    """In the title, by the model."""
    figure = plots.sectors([("rows", [0, 256, 512]), ("lanes", [0, 4, 8])], 4, 256)
    assert any("rows\n3 sectors for 3 lanes" in text for text in texts(figure))
    assert any("lanes\n1 sector for 3 lanes" in text for text in texts(figure))


def test_a_schedule_has_a_line_for_each_worker():
    """As long as its last span."""
    spans = {"one": [plots.Span(0, 2, "load", "0"), plots.Span(2, 3, "multiply", "0")], "two": []}
    [axes] = plots.schedule(spans, "time", "title").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert axes.get_xlim()[1] == pytest.approx(5.05)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["load", "multiply"]


def test_blocks_may_have_fewer_threads_than_entries():
    """One for each is what they have otherwise."""
    geometry = walkthrough.blocks_of(8, 4, threads=(4, 2))(9, 9)
    assert geometry.grid == (3, 2, 1)
    assert geometry.block == (4, 2)
    assert walkthrough.blocks_of(8, 4)(8, 4).block == (4, 8)
