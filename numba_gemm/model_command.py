"""``numba-gemm model``: what a multiply is allowed to cost, as tables and pictures.

Works for any GPU on a machine with none.  Only ``--measure-waves`` needs one; see
:mod:`numba_gemm.waves`.  Where the prediction is pessimistic: it counts everything that is asked of
global memory against DRAM, where caches answer much of it, so that small tiles are faster than it says.
Where it is optimistic: beyond that, every instruction but the multiply-adds is free.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from rich.console import Console
from rich.table import Table

from . import __version__, files, records, terminal
from .model import banks, devices, hierarchy, prediction, quantization, roofline, traffic
from .problem import Problem
from .records import Count, Seconds, Size
from .terminal import InputError
from .tile import Tile, TileError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .model.devices import Gpu
    from .waves import Series

__all__ = ["Measured", "Row", "parse_tile", "read_measured", "rows_of_the_ladder", "run", "wave_points"]

DEFAULT_GPU = "H200"
MAX_SIZE = 2**31 - 1
TILE_FIELDS = ("BM", "BN", "BK", "TM", "TN", "WM", "WN", "stages")
TILE_COUNTS = (3, 5, 7, 8)
PRINTED_TILE = re.compile(r"(\d+)x(\d+)x(\d+) +(\d+)x(\d+)(?: +w(\d+)x(\d+))?(?: +s(\d+))?")


@dataclass(frozen=True)
class Row:
    """One rung, or one tile, and what the models say of it.

    ``intensity`` is FLOP per byte asked of global memory, ``shared_loads`` floats read from shared
    memory for one multiply-add, None where there is no shared memory; ``ceiling`` is FLOP/s by the
    roofline, ``tflops`` those of the product in the time that the model says.
    """

    name: str
    tile: Tile | None
    model: prediction.Prediction
    intensity: float
    ceiling: float
    shared_loads: float | None
    tflops: float


def run(options: argparse.Namespace) -> int:
    """Do what the options say; the exit status.  Raises InputError for what cannot be used."""
    output = terminal.writable(options.json)
    picture = _picture_file(options.plot)
    if options.picture and not options.plot:
        raise InputError("--picture says which picture to save; give --plot FILE as well")
    if options.measure_waves:
        return _measure_waves(options, output, picture)

    measured = read_measured(options.measured)
    gpu = _gpu(options.gpu, measured.device)
    if max(options.shape) > MAX_SIZE:
        raise InputError(f"--shape has {max(options.shape)}; no size may be more than {MAX_SIZE}")
    M, N, K = options.shape
    if max(M * K, K * N, M * N) > terminal.MOST_ELEMENTS:
        raise InputError(f"--shape is {_shape(options.shape)}; a matrix of that size fits in no memory")
    problem = Problem(M, N, K)
    if measured.speeds and measured.shape != tuple(options.shape):
        raise InputError(
            f"--measured {options.measured} is of {_shape(measured.shape)}, --shape is "
            f"{_shape(options.shape)}; they should be the same"
        )
    if options.tile:
        rows = [_row_of_tile(problem, parse_tile(options.tile), gpu, options.registers)]
    elif options.registers:
        raise InputError("--registers are those of one kernel; give --tile as well")
    else:
        try:
            rows = rows_of_the_ladder(problem, gpu)
        except RuntimeError as error:  # a GPU is asked for where there is none
            raise InputError(str(error)) from error

    if picture:
        figure = _draw(options.picture or "roofline", problem, gpu, rows, measured)
        _save(figure, picture)
    if output:
        terminal.write_json(output, _record(problem, gpu, rows))
    console = terminal.stdout()
    terminal.show(console, _problem_table(problem, gpu))
    console.print(_rows_table(rows))
    console.print(
        "asked: bytes asked of global memory, and FLOP for each; DRAM sees fewer, as caches answer some."
        " loads: floats read from shared memory for a multiply-add. in C: of the entries computed. a SM,"
        " warps: blocks and warps on a multiprocessor, by the registers that the tile is thought to need"
        " (--registers takes those that inspect prints). busy: multiprocessors that have work, over all "
        "waves. time, TFLOP/s: if nothing but arithmetic and what is asked for limits it; a kernel is"
        " slower, as it has other instructions too, or faster, where caches answer.",
        highlight=False,
    )
    return 0


# Input --------------------------------------------------------------------------------------------


def _gpu(name: str | None, measured_on: str | None = None) -> Gpu:
    """The GPU of that name; else the one that was measured, the machine's own, or the default one."""
    try:
        own = devices.current() if name is None or measured_on else None
        where = None
        if measured_on:
            where = own if own and own.name == measured_on else devices.named(measured_on)
        if name is None:
            return where or own or devices.named(DEFAULT_GPU)
        gpu = devices.named(name)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--gpu: {error}") from error
    if where and where.multiprocessors != gpu.multiprocessors:
        raise InputError(f"--gpu is {gpu.name}, but --measured was measured on {measured_on}")
    return gpu


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def parse_tile(text: str) -> Tile:
    """The tile that *text* writes as BMxBNxBK, then TMxTN, WMxWN and stages as far as needed.

    What :func:`numba_gemm.search.space.short` writes, ``128x256x8 8x16 w64x64 s2``, is read as well.

    Raises InputError where it cannot be read, or no kernel can be built from it.
    """
    printed = PRINTED_TILE.fullmatch(text.strip())
    parts = printed.groups() if printed else tuple(text.split("x"))
    if not printed and (
        len(parts) not in TILE_COUNTS or not all(part.strip().lstrip("-").isdecimal() for part in parts)
    ):
        raise InputError(
            f"--tile is {text!r}; it should be BMxBNxBK, BMxBNxBKxTMxTN, BMxBNxBKxTMxTNxWMxWN or the "
            "latter with xSTAGES, in whole numbers, or as tables write it, '128x256x8 8x16 w64x64 s2'"
        )
    given = {name: int(part) for name, part in zip(TILE_FIELDS, parts, strict=False) if part}
    tile = Tile(**given)
    try:
        tile.check(warps=tile.WM is not None, staged=True)
    except TileError as error:
        raise InputError(f"--tile: {error}") from error
    return tile


def _picture_file(path: Path | None) -> Path | None:
    """Where to save a picture, refused before any work where that cannot be."""
    if path is None:
        return None
    try:
        from . import plots
    except ImportError as error:
        raise InputError(
            f"--plot needs matplotlib ({error}); pip install 'numba-gemm[plot]' brings it"
        ) from error
    if path.suffix.lower() not in plots.FORMATS:
        raise InputError(f"--plot is {path}; it should end in {' or '.join(plots.FORMATS)}")
    return terminal.writable(path, "--plot")


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a multiply."""

    M: Size
    N: Size
    K: Size


@dataclass(frozen=True)
class _Step:
    """One rung that was run; without *seconds* in the simulator."""

    rung: str
    seconds: Seconds | None


@dataclass(frozen=True)
class _Climbed:
    """What is needed of what ``climb --json`` writes."""

    device: str
    problem: _Sizes
    rungs: tuple[_Step, ...]
    cublas_seconds: Seconds | None


@dataclass(frozen=True)
class _Point:
    """One launch."""

    blocks: Count
    seconds: Seconds


@dataclass(frozen=True)
class _Series:
    """The launches of one rung."""

    label: str
    multiprocessors: Annotated[int, Meta(ge=1, le=1024)]
    blocks_per_multiprocessor: Annotated[int, Meta(ge=1, le=64)]
    points: Annotated[tuple[_Point, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class _Waves:
    """What is needed of what ``--measure-waves --json`` writes."""

    device: str
    waves: Annotated[tuple[_Series, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Measured:
    """What was measured: speeds of rungs in TFLOP/s, for one shape, or series of waves."""

    device: str | None = None
    shape: tuple[int, ...] = ()
    speeds: Mapping[str, float] = field(default_factory=dict)
    cublas: float | None = None
    waves: Sequence[_Series] = ()


def read_measured(path: Path | None) -> Measured:
    """What ``climb --json`` or ``--measure-waves --json`` wrote; nothing for no path.

    Raises InputError where it is neither.
    """
    if path is None:
        return Measured()
    try:
        record = records.read(path, dict[str, Any])
        if "waves" in record:
            series = records.convert(record, _Waves)
            return Measured(series.device, waves=series.waves)
        climbed = records.convert(record, _Climbed)
    except OSError as error:
        raise InputError(f"--measured {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(
            f"--measured {path}: it should be what climb --json or model --measure-waves --json wrote: "
            f"{error}"
        ) from error
    sizes = climbed.problem
    product = roofline.product_flops(sizes.M, sizes.N, sizes.K)
    speeds = {step.rung: product / step.seconds / 1e12 for step in climbed.rungs if step.seconds}
    if not speeds:
        raise InputError(f"--measured {path} has no times; {climbed.device} has no speed")
    cublas = climbed.cublas_seconds
    return Measured(
        climbed.device,
        (sizes.M, sizes.N, sizes.K),
        speeds,
        product / cublas / 1e12 if cublas else None,
    )


def wave_points(series: _Series | Series) -> tuple[str, int, int, dict[int, float]]:
    """What a picture of waves takes of one series."""
    return (
        series.label,
        series.multiprocessors,
        series.blocks_per_multiprocessor,
        {point.blocks: point.seconds for point in series.points},
    )


# Rows ---------------------------------------------------------------------------------------------


def rows_of_the_ladder(problem: Problem, gpu: Gpu) -> list[Row]:
    """The models of every rung that *gpu* runs, at its own tile there."""
    from .rungs import LADDER

    rows = []
    for rung in LADDER:
        if rung.requires > gpu.compute_capability:
            continue
        own = rung.tile_on(gpu.compute_capability)
        requested = rung.requested_bytes(problem, own, gpu.multiprocessors)
        # Without a tile, a block is what its launch geometry makes it.
        block = rung.geometry(problem.M, problem.N, own).block
        tile = own or Tile(*block, BK=1)
        model = prediction.predict(
            problem,
            tile,
            gpu,
            registers=None if own else 32,
            shared_bytes=None if own else 0,
            requested_bytes=requested,
            even=rung.split is not None,
        )
        rows.append(_row(rung.name, problem, own, gpu, model))
    return rows


def _row_of_tile(problem: Problem, tile: Tile, gpu: Gpu, registers: int | None) -> Row:
    """The models of a kernel that has this tile and nothing else that matters."""
    model = prediction.predict(problem, tile, gpu, registers)
    if not model.occupancy.blocks:
        short = ", ".join(model.occupancy.limited_by)
        raise InputError(
            f"--tile: not one block of {tile} fits on a multiprocessor of {gpu.name}: {short}"
        )
    return _row("tile", problem, tile, gpu, model)


def _row(name: str, problem: Problem, tile: Tile | None, gpu: Gpu, model: prediction.Prediction) -> Row:
    """A row with what follows from the model."""
    intensity = roofline.intensity(problem.flops, model.requested_bytes)
    return Row(
        name=name,
        tile=tile,
        model=model,
        intensity=intensity,
        ceiling=roofline.attainable(intensity, gpu.fp32_peak, gpu.memory_bandwidth),
        shared_loads=traffic.shared_loads(tile.TM, tile.TN) if tile else None,
        tflops=problem.product_flops / model.seconds / 1e12,
    )


# Tables -------------------------------------------------------------------------------------------


def _problem_table(problem: Problem, gpu: Gpu) -> Table:
    """The ceilings, and the time that no kernel can beat."""
    table = terminal.table(
        f"C <- A B, {problem.M} x {problem.N} x {problem.K}, float32\n"
        f"{gpu.name}: {gpu.multiprocessors} multiprocessors, {gpu.fp32_peak / 1e12:.1f} TFLOP/s, "
        f"{gpu.memory_bandwidth / 1e9:,.0f} GB/s, "
        f"ridge point {roofline.ridge_point(gpu.fp32_peak, gpu.memory_bandwidth):.2f} FLOP/byte"
    )
    table.add_column("no kernel can do with less", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("takes", justify="right", no_wrap=True)
    table.add_row(
        "arithmetic",
        f"{problem.product_flops:,} FLOP",
        _time(roofline.arithmetic_seconds(problem.product_flops, gpu.fp32_peak)),
    )
    table.add_row(
        "bytes, each once",
        f"{problem.compulsory_bytes:,} bytes",
        _time(roofline.memory_seconds(problem.compulsory_bytes, gpu.memory_bandwidth)),
    )
    table.add_row("arithmetic intensity", f"{problem.intensity:,.2f} FLOP/byte", "")
    floor = prediction.floor_seconds(problem, gpu)
    table.add_section()
    table.add_row("the time no kernel can beat", "", _time(floor))
    return table


def _rows_table(rows: Sequence[Row]) -> Table:
    """What each rung or tile costs."""
    table = terminal.table("")
    table.add_column("rung", no_wrap=True)
    table.add_column("tile", no_wrap=True)
    for heading in (
        "asked",
        "FLOP/B",
        "loads",
        "blocks",
        "in C",
        "a SM",
        "warps",
        "waves",
        "busy",
        "time",
        "model's\nTFLOP/s",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        model, waves = row.model, row.model.waves
        table.add_row(
            row.name,
            _tile(row.tile),
            _bytes(model.requested_bytes),
            f"{row.intensity:.2f}",
            f"{row.shared_loads:.2f}" if row.shared_loads else "",
            f"{model.tiling.tiles:,}",
            f"{model.tiling.useful:.0%}",
            str(model.occupancy.blocks),
            f"{model.occupancy.fraction:.0%}",
            f"{waves.exact:.2f}" if waves else "",
            f"{waves.efficiency:.0%}" if waves else "",
            _time(model.seconds),
            f"{row.tflops:.1f}",
        )
    return table


def _tile(tile: Tile | None) -> str:
    """The block tile and the thread tile."""
    return f"{tile.BM}x{tile.BN}x{tile.BK} {tile.TM}x{tile.TN}" if tile else "1x1"


def _time(seconds: float) -> str:
    """A time in a unit in which it can be read."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.1 * size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def _bytes(count: int) -> str:
    """Bytes in a unit in which they can be read."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _versions() -> dict[str, str]:
    """What was installed when a record was written."""
    return {
        "python": platform.python_version(),
        "numba-gemm": __version__,
        **{name: version(name) for name in ("numba", "numba-cuda", "numpy")},
    }


def _record(problem: Problem, gpu: Gpu, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that the tables show."""
    return {
        "problem": {name: getattr(problem, name) for name in "MNK"},
        "gpu": {
            "name": gpu.name,
            "multiprocessors": gpu.multiprocessors,
            "fp32_peak_flops_per_second": gpu.fp32_peak,
            "memory_bytes_per_second": gpu.memory_bandwidth,
            "source": gpu.source,
        },
        "floor_seconds": prediction.floor_seconds(problem, gpu),
        "modelled": [
            {
                "name": row.name,
                "tile": asdict(row.tile) if row.tile else None,
                "requested_bytes": row.model.requested_bytes,
                "flop_per_byte": row.intensity,
                "shared_loads": row.shared_loads,
                "blocks": row.model.tiling.tiles,
                "useful": row.model.tiling.useful,
                "blocks_per_multiprocessor": row.model.occupancy.blocks,
                "occupancy": row.model.occupancy.fraction,
                "waves": row.model.waves.exact if row.model.waves else None,
                "seconds": row.model.seconds if row.model.waves else None,
            }
            for row in rows
        ],
        "versions": _versions(),
    }


# Pictures -----------------------------------------------------------------------------------------


def _draw(picture: str, problem: Problem, gpu: Gpu, rows: Sequence[Row], measured: Measured) -> Figure:
    """The picture of that name, with what was measured where that belongs on it."""
    from . import plots

    largest = rows[-1].tile or Tile(32, 32, 32)
    if picture == "roofline":
        return plots.roofline(gpu, {row.name: row.intensity for row in rows}, measured.speeds)
    if picture == "ladder":
        return plots.ladder(
            {row.name: row.ceiling / 1e12 for row in rows},
            measured.speeds,
            peak=gpu.fp32_peak / 1e12,
            cublas=measured.cublas,
            title=f"{gpu.name}, {problem.M} x {problem.N} x {problem.K}, float32",
        )
    if picture == "tiles":
        tiles = sorted({(row.tile.BM, row.tile.BN) for row in rows if row.tile})
        return plots.tile_quantization(range(16, 1025), tiles[-4:])
    if picture == "waves":
        if measured.waves:
            return _draw_waves(measured.waves)
        shown = [row for row in rows if row.name in ("square", "async_copy", "tile")]
        return plots.waves(
            [
                plots.Waves(
                    f"{row.name}, {_tile(row.tile)}", gpu.multiprocessors, row.model.occupancy.blocks
                )
                for row in shown
            ]
        )
    if picture == "tilings":
        reasons = hierarchy.why_not_exact(largest)
        if reasons:
            raise InputError(f"--picture tilings: {'; '.join(reasons)}")
        return plots.tilings(largest, split=largest.TM % 4 == largest.TN % 4 == 0)
    vector = largest.BK % 4 == 0 and largest.BK * largest.BM >= 4 * 32
    if not vector:
        raise InputError("--picture banks: BK should be a multiple of 4 and A's chunk have 128 floats")
    return plots.banks(
        [
            ("storing A, before padding", banks.store_a(largest), largest.BM),
            ("storing A, after padding", banks.store_a(largest, 4), largest.BM + 4),
        ]
    )


def _draw_waves(measured: Sequence[_Series | Series]) -> Figure:
    """The series of ``--measure-waves`` beside the models."""
    from . import plots

    return plots.waves([plots.Waves(*wave_points(series)) for series in measured])


def _save(figure: Figure, path: Path) -> None:
    """Write a picture whole or not at all."""
    from . import plots

    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f"picture{path.suffix}"
        plots.save(figure, part)
        files.replace(path, part.read_bytes())
    print(f"numba-gemm: wrote {path}", file=sys.stderr)


# Waves --------------------------------------------------------------------------------------------


def _measure_waves(options: argparse.Namespace, output: Path | None, picture: Path | None) -> int:
    """Measure, print, save."""
    for name in ("tile", "gpu", "registers", "measured"):
        if getattr(options, name):
            raise InputError(f"--{name} does not go with --measure-waves")
    if options.picture not in (None, "waves"):
        raise InputError(f"--picture {options.picture} does not go with --measure-waves")
    try:
        from .target import TARGET
    except RuntimeError as error:
        raise InputError(str(error)) from error
    if not TARGET.is_gpu:
        raise InputError(f"--measure-waves needs a GPU, but {TARGET.reason}")
    from . import device, waves

    gpu = device.current()
    assert gpu
    seed = int.from_bytes(os.urandom(4), "little")
    with terminal.progress(Console(stderr=True)) as progress:
        task = progress.add_task("launches", total=None)
        measured = waves.measure_all(seed, lambda: progress.update(task, advance=1))
    record: dict[str, Any] = {
        "device": gpu.name,
        "seed": seed,
        "waves": [series.as_dict() for series in measured],
        "versions": _versions(),
    }
    if output:
        terminal.write_json(output, record)
    if picture:
        _save(_draw_waves(measured), picture)
    console = terminal.stdout()
    terminal.show(console, _waves_table(gpu.name, measured))
    for series in measured:
        cliff = series.cliff()
        console.print(
            f"{series.label}: {series.slots + 1} blocks take {cliff['measured']:.2f} times as long as "
            f"{series.slots}; whole waves: {cliff['whole_waves']:.2f}, "
            f"the busiest multiprocessor: {cliff['busiest']:.2f}",
            highlight=False,
        )
    return 0


def _waves_table(name: str, measured: Sequence[Series]) -> Table:
    """Every launch, beside the two models, in full waves."""
    table = terminal.table(f"Waves of blocks, K = {measured[0].K}, float32\n{name}")
    table.add_column("rung", no_wrap=True)
    for heading in ("blocks", "waves", "time", "spread", "in full waves", "whole waves", "busiest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for series in measured:
        per, full = series.blocks_per_multiprocessor, series.seconds(series.slots)
        for point in series.points:
            table.add_row(
                series.label,
                str(point.blocks),
                f"{point.blocks / series.slots:.2f}",
                _time(point.seconds),
                f"{point.spread:.1%}",
                f"{point.seconds / full:.2f}",
                f"{quantization.wave_rounds(point.blocks, series.multiprocessors, per) / per:.2f}",
                f"{quantization.busiest(point.blocks, series.multiprocessors) / per:.2f}",
            )
        table.add_section()
    return table
