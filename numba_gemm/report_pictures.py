"""The pictures of a report, as SVG: the same figures give the same file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from .model import published
from .report import CUBLAS, SIZE, Run, names_in_order, ratios

__all__ = ["draw"]

HERE, A6000, A100 = "#3b6fb6", "#c98a3d", "#8a8a8a"


def draw(run: Run) -> dict[str, str]:
    """The SVG of every picture that the run has figures for, by name.

    Raises ImportError without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"pictures need matplotlib ({error}); install numba-gemm[plot]") from error

    pictures = {}
    for name, paint in PAINTERS.items():
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        with matplotlib.rc_context({"svg.hashsalt": "numba-gemm", "svg.fonttype": "path"}):
            if not paint(figure.add_subplot(), run):
                continue
            file = io.StringIO()
            metadata = {"Date": None, "Creator": None, "Description": f"figures {run.digest}"}
            figure.savefig(file, format="svg", metadata=metadata)
        pictures[name] = "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    return pictures


def _ladder(axes: Any, run: Run) -> bool:
    """Share of cuBLAS of every rung: here, and where it was published."""
    here = run.of("ladder", (SIZE, SIZE, SIZE))
    if CUBLAS not in here:
        return False
    names = [name for name in names_in_order(run, "ladder") if name in here and name != CUBLAS]
    gpu = run.environment["device"]
    series = [
        (f"here, {gpu}, {SIZE}", HERE, {n: here[n].tflops / here[CUBLAS].tflops for n in names}),
        ("Boehm, RTX A6000, 4092", A6000, _shares(published.A6000_GFLOPS)),
        (
            "Worklog I, A100, 4096",
            A100,
            _shares({name: 1 / took for name, took in published.A100_SECONDS.items()}),
        ),
    ]
    width = 0.27
    for i, (label, color, shares) in enumerate(series):
        places = [x + (i - 1) * width for x, name in enumerate(names) if name in shares]
        heights = [100 * shares[name] for name in names if name in shares]
        bars = axes.bar(places, heights, width, label=label, color=color)
        if i == 0:
            for label in axes.bar_label(bars, fmt="%.0f", fontsize=8):
                label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    axes.axhline(100, color="black", linewidth=0.8, zorder=0.5)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylabel("% of cuBLAS on the same card")
    axes.legend(frameon=False)
    return True


def _shares(speeds: dict[str, float]) -> dict[str, float]:
    return {name: speed / speeds[CUBLAS] for name, speed in speeds.items() if name != CUBLAS}


def _suite(axes: Any, run: Run) -> bool:
    """Ratio to cuBLAS at every shape."""
    pairs = ratios(run)
    if not pairs:
        return False
    each = [vendor.seconds / ours.seconds for ours, vendor in pairs]
    axes.bar(range(len(each)), each, color=HERE)
    axes.axhline(1, color="black", linewidth=0.8)
    labels = ["x".join(map(str, ours.shape)) for ours, _ in pairs]
    axes.set_xticks(range(len(each)), labels, rotation=60, ha="right", fontsize=8)
    axes.set_ylabel("speed relative to cuBLAS")
    return True


def _energy(axes: Any, run: Run) -> bool:
    """GFLOP per joule of every rung."""
    measured = run.of("ladder", (SIZE, SIZE, SIZE))
    found = {
        name: measured[name].more["gflop_per_joule"]
        for name in names_in_order(run, "ladder")
        if name in measured and "gflop_per_joule" in measured[name].more
    }
    if not found:
        return False
    axes.bar_label(axes.bar(range(len(found)), list(found.values()), color=HERE), fmt="%.3g", fontsize=8)
    axes.set_xticks(range(len(found)), list(found), rotation=30, ha="right")
    axes.set_ylabel(f"GFLOP/J at {SIZE} x {SIZE} x {SIZE}")
    return True


PAINTERS: dict[str, Callable[[Any, Run], bool]] = {
    "ladder": _ladder,
    "suite": _suite,
    "energy": _energy,
}
