"""The pictures: that they show what they are given, and can be saved."""

import numpy as np
import pytest

from numba_gemm import Tile
from numba_gemm.model import banks, devices, published, roofline

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from numba_gemm import plots

H200 = devices.named("H200")
INTENSITIES = {"naive": 0.25, "coalesced": 0.25, "tiled2d": 8.0, "square": 32.0, "padded": 32.0}
SPEEDS = {name: published.A6000_GFLOPS[name] / 1e3 for name in ("naive", "tiled2d", "square")}
CEILINGS = {
    name: roofline.attainable(i, H200.fp32_peak, H200.memory_bandwidth) / 1e12
    for name, i in INTENSITIES.items()
}
SALYKOVA = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=32, WN=64, stages=2)
WARPS = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=64, WN=32)
TIMES = {66: 1.1e-3, 132: 1.1e-3, 133: 2.0e-3, 264: 2.1e-3, 265: 3.1e-3}

FIGURES = {
    "roofline": lambda: plots.roofline(H200, INTENSITIES, SPEEDS),
    "roofline, model": lambda: plots.roofline(H200, INTENSITIES),
    "ladder": lambda: plots.ladder(CEILINGS, SPEEDS, peak=66.9, cublas=51.2),
    "ladder, model": lambda: plots.ladder(CEILINGS),
    "tiles": lambda: plots.tile_quantization(range(16, 600), [(64, 64), (128, 256)], {300: 0.6}),
    "waves": lambda: plots.waves([plots.Waves("a", 132, 1, TIMES), plots.Waves("b", 132, 2, TIMES)]),
    "waves, model": lambda: plots.waves([plots.Waves("a", 132, 4)]),
    "tilings": lambda: plots.tilings(SALYKOVA),
    "tilings, split": lambda: plots.tilings(SALYKOVA, warp=0, lane=31, split=True),
    "banks": lambda: plots.banks(
        [("before", banks.store_a(WARPS), 128), ("after", banks.store_a(WARPS, 4), 132)]
    ),
}


@pytest.fixture(scope="module", params=FIGURES, ids=lambda name: name)
def figure(request):
    """Each picture in turn, drawn."""
    figure = FIGURES[request.param]()
    FigureCanvasAgg(figure).draw()
    return figure


def words(figure):
    """Every text on a picture."""
    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]


def test_nothing_is_cut_off(figure):
    """All that is drawn lies inside the picture."""
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01


def test_axes_are_labelled(figure):
    """What is not said by the labels of ticks is said beside the axis."""
    axes = figure.axes[0]
    assert axes.get_title() or axes.get_title("left")
    assert any(axes.get_xlabel() for axes in figure.axes)
    assert any(axes.get_ylabel() for axes in figure.axes) or axes.get_yticklabels()


@pytest.mark.parametrize("names", [("roofline", "roofline, model"), ("ladder", "ladder, model")])
def test_every_rung_is_named(names):
    """Measured or not, and measured with its speed."""
    for name in names:
        shown = " ".join(text.get_text() for text in words(FIGURES[name]()))
        assert all(rung in shown for rung in INTENSITIES)
        assert ("16" in shown) == ("model" not in name)
        assert ("measured" in shown) == ("model" not in name)


def test_labels_of_the_roofline_do_not_overlap():
    """Eight rungs at one intensity, with speeds close together."""
    near = {f"rung{number}": 32.0 for number in range(8)}
    figure = plots.roofline(H200, near, {name: 38 + n / 10 for n, name in enumerate(near)})
    FigureCanvasAgg(figure).draw()
    labels = [text for text in words(figure) if text.get_text().startswith("rung")]
    boxes = [Text.get_window_extent(label) for label in labels]  # without the line to its point
    assert len(boxes) == 8
    for n, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:n])


def test_labels_are_spread():
    """Apart by what is asked, in their order, and where they want to be if there is room."""
    assert plots._spread([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    assert plots._spread([0.5, 0.5, 0.5], 0.2) == pytest.approx([0.3, 0.5, 0.7])
    wanted = list(np.random.default_rng(1).random(20))
    places = plots._spread(wanted, 0.1)
    assert np.argsort(places).tolist() == np.argsort(wanted).tolist()
    assert np.all(np.diff(sorted(places)) >= 0.1 - 1e-9)
    assert plots._spread([], 0.1) == []


def test_the_points_of_the_waves():
    """Measured times stand in units of the full wave, beside both models."""
    axes = FIGURES["waves"]().axes[1]
    lines = {line.get_label(): line for line in axes.get_lines()}
    measured = lines["measured"]
    assert list(measured.get_xdata()) == list(TIMES)
    assert measured.get_ydata()[3] == 1  # 264 blocks, two a multiprocessor
    whole, busiest = lines["whole waves"], lines["the busiest multiprocessor"]
    at = list(whole.get_xdata()).index(265)
    assert (whole.get_ydata()[at], busiest.get_ydata()[at]) == (2, 1.5)


def test_the_words_of_the_banks():
    """Two rows meet in sixteen banks before padding, and in none after it."""
    before, after = (plots._by_row(banks.store_a(WARPS, pad), 128 + pad) for pad in (0, 4))
    assert before.sum(axis=0).tolist() == 16 * [2] + 16 * [0]
    assert after.sum(axis=0).tolist() == 32 * [1]
    assert before.shape == after.shape == (5, 32)


@pytest.mark.parametrize(("warp", "lane", "name"), [(8, 0, "warp is 8"), (0, 32, "lane is 32")])
def test_a_warp_or_lane_that_is_not_there(warp, lane, name):
    """Refused, with what there is."""
    with pytest.raises(ValueError, match=f"{name}; it should be from 0 to"):
        plots.tilings(SALYKOVA, warp=warp, lane=lane)


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_saving(tmp_path, suffix, start):
    """As PNG and SVG; the same picture makes the same SVG."""
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        plots.save(FIGURES["ladder"](), path)
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


def test_saving_as_something_else(tmp_path):
    """Refused, and nothing is written."""
    with pytest.raises(ValueError, match=r"ends in '.gif'; it should end in .png or .svg"):
        plots.save(FIGURES["ladder"](), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())
