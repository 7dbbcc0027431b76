"""A picture of a search: every candidate, by the place that the model gave it and the speed it had.

``python -m numba_gemm.search.plot tune.json picture.png`` draws it from what ``numba-gemm tune --json``
wrote.  If the model knew, the points would lie on its curve.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["draw"]

# Okabe and Ito's colours, which the colour-blind can tell apart; shapes and lines differ as well.
BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"
PANELS_ACROSS = 4

UNREADABLE = LookupError, TypeError, ValueError, ArithmeticError, RecursionError
"""What a file of another kind, or a damaged one, ends in."""


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw the searches in *record*, as ``--json`` writes it, one panel a shape, to *path*.

    The ending of *path* says what it becomes: ``.png``, ``.svg`` or whatever else matplotlib writes.
    Raises ImportError without matplotlib, ValueError where nothing was timed or matplotlib does not know
    the ending.
    """
    from matplotlib.figure import Figure

    shapes = [entry for entry in record["shapes"] if entry["standings"]]
    if not shapes:
        raise ValueError("nothing was timed, so there is nothing to draw")
    across = min(PANELS_ACROSS, len(shapes))
    down = math.ceil(len(shapes) / across)
    size = (8, 5) if len(shapes) == 1 else (4 * across, 3 * down)
    figure = Figure(figsize=size, layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for number, (panel, entry) in enumerate(zip(panels, shapes, strict=False)):
        _panel(panel, entry, alone=len(shapes) == 1)
        if number + across >= len(shapes):
            panel.set_xlabel("place that the model gave it, 1 = fastest")
        if number % across == 0:
            panel.set_ylabel("TFLOP/s")
    for panel in panels[len(shapes) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2 if len(shapes) == 1 else 4, fontsize="small"
    )
    figure.suptitle(f"{record['what']}: every candidate on one {record['device']}")
    figure.savefig(path, dpi=150)


def _panel(panel: Any, entry: Mapping[str, Any], alone: bool) -> None:
    """One shape: points for candidates, lines for the model and cuBLAS."""
    flop = 2 * math.prod(entry["shape"]) / 1e12
    candidates = len(entry["standings"]) + entry["left_out"] + len(entry["failures"])
    standings = sorted(entry["standings"], key=lambda standing: standing["predicted_rank"])
    places = [standing["predicted_rank"] for standing in standings]
    speeds = [flop / standing["seconds"] for standing in standings]
    expected = [flop / s["predicted_seconds"] if s["predicted_seconds"] else 0.0 for s in standings]
    top = max(speeds + expected)
    panel.plot(places, expected, color=BLACK, linewidth=1, linestyle=":", label="what the model expects")
    panel.scatter(places, speeds, s=16 if alone else 8, color=BLUE, alpha=0.7, label="candidate")
    if entry["cublas"]:
        vendor = flop / entry["cublas"]
        top = max(top, vendor)
        panel.axhline(vendor, color=GREEN, linewidth=1.2, linestyle="--", label="cuBLAS")
    winner = entry["winner"]
    for place, speed, standing in zip(places, speeds, standings, strict=True):
        if winner and {name: standing[name] for name in winner} == winner:
            label = "fastest"
            if alone:
                label += f": {standing['name']}, {speed:.1f} TFLOP/s, at place {place} of {candidates}"
            panel.scatter([place], [speed], s=90, marker="*", color=ORANGE, zorder=3, label=label)
    panel.set_ylim(0, 1.05 * top)
    panel.set_title(" x ".join(map(str, entry["shape"])), fontsize="medium")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def main(arguments: list[str]) -> int:
    """Draw from a file to another; the exit status."""
    if len(arguments) != 2:
        print("usage: python -m numba_gemm.search.plot TUNE.json PICTURE", file=sys.stderr)
        return 2
    try:
        draw(json.loads(Path(arguments[0]).read_text(encoding="utf-8")), Path(arguments[1]))
    except (OSError, ImportError, *UNREADABLE) as error:
        print(f"{arguments[0]}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
