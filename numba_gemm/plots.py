"""The pictures: rooflines, ladders, quantization, waves, tilings and banks, modelled or measured.

Each function takes data and returns a figure; :func:`save` writes one as PNG or SVG.  What was measured
comes as plain arguments, and where there is none the picture shows the model alone.  Colours are those
of Okabe and Ito, which people with any colour vision can tell apart, and nothing is told by colour
only: measured is filled, modelled is hollow or a line.

Needs matplotlib, which the extra ``plot`` brings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle

from .model import hierarchy, quantization
from .model.banks import BANKS, PIECE, WORD_BYTES, Access
from .model.roofline import FLOAT32_BYTES, attainable, ridge_point
from .model.traffic import SECTOR_BYTES, transactions

if TYPE_CHECKING:
    from .model.devices import Gpu
    from .tile import Tile

__all__ = [
    "FORMATS",
    "Span",
    "Waves",
    "banks",
    "bars",
    "ladder",
    "operands",
    "roofline",
    "save",
    "schedule",
    "sectors",
    "tile_quantization",
    "tilings",
    "waves",
]

FORMATS = (".png", ".svg")
DPI = 150

BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00",
)  # fmt: skip
GREY, PALE = "#777777", "#e6e6e6"

STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "numba-gemm",  # the same picture is the same file
    "svg.fonttype": "none",
}


def save(figure: Figure, path: str | Path) -> None:
    """Write *figure* to *path*, as PNG or SVG by its suffix; ValueError for any other."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path} ends in {path.suffix!r}; it should end in {' or '.join(FORMATS)}")
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    with mpl.rc_context(STYLE):
        figure.savefig(path, dpi=DPI, metadata=metadata)


def _figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that fits its parts without overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def _spread(wanted: Sequence[float], apart: float) -> list[float]:
    """Positions as near to *wanted* as possible, in the same order and *apart* at least.

    Those that are too near form a cluster, which is centred on the mean of what its members want.
    """
    order = np.argsort(wanted, kind="stable")
    clusters: list[tuple[float, list[int]]] = []  # where it begins, and who is in it
    for place in order:
        begin, members = float(wanted[place]), [int(place)]
        while clusters and clusters[-1][0] + apart * len(clusters[-1][1]) > begin:
            members = clusters.pop()[1] + members
            centre = float(np.mean([wanted[member] for member in members]))
            begin = centre - apart * (len(members) - 1) / 2
        clusters.append((begin, members))
    positions = [0.0] * len(wanted)
    for begin, members in clusters:
        for number, member in enumerate(members):
            positions[member] = begin + apart * number
    return positions


# The roofline ---------------------------------------------------------------------------------------


def roofline(
    gpu: Gpu, intensities: Mapping[str, float], measured: Mapping[str, float] | None = None
) -> Figure:
    """The ceilings of *gpu*, and every rung at its intensity.

    *intensities* are in FLOP per byte asked of global memory, *measured* in TFLOP/s; a rung that was not
    measured stands, hollow, at the speed that the roofline allows it.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(8, 4.8)
        axes = figure.add_subplot()
        peak, bandwidth = gpu.fp32_peak, gpu.memory_bandwidth
        ridge = ridge_point(peak, bandwidth)
        reach = [*intensities.values(), ridge]
        left, right = min(reach) / 2, max(reach) * 4
        x = np.geomspace(left, right, 200)
        axes.plot(x, [attainable(i, peak, bandwidth) / 1e12 for i in x], color=BLACK, linewidth=2)
        axes.axvline(ridge, color=GREY, linewidth=1, linestyle=":")

        speeds = measured or {}
        points = []
        for name, intensity in intensities.items():
            speed = speeds.get(name)
            height = attainable(intensity, peak, bandwidth) / 1e12 if speed is None else speed
            points.append((name, intensity, height, speed is not None))
        lowest = min([height for _, _, height, _ in points] + [attainable(left, peak, bandwidth) / 1e12])
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(left, right),
            ylim=(lowest / 2, peak / 1e12 * 2),
            xlabel="arithmetic intensity, FLOP per byte asked of global memory",
            ylabel="TFLOP/s",
            title=f"Roofline of {gpu.name}, float32",
        )
        axes.grid(which="major", color=PALE)
        axes.text(ridge * 1.08, peak / 1e12 * 1.12, f"arithmetic, {peak / 1e12:.3g} TFLOP/s", fontsize=9)
        middle = np.sqrt(left * ridge)  # of the slope, where few rungs are
        above = 1.12 * attainable(middle, peak, bandwidth) / 1e12
        axes.text(
            middle,
            above,
            f"memory, {bandwidth / 1e12:.3g} TB/s",
            fontsize=9,
            rotation=np.degrees(np.arctan2(above, middle)),  # along the roof
            rotation_mode="anchor",
            transform_rotates_text=True,
        )
        axes.text(
            ridge / 1.06,
            lowest / 2 * 1.1,
            f"ridge point,\n{ridge:.1f} FLOP/byte",
            ha="right",
            va="bottom",
            fontsize=9,
            color=GREY,
        )

        for _, intensity, height, filled in points:
            axes.plot(
                intensity,
                height,
                marker="o" if filled else "s",
                markersize=6,
                color=BLUE,
                markerfacecolor=BLUE if filled else "white",
                linestyle="none",
                zorder=3,
            )
        # Names beside their points where there is room, else in a column at the right, under the roof.
        beside = _labels([point for point in points if point[1] < ridge / 3])
        column = [label for point in points if point[1] >= ridge / 3 for label in _labels([point])]
        for text, intensity, height in beside:
            axes.annotate(
                text,
                (intensity, height),
                xytext=(8, -2),
                textcoords="offset points",
                va="center_baseline",
                fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
            )
        low_log, high_log = np.log10(axes.get_ylim())
        roof = (np.log10(peak / 1e12) - low_log) / (high_log - low_log)
        wanted = [(np.log10(height) - low_log) / (high_log - low_log) for _, _, height in column]
        places = _spread(wanted, 0.062)
        over = max(0.0, max(places, default=0.0) - roof + 0.02)
        for (text, intensity, height), place in zip(column, places, strict=True):
            axes.annotate(
                text,
                (intensity, height),
                xytext=(1.03, place - over),
                textcoords="axes fraction",
                va="center",
                fontsize=9,
                arrowprops={
                    "arrowstyle": "-",
                    "color": GREY,
                    "linewidth": 0.6,
                    "shrinkB": 3,
                    "relpos": (0, 0.5),
                },
                annotation_clip=False,
            )
        _key(axes, filled=bool(speeds), hollow=len(speeds) < len(intensities))
    return figure


def _labels(points: Sequence[tuple[str, float, float, bool]]) -> list[tuple[str, float, float]]:
    """One label for each place on the roofline: the names there, and the speed that was measured."""
    together: dict[tuple[float, float, bool], list[str]] = {}
    for name, intensity, height, filled in points:
        together.setdefault((intensity, height, filled), []).append(name)
    return [
        (", ".join(names) + (f"  {height:.3g}" if filled else ""), intensity, height)
        for (intensity, height, filled), names in together.items()
    ]


def _key(axes: Axes, *, filled: bool, hollow: bool) -> None:
    """Say what filled and hollow markers are, of those that are there."""
    if filled:
        axes.plot([], [], "o", color=BLUE, label="measured, TFLOP/s")
    if hollow:
        axes.plot(
            [], [], "s", color=BLUE, markerfacecolor="white", label="ceiling for what it asks of memory"
        )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)


# The ladder -----------------------------------------------------------------------------------------


def ladder(
    ceilings: Mapping[str, float],
    measured: Mapping[str, float] | None = None,
    *,
    peak: float | None = None,
    cublas: float | None = None,
    title: str = "The ladder",
) -> Figure:
    """The rungs as bars beside cuBLAS and the peak, all in TFLOP/s.

    *ceilings* are what the roofline allows each rung, drawn hollow; *measured* bars are filled.
    """
    with mpl.rc_context(STYLE):
        speeds = measured or {}
        names = list(ceilings)
        figure = _figure(8, 0.9 + 0.34 * (len(names) + 1))
        axes = figure.add_subplot()
        y = np.arange(len(names))
        axes.barh(
            y,
            [ceilings[name] for name in names],
            height=0.72,
            facecolor="none",
            edgecolor=GREY,
            linewidth=0.8,
            label="ceiling for what it asks of memory",
        )
        known = [name for name in names if name in speeds]
        if known:
            axes.barh(
                [names.index(name) for name in known],
                [speeds[name] for name in known],
                height=0.5,
                color=BLUE,
                label="measured",
            )
        most = max([*ceilings.values(), *speeds.values(), peak or 0, cublas or 0])
        for place, name in enumerate(names):
            shown = speeds.get(name, ceilings[name])
            axes.text(
                shown + 0.01 * most,
                place,
                f"{shown:.3g}",
                va="center_baseline",
                fontsize=9,
                zorder=4,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )
        for value, name, style in ((cublas, "cuBLAS", "--"), (peak, "peak", "-")):
            if value:
                axes.axvline(
                    value, color=VERMILION, linestyle=style, linewidth=1.5, label=f"{name}, {value:.3g}"
                )
        axes.set(
            yticks=y,
            yticklabels=names,
            ylim=(len(names) - 0.5, -0.5),
            xlim=(0, most * 1.09),
            xlabel="TFLOP/s",
            title=title,
        )
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.11), ncols=4)
    return figure


# Quantization ---------------------------------------------------------------------------------------


def tile_quantization(
    sizes: Sequence[int],
    tiles: Sequence[tuple[int, int]],
    measured: Mapping[str, float] | Mapping[int, float] | None = None,
) -> Figure:
    """How much of what tiles of BM x BN compute is part of a square C of N x N, over N.

    *measured*, by N, is a speed as a fraction of the best, drawn as points.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(8, 4)
        axes = figure.add_subplot()
        styles = [(BLUE, "-"), (VERMILION, "--"), (BLACK, ":"), (GREEN, "-.")]
        for number, (BM, BN) in enumerate(tiles):
            colour, style = styles[number % len(styles)]
            useful = [100 * quantization.tiling(N, N, BM, BN).useful for N in sizes]
            axes.plot(sizes, useful, color=colour, linestyle=style, linewidth=1.5, label=f"{BM} x {BN}")
        if measured:
            axes.plot(
                [int(N) for N in measured],
                [100 * share for share in measured.values()],
                "o",
                color=BLACK,
                markersize=4,
                label="measured, % of the best",
            )
        axes.set(
            xlabel="N, rows and columns of C",
            ylabel="entries of C among those computed, %",
            ylim=(0, 102),
            xlim=(min(sizes), max(sizes)),
            title="Tile quantization: an answer is rounded up to whole tiles",
        )
        axes.grid(color=PALE)
        axes.legend(title="tile", loc="lower right")
    return figure


@dataclass(frozen=True)
class Waves:
    """One tile's launches: how many blocks share a device, and how long launches took.

    *measured* has seconds by number of blocks; it is empty for the model alone.
    """

    label: str
    multiprocessors: int
    blocks_per_multiprocessor: int
    measured: Mapping[int, float] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Blocks in a wave."""
        return self.multiprocessors * self.blocks_per_multiprocessor

    def unit(self) -> float:
        """Measured seconds that one full wave took, or the launch nearest to one."""
        nearest = min(self.measured, key=lambda blocks: abs(blocks - self.slots))
        return self.measured[nearest] / (nearest / self.slots if nearest > self.slots else 1)


def waves(series: Sequence[Waves]) -> Figure:
    """Time over the number of blocks, in full waves: the models' two curves and what was measured.

    See :mod:`numba_gemm.model.quantization` for where each curve is pessimistic.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(4.2 * len(series) + 0.6, 4.4)
        shared = None
        for one in series:
            axes = figure.add_subplot(1, len(series), series.index(one) + 1, sharey=shared)
            shared = shared or axes
            most = max([*one.measured, 3 * one.slots])
            blocks = range(1, most + 1)
            per = one.blocks_per_multiprocessor
            full = [quantization.wave_rounds(n, one.multiprocessors, per) / per for n in blocks]
            even = [quantization.busiest(n, one.multiprocessors) / per for n in blocks]
            axes.step(blocks, full, where="mid", color=BLACK, linewidth=1.5, label="whole waves")
            if per > 1:
                axes.step(
                    blocks,
                    even,
                    where="mid",
                    color=VERMILION,
                    linestyle="--",
                    linewidth=1.5,
                    label="the busiest multiprocessor",
                )
            if one.measured:
                unit = one.unit()
                axes.plot(
                    list(one.measured),
                    [seconds / unit for seconds in one.measured.values()],
                    "o",
                    color=BLUE,
                    markersize=5,
                    label="measured",
                )
            for wave in range(1, most // one.slots + 1):
                axes.axvline(wave * one.slots, color=GREY, linewidth=0.8, linestyle=":")
            axes.set(
                xlabel="blocks in the launch",
                title=f"{one.label}\n{one.multiprocessors} x {per} = {one.slots} blocks a wave",
                xlim=(0, most * 1.02),
                ylim=(0, None),
            )
            axes.grid(axis="y", color=PALE)
            if one is series[0]:
                axes.set_ylabel("time, in full waves")
            axes.legend(loc="upper left")
    return figure


# Tilings --------------------------------------------------------------------------------------------


def tilings(tile: Tile, *, warp: int | None = None, lane: int = 10, split: bool = False) -> Figure:
    """The block tile cut into warp tiles and a warp tile cut into thread tiles, one of each picked out.

    *warp* is the last of the first row where it is None, *split* as in
    :func:`numba_gemm.model.hierarchy.owners`.  Raises ValueError for a tile whose levels do not cover
    each other exactly, and for a warp or lane that it does not have.
    """
    levels = hierarchy.hierarchy(tile)
    assert tile.WM
    assert tile.WN
    down, across = levels.warps
    if warp is None:
        warp = across - 1
    for name, value, count in (("warp", warp, levels.threads // 32), ("lane", lane, 32)):
        if not 0 <= value < count:
            raise ValueError(f"{name} is {value}; it should be from 0 to {count - 1}")
    lanes_down, lanes_across = levels.lanes
    warp_row, warp_col = warp // across * tile.WM, warp % across * tile.WN
    with mpl.rc_context(STYLE):
        shapes = [tile.BN / tile.BM, tile.BN / tile.BM, tile.WN / tile.WM]  # so that all are as high
        figure = _figure(10, 1.6 + 8.2 / sum(shapes))
        of_c, of_block, of_warp = figure.subplots(1, 3, width_ratios=shapes)
        # C: a few block tiles; a grid has as many as the matrix takes.
        _panel(of_c, 3 * tile.BM, 3 * tile.BN, tile.BM, tile.BN, "C: one block, one block tile")
        _pick(of_c, tile.BM, 2 * tile.BN, tile.BM, tile.BN, ORANGE)
        of_c.set_ylabel("rows")
        _panel(of_block, tile.BM, tile.BN, tile.WM, tile.WN, f"block tile: {down} x {across} warps")
        for number in range(down * across):
            row, col = number // across * tile.WM, number % across * tile.WN
            if number != warp:
                of_block.text(
                    col + tile.WN / 2,
                    row + tile.WM / 2,
                    f"warp {number}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=GREY,
                )
        _pick(of_block, warp_row, warp_col, tile.WM, tile.WN, SKY, f"warp {warp}")

        piece_m, piece_n = (PIECE, PIECE) if split else (tile.TM, tile.TN)
        what = f"warp tile: {lanes_down} x {lanes_across} lanes"
        _panel(of_warp, tile.WM, tile.WN, piece_m, piece_n, what)
        of_warp.yaxis.tick_right()  # out of the way of the lines from the block tile
        step_m, step_n = piece_m * lanes_down, piece_n * lanes_across
        row0, col0 = lane // lanes_across * piece_m, lane % lanes_across * piece_n
        corners = [(r, c) for r in range(row0, tile.WM, step_m) for c in range(col0, tile.WN, step_n)]
        for row, col in corners:
            _pick(of_warp, row, col, piece_m, piece_n, VERMILION)
        of_warp.set_xlabel(
            f"columns\nfilled: lane {lane},\n{tile.TM} x {tile.TN} entries"
            + (f"\nin {len(corners)} pieces" if len(corners) > 1 else "")
        )
        for of, to, row, col, height, width, below in (
            (of_c, of_block, tile.BM, 2 * tile.BN, tile.BM, tile.BN, tile.BM),
            (of_block, of_warp, warp_row, warp_col, tile.WM, tile.WN, tile.WM),
        ):
            for edge, end in ((row, 0), (row + height, below)):
                figure.add_artist(
                    ConnectionPatch(
                        (col + width, edge),
                        (0, end),
                        "data",
                        axesA=of,
                        axesB=to,
                        color=GREY,
                        linewidth=0.8,
                        zorder=0,
                    )
                )
    return figure


def _panel(axes: Axes, rows: int, cols: int, step_m: int, step_n: int, title: str) -> None:
    """A matrix of rows x cols, cut every *step_m* rows and *step_n* columns."""
    axes.set(xlim=(0, cols), ylim=(rows, 0), aspect="equal", title=title)
    axes.set_xlabel("columns")
    marks_m, marks_n = range(0, rows + 1, step_m), range(0, cols + 1, step_n)
    for row in marks_m:
        axes.axhline(row, color=GREY, linewidth=0.7)
    for col in marks_n:
        axes.axvline(col, color=GREY, linewidth=0.7)
    axes.set_yticks(marks_m[:: max(1, len(marks_m) // 4)])
    axes.set_xticks(marks_n[:: max(1, len(marks_n) // 4)])


def _pick(axes: Axes, row: int, col: int, height: int, width: int, colour: str, label: str = "") -> None:
    """Fill one tile and name it."""
    axes.add_patch(
        Rectangle((col, row), width, height, facecolor=colour, edgecolor=BLACK, linewidth=1.2)
    )
    axes.text(col + width / 2, row + height / 2, label, ha="center", va="center", fontsize=9)


# Banks ----------------------------------------------------------------------------------------------


def banks(cases: Sequence[tuple[str, Access, int]]) -> Figure:
    """Which bank serves which row of a shared array, and how many words each has to serve.

    Each case is a title, a warp's access, and how many floats a row of the array is from the next; for
    example a layout before and after it is padded.  Below each array are the words that a bank serves
    in all; more than one is a conflict, for an access of four bytes.
    """
    with mpl.rc_context(STYLE):
        counts = [_by_row(access, row_floats) for _, access, row_floats in cases]
        heights = [part for count in counts for part in (len(count), 1.0)]
        figure = _figure(8.4, 0.34 * sum(heights) + 1.15 * len(cases))
        most = max(2, *(int(count.sum(axis=0).max()) for count in counts))
        grid = figure.add_gridspec(2 * len(cases), 1, height_ratios=heights)
        shades = mpl.colormaps["Blues"].resampled(most + 1)
        for number, ((title, access, row_floats), count) in enumerate(zip(cases, counts, strict=True)):
            above = figure.add_subplot(grid[2 * number])
            below = figure.add_subplot(grid[2 * number + 1], sharex=above)
            for axes, values, named in ((above, count, ""), (below, count.sum(axis=0)[None], "in all")):
                image = axes.imshow(
                    values, cmap=shades, vmin=-0.5, vmax=most + 0.5, aspect="auto", interpolation="none"
                )
                axes.set_xticks(np.arange(-0.5, BANKS), minor=True)
                axes.set_yticks(np.arange(-0.5, len(values)), minor=True)
                axes.grid(which="minor", color=PALE, linewidth=0.8)
                axes.tick_params(which="both", length=0)
                axes.spines[:].set_visible(False)
                for row, bank in zip(*np.nonzero(values), strict=True):
                    value = int(values[row, bank])
                    dark = value > most * 0.6
                    axes.text(
                        bank,
                        row,
                        str(value),
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="white" if dark else BLACK,
                    )
                if named:
                    axes.set_yticks([0], [named])
            above.set_ylabel("row of the array")
            above.tick_params(labelbottom=False)
            above.set_title(
                f"{title}: rows of {row_floats} floats, {access.wavefronts} "
                f"wavefront{'s' if access.wavefronts > 1 else ''}",
                loc="left",
            )
            below.set_xticks(range(0, BANKS, 4))
            if number == len(cases) - 1:
                below.set_xlabel("bank of shared memory")
        colours = figure.colorbar(image, ax=figure.axes, ticks=range(most + 1), pad=0.01)
        colours.set_label("different words wanted of a bank")
    return figure


def _by_row(access: Access, row_floats: int) -> np.ndarray:
    """Different words wanted, by row of the array and bank."""
    lanes = access.addresses[access.addresses >= 0]
    words = np.unique((lanes[:, None] + np.arange(0, access.width, WORD_BYTES)) // WORD_BYTES)
    rows = words // row_floats
    counts = np.zeros((int(rows.max(initial=0)) + 1, BANKS), dtype=np.int64)
    np.add.at(counts, (rows, words % BANKS), 1)
    return counts


# What a worker reads --------------------------------------------------------------------------------


def operands(
    size: int,
    tile: tuple[int, int],
    corner: tuple[int, int] = (0, 0),
    chunk: tuple[int, int] | None = None,
    part: tuple[int, int] | None = None,
) -> Figure:
    """A, B and C, all *size* x *size*, and what is read for one *tile* of C, rows x columns.

    The tile's upper left entry is *corner*.  *chunk* is (first k, how many): what of it is held at a
    time, drawn filled.  *part* is what one thread computes of the tile, of so many rows and columns.
    """
    (rows, cols), (row, col) = tile, corner
    with mpl.rc_context(STYLE):
        figure = _figure(8, 3.1)
        of_a, of_b, of_c = figure.subplots(1, 3)
        panels = ((of_a, "A", "k", "rows"), (of_b, "B", "columns", "k"), (of_c, "C", "columns", "rows"))
        for axes, name, along, down in panels:
            axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", title=name)
            axes.set(xlabel=along, ylabel=down)
            ticks = np.arange(0, size + 1)
            axes.set_xticks(ticks[:: max(1, size // 4)])
            axes.set_yticks(ticks[:: max(1, size // 4)])
            axes.spines[:].set_visible(True)
            if size <= 32:
                axes.set_xticks(ticks, minor=True)
                axes.set_yticks(ticks, minor=True)
                axes.grid(which="both", color=PALE, linewidth=0.6)
                axes.tick_params(which="minor", length=0)
        k0, depth = chunk or (0, size)
        for axes, y, x, height, width, colour in (
            (of_a, row, 0, rows, size, SKY),
            (of_b, 0, col, size, cols, ORANGE),
        ):
            axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, alpha=0.35))
        _pick(of_a, row, k0, rows, depth, SKY)
        _pick(of_b, k0, col, depth, cols, ORANGE)
        _pick(of_c, row, col, rows, cols, PALE if part else GREEN)
        if part:
            _pick(of_c, row, col, *part, GREEN)
            of_c.set_xlabel(f"columns\ngreen: one thread, {part[0]} x {part[1]}")
        of_a.set_xlabel(f"k\n{rows} x {depth} at a time" if chunk else f"k\n{rows} x {size}")
        of_b.set_xlabel(f"columns\n{depth} x {cols} at a time" if chunk else f"columns\n{size} x {cols}")
    return figure


def sectors(cases: Sequence[tuple[str, Sequence[int]]], rows: int, row_bytes: int) -> Figure:
    """Which sectors of 32 bytes the lanes of a warp touch by one instruction.

    Each case is a title and the lanes' byte addresses in a matrix of *rows* rows, *row_bytes* each.
    What a lane wants is drawn dark, what comes with it pale.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(8, 2.9)
        each = figure.subplots(1, len(cases), squeeze=False)[0]
        for axes, (title, addresses) in zip(each, cases, strict=True):
            count = transactions(addresses)
            for address in addresses:
                row, byte = divmod(address, row_bytes)
                start = byte // SECTOR_BYTES * SECTOR_BYTES
                axes.add_patch(
                    Rectangle((start, row), SECTOR_BYTES, 1, facecolor=PALE, edgecolor=GREY, lw=0.5)
                )
            for address in addresses:
                row, byte = divmod(address, row_bytes)
                axes.add_patch(Rectangle((byte, row), FLOAT32_BYTES, 1, facecolor=BLUE, lw=0))
            axes.set(
                xlim=(0, row_bytes),
                ylim=(rows, 0),
                xlabel="byte of the row",
                ylabel="row of the matrix",
                title=f"{title}\n{count} sector{'s' if count > 1 else ''} for {len(addresses)} lanes",
            )
            axes.set_xticks(range(0, row_bytes + 1, SECTOR_BYTES))
            axes.spines[:].set_visible(True)
    return figure


def bars(values: Mapping[str, float], label: str, title: str) -> Figure:
    """One bar for each of *values*, which *label* names, with its figure."""
    with mpl.rc_context(STYLE):
        figure = _figure(8, 0.9 + 0.34 * len(values))
        axes = figure.add_subplot()
        drawn = axes.barh(list(values), list(values.values()), height=0.6, color=BLUE)
        axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=9)
        axes.set(xlabel=label, title=title, ylim=(len(values) - 0.5, -0.5))
        axes.set_xlim(0, 1.1 * max(values.values()))
        axes.tick_params(axis="y", length=0)
    return figure


@dataclass(frozen=True)
class Span:
    """Something that takes from *start* to *start* + *length*, of one *kind*, with a *text* on it."""

    start: float
    length: float
    kind: str
    text: str = ""


def schedule(workers: Mapping[str, Sequence[Span]], unit: str, title: str) -> Figure:
    """Who does what when: one line for each of *workers*, time to the right in *unit*."""
    kinds = list(dict.fromkeys(span.kind for spans in workers.values() for span in spans))
    looks = [(SKY, ""), (ORANGE, "//"), (GREEN, ".."), (PALE, "xx"), (VERMILION, "--")]
    with mpl.rc_context(STYLE):
        figure = _figure(8, 1.4 + 0.42 * len(workers))
        axes = figure.add_subplot()
        for place, spans in enumerate(workers.values()):
            for span in spans:
                colour, hatch = looks[kinds.index(span.kind) % len(looks)]
                axes.barh(
                    place,
                    span.length,
                    left=span.start,
                    height=0.72,
                    facecolor=colour,
                    edgecolor=BLACK,
                    linewidth=0.7,
                    hatch=hatch if not span.text else "",
                )
                axes.text(
                    span.start + span.length / 2, place, span.text, ha="center", va="center", fontsize=8
                )
        key = [
            Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=BLACK)
            for _, (colour, _) in zip(kinds, looks * len(kinds), strict=False)
        ]
        end = max(span.start + span.length for spans in workers.values() for span in spans)
        axes.set(xlabel=unit, title=title, xlim=(0, end * 1.01), ylim=(len(workers) - 0.5, -0.5))
        axes.set_yticks(range(len(workers)), list(workers))
        axes.tick_params(axis="y", length=0)
        axes.legend(key, kinds, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
