"""What the cells of notebooks/walkthrough.ipynb share: sources, runs, records and pictures to display.

The notebook explains; what would be the same in every rung's cells is here, so that a cell is one idea.
Everything it shows of a kernel is read from the kernel's file, and every measured figure from
``bench/results/h200.json``.

Needs IPython, which the extra ``notebook`` brings.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib
import inspect
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import Image, Markdown
from matplotlib.figure import Figure

from . import device as this_device
from . import plots, report
from .climb import climb
from .harness import Geometry
from .model import devices, published
from .model.occupancy import WARP
from .model_command import read_measured, wave_points
from .problem import Problem
from .rung import Rung
from .target import TARGET
from .tile import Tile

__all__ = [
    "RESULTS",
    "TILES",
    "able",
    "blocks_of",
    "difference",
    "picture",
    "record",
    "recorded",
    "recorded_suite",
    "recorded_waves",
    "registers_left",
    "run",
    "source",
    "speeds",
    "table",
    "three_digits",
]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "h200.json"
"""Where a clone of the repository keeps the figures of its recorded run."""

WAVES = RESULTS.with_name("waves.json")
"""And what ``numba-gemm model --measure-waves --json`` measured."""

TO_ROOT = "../"
"""From the notebook's folder to the repository's root, for links."""

TILES = {
    "tiled2d": Tile(8, 8, 8),
    "column": Tile(16, 8, 4, TM=4),
    "square": Tile(16, 32, 4, TM=4, TN=4),
    "vectorized": Tile(16, 32, 8, TM=4, TN=4),
    "autotuned": Tile(32, 32, 8, TM=4, TN=4),
    "warptiled": Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32),
    "padded": Tile(16, 64, 8, TM=4, TN=8, WM=16, WN=64),
    "double_buffered": Tile(32, 16, 8, TM=4, TN=4, WM=32, WN=16, stages=2),
    "async_copy": Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=3),
    "split_k": Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=2),
}
"""Tiles small enough to simulate, for the rungs that have one."""

SIMULATED = (33, 35, 19)
ON_A_GPU = (4096, 4096, 4096)
"""M, N and K of the problem that a rung is run on: off every tile in the simulator, large on a GPU."""


# Sources ---------------------------------------------------------------------------------------------


def source(rung: Rung, part: str | None = None) -> Markdown:
    """The kernel's own source, highlighted, with a link to its file.

    Of a rung with tile parameters it is the function that builds the kernel; *part* picks out one
    function inside of it by name.  Raises LookupError where there is none of that name.
    """
    text = _text(rung, part)
    what = f"`{part}` of " if part else ""
    return Markdown(f"{what}{_link(rung)}\n\n{_listing('python', text)}")


def difference(below: Rung, rung: Rung) -> Markdown:
    """What *rung*'s kernel has in place of that of the rung *below*: ``-`` was there, ``+`` is here."""
    old, new = (_text(each).splitlines() for each in (below, rung))
    lines = difflib.unified_diff(old, new, lineterm="", n=1)
    kept = ["" if line.startswith("@@") else line for line in lines if line[:3] not in ("---", "+++")]
    text = "\n".join(kept).strip("\n")
    return Markdown(f"From `{below.name}` to {_link(rung)}\n\n{_listing('diff', text)}")


def _listing(language: str, text: str) -> str:
    """Code to be highlighted in the colours of the reader's theme.

    The letters of code that an output contains are as wide as they like in nbconvert's HTML, hence the
    style around it, which other viewers have no need of.
    """
    return f'<div style="font-family: monospace">\n\n```{language}\n{text}\n```\n\n</div>'


def _link(rung: Rung) -> str:
    path = f"numba_gemm/rungs/{rung.name}.py"
    return f"[`{path}`]({TO_ROOT}{path})"


def _text(rung: Rung, part: str | None = None) -> str:
    """The source of a rung's kernel, or of a part of the function that builds it."""
    module = importlib.import_module(f"numba_gemm.rungs.{rung.name}")
    whole = inspect.getsource(module)
    for node in ast.walk(ast.parse(whole)):
        if not isinstance(node, ast.FunctionDef):
            continue
        if node.name == (part or ("kernel" if rung.tile is None else "build")):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return inspect.cleandoc("\n" + "\n".join(whole.splitlines()[first - 1 : node.end_lineno]))
    raise LookupError(f"{rung.name} has no function {part!r}")


# Runs ------------------------------------------------------------------------------------------------


def small(rung: Rung) -> Rung:
    """The rung as it is run here: with a tile for the simulator, as it ships on a GPU."""
    if TARGET.is_gpu or rung.name not in TILES:
        return rung
    tile = TILES[rung.name]
    return dataclasses.replace(rung, tile=tile, kernel=rung.build(tile))


def able(rung: Rung) -> bool:
    """Whether *rung* runs here: always in the simulator, on a GPU that is new enough for it."""
    gpu = this_device.current()
    return gpu is None or gpu.compute_capability >= rung.requires


def run(rung: Rung, seed: int = 0) -> Markdown:
    """Run *rung* here on random input, check every entry with numpy's and say what came out.

    On a GPU with its device time; in the simulator, whose time says nothing, without.
    """
    if not able(rung):
        needed = "{}.{}".format(*rung.requires)
        return Markdown(
            f"**Here:** `{rung.name}` needs compute capability {needed}, which this GPU has not."
        )
    M, N, K = ON_A_GPU if TARGET.is_gpu else SIMULATED
    problem = Problem(M, N, K)
    here = small(rung)
    [step] = climb(problem, [here], seed)
    verdict = "right" if step.passed else "WRONG"
    what = f"`{rung.name}` at {M} x {N} x {K}"
    if here.tile and not TARGET.is_gpu:
        what += f" in tiles of {here.tile.BM} x {here.tile.BN} x {here.tile.BK}"
    text = (
        f"**Here:** {what} is {verdict}; the largest error is {step.worst:.1%} of what rounding may do."
    )
    if step.seconds is None:
        text += " Simulated, so there is no speed to tell."
    else:
        speed = problem.product_flops / step.seconds / 1e12
        text += f" {three_digits(step.seconds * 1e3)} ms, {three_digits(speed)} TFLOP/s."
    return Markdown(text)


def blocks_of(rows: int, cols: int, threads: tuple[int, int] | None = None) -> Callable[..., Geometry]:
    """The geometry of a kernel whose blocks compute *rows* x *cols* entries of C, x along the columns.

    For :func:`numba_gemm.harness.check`.  *threads* are those of a block in x and y; one for each entry
    where it is None.
    """
    return lambda M, N: Geometry.cover(x=(N, cols), y=(M, rows), block=threads or (cols, rows))


def registers_left(tile: Tile, gpu: devices.Gpu) -> int:
    """The most registers that ``launch_bounds``, for the tile's own number of blocks, leaves a thread.

    The blocks of a multiprocessor of *gpu* share its registers, which are dealt out to warps in steps,
    and no thread can name more than the architecture's limit.
    """
    step = gpu.limits.register_granularity // WARP
    each = gpu.limits.registers // (tile.threads * tile.blocks) // step * step
    return min(gpu.limits.max_registers, each)


# Records ---------------------------------------------------------------------------------------------


@functools.cache
def record() -> report.Run | None:
    """The recorded run, or None where there is none: no clone of the repository, or not measured yet."""
    return report.load(RESULTS) if RESULTS.exists() else None


def speeds(size: int = report.SIZE) -> dict[str, float]:
    """Recorded TFLOP/s of every rung and of cuBLAS at *size* cubed; empty where there is no record."""
    run = record()
    if run is None:
        return {}
    shape = (size,) * 3
    return {name: figure.tflops for name, figure in run.of("ladder", shape).items()}


def recorded_suite() -> Markdown:
    """How ``gemm`` did beside cuBLAS over the shapes of the recorded suite."""
    about = record()
    pairs = report.ratios(about) if about else []
    if about is None or not pairs:
        return Markdown("**Recorded:** no recorded run.")
    ratios = {ours.shape: vendor.seconds / ours.seconds for ours, vendor in pairs}
    mean = math.exp(math.fsum(map(math.log, ratios.values())) / len(ratios))
    worst, best = min(ratios, key=lambda s: ratios[s]), max(ratios, key=lambda s: ratios[s])
    chosen = len({ours.more.get("choice") for ours, _ in pairs})
    return Markdown(
        f"**Recorded:** over {len(ratios)} shapes `numba_gemm.gemm` took {chosen} different kernels and "
        f"was {mean:.2f} times as fast as cuBLAS in the geometric mean, from {ratios[worst]:.2f} at "
        f"{' x '.join(map(str, worst))} to {ratios[best]:.2f} at {' x '.join(map(str, best))} "
        f"({about.environment['device']}, {about.date})."
    )


def recorded_waves() -> list[plots.Waves]:
    """The series of launches that were measured across the edge of a wave; empty without a record."""
    if not WAVES.exists():
        return []
    return [plots.Waves(*wave_points(series)) for series in read_measured(WAVES).waves]


def recorded(rung: Rung) -> Markdown:
    """What *rung* reached on the recorded GPU, beside cuBLAS, the peak and what was published."""
    text = "no recorded run."
    known, about = speeds(), record()
    if about and rung.name in known:
        speed, size = known[rung.name], report.SIZE
        peak = about.environment["fp32_peak_flops_per_second"] / 1e12
        text = f"{three_digits(speed)} TFLOP/s at {size} x {size} x {size} on one "
        text += f"{about.environment['device']}, {speed / peak:.1%} of its peak"
        if report.CUBLAS in known:
            text += f" and {speed / known[report.CUBLAS]:.1%} of cuBLAS in the same run"
        text += f" ({about.date})."
    there = published.A6000_GFLOPS
    if rung.name in there:
        share = published.share(there[rung.name], there[report.CUBLAS])
        there_speed = three_digits(there[rung.name] / 1e3)
        text += f" S. Boehm's kernel of this idea on an RTX A6000: {there_speed} TFLOP/s, "
        text += f"{share:.1%} of cuBLAS."
    return Markdown(f"**Recorded:** {text}")


# Display ---------------------------------------------------------------------------------------------

DPI = 200
COLOURS = 128


def picture(figure: Figure, alt: str) -> Image:
    """*figure* as a small PNG on white, sharp on any screen; *alt* says in words what it shows."""
    from PIL import Image as Pixels

    drawn, file = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=DPI, facecolor="white")
    with Pixels.open(drawn) as pixels:
        few = pixels.convert("RGB").quantize(COLOURS, dither=Pixels.Dither.NONE)
        few.save(file, "PNG", optimize=True)
    return Image(file.getvalue(), format="png", retina=True, alt=alt)


def table(heads: list[str], rows: list[list[Any]]) -> Markdown:
    """A table in Markdown: text to the left, numbers to the right."""
    right = [all(not isinstance(row[i], str) for row in rows) for i in range(len(heads))]
    lines = ["| " + " | ".join(heads) + " |"]
    lines.append("|" + "|".join("---:" if number else "---" for number in right) + "|")
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return Markdown("\n".join(lines))


def three_digits(value: float) -> str:
    """A number with three significant digits, such as 18.0; from 1000 on, all before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".removesuffix(".")


def _cell(value: Any) -> str:
    return three_digits(value) if isinstance(value, float) else str(value)
