"""From a file of benchmark results to tables: what ``numba-gemm report`` prints and writes.

It reads what ``pytest --benchmark-only bench --benchmark-json FILE`` wrote, or the short form that
:func:`slim` makes of it, which keeps what a report needs and is fit to be committed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from . import records
from .model import published
from .records import Count, Fraction, Positive, Seconds, Size

__all__ = ["SECTIONS", "Figure", "Run", "compare", "fill", "load", "load_all", "slim", "text"]

SIZE = 4096
"""The cube at which the ladder is shown."""

REPEATABLE_SECONDS = 1e-3
TOLERANCE = 0.03
"""Two runs agree where a figure of a millisecond or more moved by no more than this."""

CUBLAS = "cuBLAS"

A100_SHARE_OF_PEAK = {"naive": 0.013, "tiled2d": 0.365, CUBLAS: 0.939}
"""As "GEMM Worklog I: Naive to Tiled" gives them; its times are in model/published.py."""

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Figure:
    """One measured figure: *name* in the benchmark *bench*, at *shape*.

    ``seconds`` is the median over ``rounds`` rounds, ``spread`` slowest less fastest round as a
    fraction of it, ``again`` the median of a second run, ``more`` what else was recorded.
    """

    bench: str
    name: str
    shape: Shape
    seconds: float
    spread: float
    rounds: int
    again: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, Shape]:
        """What tells it from the others of a run."""
        return self.bench, self.name, self.shape

    @property
    def flops(self) -> int:
        """2*M*N*K."""
        return 2 * math.prod(self.shape)

    @property
    def tflops(self) -> float:
        """FLOPs of the product over the time, in TFLOP/s."""
        return self.flops / self.seconds / 1e12


@dataclass(frozen=True)
class Run:
    """Everything that one run measured, on what, when, and by which command."""

    figures: tuple[Figure, ...]
    environment: dict[str, Any]
    date: str
    command: str
    launch_floor_seconds: float | None = None

    def of(self, bench: str, shape: Shape | None = None) -> dict[str, Figure]:
        """The figures of one benchmark at one shape, by name."""
        return {
            figure.name: figure
            for figure in self.figures
            if figure.bench == bench and shape in (None, figure.shape)
        }

    def shapes(self, bench: str) -> list[Shape]:
        """The shapes of one benchmark, in the order in which they ran."""
        return list(dict.fromkeys(figure.shape for figure in self.figures if figure.bench == bench))

    @property
    def digest(self) -> str:
        """A fingerprint of the figures, which pictures carry to be held against them."""
        figures = [_as_dict(figure) for figure in self.figures]
        return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]


# Reading and writing ------------------------------------------------------------------------------

FORM = "numba-gemm figures 1"
OWN = {"bench", "name", "M", "N", "K", "spread"}  # of extra_info, what Figure has fields for


@dataclass(frozen=True, kw_only=True)
class _More:
    """What tables show of what a benchmark recorded beside its time."""

    choice: str = ""
    l2: str = ""
    sm_mhz: float | UnsetType = UNSET
    throttled: tuple[str, ...] = ()
    joules: Positive | UnsetType = UNSET
    gflop_per_joule: Positive | UnsetType = UNSET
    sustained_watts: Positive | UnsetType = UNSET
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.simulated:
            raise ValueError("it was measured in the simulator, whose times say nothing about a GPU")
        if self.joules is not UNSET and UNSET in (self.gflop_per_joule, self.sustained_watts):
            raise ValueError("joules should come with gflop_per_joule and sustained_watts")


@dataclass(frozen=True)
class _Environment:
    """What tables take of :func:`numba_gemm.environment.describe`, on a GPU."""

    device: str
    fp32_peak_flops_per_second: Positive
    driver: str = ""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _SlimFigure(_More):
    bench: str
    name: str
    shape: tuple[Size, Size, Size]
    seconds: Seconds
    spread: Fraction
    rounds: Count
    again: Seconds | UnsetType = UNSET


@dataclass(frozen=True)
class _Slim:
    figures: Annotated[tuple[_SlimFigure, ...], Meta(min_length=1)]
    environment: _Environment
    date: str
    command: str
    launch_floor_seconds: Seconds | None = None


@dataclass(frozen=True, kw_only=True)
class _ExtraInfo(_More):
    bench: str
    name: str
    M: Size
    N: Size
    K: Size


@dataclass(frozen=True)
class _Stats:
    min: Seconds
    median: Seconds
    max: Seconds
    rounds: Count


@dataclass(frozen=True)
class _Benchmark:
    extra_info: _ExtraInfo
    stats: _Stats


@dataclass(frozen=True)
class _Cpu:
    brand_raw: str = ""


@dataclass(frozen=True)
class _Machine:
    numba_gemm: _Environment
    cpu: _Cpu = field(default_factory=_Cpu)


@dataclass(frozen=True)
class _About:
    command: str
    launch_floor_seconds: Seconds | None = None


@dataclass(frozen=True)
class _Pytest:
    benchmarks: Annotated[tuple[_Benchmark, ...], Meta(min_length=1)]
    machine_info: _Machine
    datetime: str
    numba_gemm: _About


def load(path: Path) -> Run:
    """The run in a file of pytest-benchmark's or in the short form.

    Raises ValueError, which names the file and the place in it, where it is neither, or was measured in
    the simulator; OSError where it cannot be read.
    """
    try:
        data = records.read(path, dict[str, Any])
        return _from_slim(data) if data.get("form") == FORM else _from_pytest(data)
    except ValueError as error:
        raise ValueError(
            f"{path}: it should be what pytest --benchmark-only bench --benchmark-json or "
            f"numba-gemm report --slim writes: {error}"
        ) from error


def load_all(paths: Sequence[Path]) -> Run:
    """One run from the files of its parts, which were measured by several commands on one machine.

    Raises what :func:`load` does, and ValueError where the parts differ in where or with what they were
    measured, or have a figure twice.
    """
    first, *others = (load(path) for path in paths)
    figures = list(first.figures)
    for path, part in zip(paths[1:], others, strict=True):
        for difference in _differences(first, part):
            raise ValueError(f"{path} was not measured as {paths[0]} was: {difference}")
        figures += part.figures
    known = set()
    for figure in figures:
        if figure.key in known:
            raise ValueError(f"{figure.bench}: {figure.name} at {_shape(figure.shape)} is there twice")
        known.add(figure.key)
    command = "; ".join(dict.fromkeys(run.command for run in (first, *others)))
    return replace(first, figures=tuple(figures), command=command)


def _differences(first: Run, second: Run) -> list[str]:
    """In what the *second* run's environment is not the *first* one's, a phrase each."""
    one, other = (
        {name: value for name, value in run.environment.items() if name != "versions"}
        | run.environment.get("versions", {})
        for run in (first, second)
    )
    return [
        f"{name} is {other.get(name)!r}, not {one.get(name)!r}"
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def _from_pytest(data: dict[str, Any]) -> Run:
    run = records.convert(data, _Pytest)
    figures = []
    for benchmark, raw in zip(run.benchmarks, data["benchmarks"], strict=True):
        extra, stats = benchmark.extra_info, benchmark.stats
        figures.append(
            Figure(
                bench=extra.bench,
                name=extra.name,
                shape=(extra.M, extra.N, extra.K),
                seconds=_six(stats.median),
                spread=round((stats.max - stats.min) / stats.median, 4),
                rounds=stats.rounds,
                more={name: value for name, value in raw["extra_info"].items() if name not in OWN},
            )
        )
    environment = dict(data["machine_info"]["numba_gemm"])
    if run.machine_info.cpu.brand_raw:
        environment["cpu"] = run.machine_info.cpu.brand_raw
    about = run.numba_gemm
    return Run(tuple(figures), environment, run.datetime[:10], about.command, about.launch_floor_seconds)


def _from_slim(data: dict[str, Any]) -> Run:
    run = records.convert(data, _Slim)
    own = {"bench", "name", "shape", "seconds", "spread", "rounds", "again"}
    figures = [
        Figure(
            bench=figure.bench,
            name=figure.name,
            shape=figure.shape,
            seconds=figure.seconds,
            spread=figure.spread,
            rounds=figure.rounds,
            again=None if figure.again is UNSET else figure.again,
            more={name: value for name, value in raw.items() if name not in own},
        )
        for figure, raw in zip(run.figures, data["figures"], strict=True)
    ]
    return Run(tuple(figures), data["environment"], run.date, run.command, run.launch_floor_seconds)


def _as_dict(figure: Figure) -> dict[str, Any]:
    """The figure for JSON, times rounded to six digits."""
    record: dict[str, Any] = {
        "bench": figure.bench,
        "name": figure.name,
        "shape": list(figure.shape),
        "seconds": _six(figure.seconds),
        "spread": figure.spread,
        "rounds": figure.rounds,
    }
    if figure.again is not None:
        record["again"] = _six(figure.again)
    return record | {
        name: _six(value) if isinstance(value, float) else value for name, value in figure.more.items()
    }


def _six(value: float) -> float:
    return float(f"{value:.6g}")


def slim(run: Run) -> str:
    """The run in the short form, one figure a line."""
    head = {
        "form": FORM,
        "command": run.command,
        "date": run.date,
        "launch_floor_seconds": run.launch_floor_seconds,
        "environment": run.environment,
    }
    text = json.dumps(head, indent=2, allow_nan=False)[:-2]
    lines = [json.dumps(_as_dict(figure), allow_nan=False) for figure in run.figures]
    return text + ',\n  "figures": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n"


# Tables -------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown whose first *left* columns are text and whose others are figures."""
    lines = ["| " + " | ".join(heads) + " |"]
    lines.append("|" + "|".join("---" if i < left else "---:" for i in range(len(heads))) + "|")
    lines.extend("| " + " | ".join(map(_cell, row)) + " |" for row in rows)
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A text that stays in its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _number(value: float) -> str:
    """Three digits, never in powers of ten."""
    value = float(f"{value:.3g}")
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _speed(figure: Figure | None) -> str:
    """TFLOP/s, with a flag where the GPU was throttled."""
    if figure is None:
        return ""
    throttled = figure.more.get("throttled")
    return _number(figure.tflops) + (f" ({', '.join(throttled)})" if throttled else "")


def _shape(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _time(seconds: float) -> str:
    return f"{_number(seconds * 1e6)} µs" if seconds < 1e-3 else f"{_number(seconds * 1e3)} ms"


def names_in_order(run: Run, bench: str) -> list[str]:
    """Rungs in the order of the ladder, then whatever else was measured, cuBLAS last."""
    from .rungs import LADDER

    found = run.of(bench)
    ladder = [rung.name for rung in LADDER if rung.name in found]
    others = [name for name in found if name not in ladder and name != CUBLAS]
    return ladder + others + [CUBLAS] * (CUBLAS in found)


def _missing(what: str) -> str:
    return f"This run has no figures of {what}."


def _provenance(run: Run) -> str:
    """The GPU, the versions, the day and the command, in a sentence; of several, where they stand."""
    about = run.environment
    versions = about.get("versions", {})
    parts = [f"One {about['device']}"]
    if "driver" in about:
        parts.append(f"driver {about['driver']}")
    parts += [f"{name} {versions[name]}" for name in ("numba", "numba-cuda") if name in versions]
    commands = run.command.count("; ") + 1
    by = f"`{run.command}`" if commands == 1 else f"{commands} commands, in the table of the environment"
    return f"{', '.join(parts)}; {run.date}; {by}."


def ladder(run: Run) -> str:
    """Every rung at one size, beside cuBLAS, peak, the rung below, and the published ladders."""
    from .rungs import LADDER

    shape = (SIZE, SIZE, SIZE)
    here, twins = run.of("ladder", shape), run.of("cuda_cpp", shape)
    if not here:
        return _missing(f"the ladder at {_shape(shape)}")
    rungs = {rung.name: rung for rung in LADDER}
    vendor, peak = here.get(CUBLAS), run.environment["fp32_peak_flops_per_second"]
    rows, below, below_there = [], None, None
    for place, name in enumerate(names_in_order(run, "ladder"), 1):
        figure = here.get(name)
        if figure is None:
            continue
        rung, there = rungs.get(name), published.A6000_GFLOPS.get(name)
        is_rung = name != CUBLAS
        link = f"[`{name}`](numba_gemm/rungs/{name}.py)" if rung else name
        rows.append(
            (
                str(place) if is_rung else "",
                link,
                rung.idea if rung else "FP32, TF32 off" if name == CUBLAS else "",
                _number(_intensity(*rung.reuse)) if rung else "",
                _speed(figure),
                _percent(vendor.seconds / figure.seconds) if vendor else "",
                _percent(figure.tflops * 1e12 / peak),
                f"{figure.tflops / below:.2f}" if below and is_rung else "",
                _speed(twins.get(name)),
                _percent(there / published.A6000_GFLOPS[CUBLAS]) if there else "",
                f"{there / below_there:.2f}" if there and below_there and is_rung else "",
                _percent(A100_SHARE_OF_PEAK[name]) if name in A100_SHARE_OF_PEAK else "",
            )
        )
        below, below_there = figure.tflops, there
    heads = (
        "",
        "rung",
        "the idea",
        "FLOP/byte",
        "TFLOP/s",
        "of cuBLAS",
        "of peak",
        "x below",
        "in CUDA C++",
        "A6000: of cuBLAS",
        "A6000: x below",
        "A100: of peak",
    )
    widest = max(figure.spread for figure in here.values())
    warm = any(figure.more.get("l2") == "warm" for figure in here.values())
    cache = "L2 warm, launches back to back" if warm else "L2 flushed before each launch"
    return (
        f"{_table(heads, rows, left=3)}\n\n{_provenance(run)} {_shape(shape)}, float32, random input, "
        f"device time, {cache}, median over the rounds; slowest less fastest "
        f"round is at most {_percent(widest)} of it. The A6000's figures are S. Boehm's, at "
        '4092 x 4092 x 4092; the A100\'s are those of "GEMM Worklog I: Naive to Tiled".'
    )


def _intensity(m: int, n: int) -> float:
    """FLOP per byte asked of global memory by a tile of m x n entries, for large M, N and K."""
    return m * n / (2 * (m + n))


def _by_shape(run: Run, bench: str, what: str) -> str:
    """TFLOP/s of each name at each shape of a benchmark."""
    shapes = run.shapes(bench)
    if not shapes:
        return _missing(what)
    columns = [run.of(bench, shape) for shape in shapes]
    heads = ["TFLOP/s", *(str(s[0]) if len(set(s)) == 1 else _shape(s) for s in shapes)]
    rows = [
        (name, *(_speed(column.get(name)) for column in columns)) for name in names_in_order(run, bench)
    ]
    return _table(heads, rows)


def sizes(run: Run) -> str:
    """TFLOP/s of every rung at every size."""
    return _by_shape(run, "ladder", "the ladder")


def cuda_cpp(run: Run) -> str:
    """TFLOP/s of the rungs' twins in CUDA C++."""
    return _by_shape(run, "cuda_cpp", "CUDA C++")


def peers(run: Run) -> str:
    """TFLOP/s of what people would use instead, and what ``gemm`` reaches on the same arrays."""
    return _by_shape(run, "peers", "the peers")


def ratios(run: Run) -> list[tuple[Figure, Figure]]:
    """Of every shape of the suite, ours and cuBLAS', where both were measured."""
    pairs = []
    for shape in run.shapes("suite"):
        both = run.of("suite", shape)
        if {"numba_gemm", CUBLAS} <= set(both):
            pairs.append((both["numba_gemm"], both[CUBLAS]))
    return pairs


def suite(run: Run) -> str:
    """Every shape of the dispatch suite beside cuBLAS, with the geometric mean of the ratios."""
    pairs = ratios(run)
    if not pairs:
        return _missing("the suite beside cuBLAS")
    rows = [
        (
            _shape(ours.shape),
            f"`{ours.more.get('choice', '')}`",
            _time(ours.seconds),
            _time(vendor.seconds),
            _speed(ours),
            _speed(vendor),
            f"{vendor.seconds / ours.seconds:.2f}",
        )
        for ours, vendor in pairs
    ]
    each = [vendor.seconds / ours.seconds for ours, vendor in pairs]
    mean = math.exp(math.fsum(map(math.log, each)) / len(each))
    lowest = min(pairs, key=lambda pair: pair[1].seconds / pair[0].seconds)
    heads = (
        "M x N x K",
        "chosen",
        "time",
        "cuBLAS, time",
        "TFLOP/s",
        "cuBLAS, TFLOP/s",
        "x cuBLAS",
    )
    return (
        f"{_table(heads, rows, left=2)}\n\nGeometric mean of {len(each)} ratios: {mean:.3f}; "
        f"the lowest is {min(each):.2f}, at {_shape(lowest[0].shape)}."
        + (
            f" A kernel that does nothing measures {_time(run.launch_floor_seconds)}."
            if run.launch_floor_seconds
            else ""
        )
    )


def energy(run: Run) -> str:
    """Power, energy of one multiply and GFLOP/J of every rung at one size."""
    measured = run.of("ladder", (SIZE, SIZE, SIZE))
    rows = [
        (
            name,
            _number(figure.more["sustained_watts"]),
            _number(figure.more["joules"]),
            _number(figure.more["gflop_per_joule"]),
            str(figure.more.get("sm_mhz", "")),
            ", ".join(figure.more.get("throttled", ())),
        )
        for name in names_in_order(run, "ladder")
        if (figure := measured.get(name)) and "joules" in figure.more
    ]
    if not rows:
        return _missing("energy")
    heads = ("rung", "W", "J a multiply", "GFLOP/J", "clock, MHz", "throttled by")
    return _table(heads, rows)


def overhead(run: Run) -> str:
    """Host time of a call."""
    measured = run.of("overhead")
    if not measured:
        return _missing("the overhead of a call")
    rows = [
        (name, f"{figure.seconds * 1e6:.1f}", _percent(figure.spread))
        for name, figure in measured.items()
    ]
    return _table(("call", "µs on the host", "spread"), rows)


def compile_time(run: Run) -> str:
    """Time of a rung's first call in a fresh process."""
    measured = run.of("compile")
    if not measured:
        return _missing("first calls")
    rows = [(name, f"{measured[name].seconds:.2f}") for name in names_in_order(run, "compile")]
    return _table(("rung", "first call, s"), rows)


def repeat(run: Run) -> str:
    """How far a second complete run was from this one."""
    twice = [figure for figure in run.figures if figure.again is not None]
    if not twice:
        return "There was no second run."
    return _repeated(twice)


def _repeated(twice: Sequence[Figure]) -> str:
    """The figures of a millisecond or more that two runs disagree about."""
    long = [figure for figure in twice if figure.seconds >= REPEATABLE_SECONDS]
    apart = [figure for figure in long if abs(_change(figure)) > TOLERANCE]
    within = (
        f"Of {len(long)} figures of a millisecond or more, {len(long) - len(apart)} were within "
        f"{TOLERANCE:.0%} in a second run"
    )
    if not apart:
        return within + "."
    rows = [
        (
            figure.bench,
            figure.name,
            _shape(figure.shape),
            _time(figure.seconds),
            f"{_change(figure):+.1%}",
            _percent(figure.spread),
        )
        for figure in apart
    ]
    heads = ("benchmark", "what", "M x N x K", "time", "second run", "spread of the first")
    return f"{within}. The others:\n\n{_table(heads, rows, left=3)}"


def _change(figure: Figure) -> float:
    assert figure.again is not None
    return figure.again / figure.seconds - 1


def environment(run: Run) -> str:
    """On what, with what and by which command."""
    about = run.environment
    rows = [
        (name.replace("_", " "), str(value))
        for name, value in about.items()
        if not isinstance(value, dict)
    ]
    rows += list(about.get("versions", {}).items())
    rows += [("date", run.date), ("command", f"`{run.command}`")]
    return _table(("", ""), rows, left=2)


SECTIONS: dict[str, Callable[[Run], str]] = {
    "ladder": ladder,
    "sizes": sizes,
    "cuda_cpp": cuda_cpp,
    "peers": peers,
    "suite": suite,
    "energy": energy,
    "overhead": overhead,
    "compile": compile_time,
    "repeat": repeat,
    "environment": environment,
}
"""What can stand between markers, by the name in the marker."""

PICTURES = {
    "ladder": "Share of cuBLAS of every rung, beside the published ladders",
    "suite": "Speed relative to cuBLAS at every shape of the suite",
    "energy": "GFLOP per joule of every rung",
}
"""The pictures that the marker ``NAME-picture`` puts in, by name, with what they show."""

MARKED = re.compile(
    r"<!-- report:(?P<name>\S+) -->(?P<end>\r?\n)(?P<old>.*?)<!-- /report -->", re.DOTALL
)


def fill(text: str, run: Run, pictures: Path, folder: Path) -> str:
    """*text* with the present tables, and links to *pictures*, between its markers.

    A place is marked by ``<!-- report:NAME -->`` and ``<!-- /report -->`` on lines of their own, NAME
    being one of SECTIONS, or of PICTURES with ``-picture`` behind it.  *folder* is where the text lies.
    Lines end as that of the marker does.  Raises ValueError for a text without markers, an unknown name,
    a marker without its end, and for figures that have a marker in them.
    """
    opened, closed = text.count("<!-- report:"), text.count("<!-- /report -->")
    if opened != closed or opened != len(MARKED.findall(text)):
        raise ValueError(f"{opened} places begin with a marker and {closed} end with one")
    if not opened:
        raise ValueError("it has no <!-- report:NAME --> and <!-- /report --> to fill between")

    def section(match: re.Match[str]) -> str:
        name = match["name"]
        picture = name.removesuffix("-picture")
        if name in SECTIONS:
            # Links are written from the root of the repository.
            new = SECTIONS[name](run).replace("](numba_gemm/", f"]({_to_root(folder)}numba_gemm/")
        elif name != picture and picture in PICTURES:
            place = Path(os.path.relpath(pictures, folder), f"{picture}.svg").as_posix()
            new = f"![{PICTURES[picture]}]({place})"
        else:
            known = ", ".join([*SECTIONS, *(f"{name}-picture" for name in PICTURES)])
            raise ValueError(f"there is no section {name!r}; a report has {known}")
        if "<!--" in new or "-->" in new:
            raise ValueError(
                f"the section {name!r} would have a <!-- or --> in it, from the figures' file"
            )
        lines = [f"<!-- report:{name} -->", *new.split("\n"), "<!-- /report -->"]
        return match["end"].join(lines)

    return MARKED.sub(section, text)


def _to_root(folder: Path) -> str:
    """How to get from *folder* to the repository's root, told by its pyproject.toml."""
    for up, parent in enumerate([folder.resolve(), *folder.resolve().parents]):
        if (parent / "pyproject.toml").exists():
            return "../" * up
    return ""


def text(run: Run) -> str:
    """The whole report in Markdown."""
    parts = (f"## {name}\n\n{section(run)}" for name, section in SECTIONS.items())
    return "\n\n".join(parts)


# Two runs -----------------------------------------------------------------------------------------


def compare(run: Run, other: Run) -> tuple[Run, str]:
    """*run* with the figures of *other* as its second run, and a table of how far they lie apart.

    The table has the figures of a millisecond or more that both have; below it stands in what else the
    runs differ.  Raises ValueError for runs on different devices, or without a figure in common.
    """
    here, there = run.environment["device"], other.environment["device"]
    if here != there:
        raise ValueError(f"it is of another device, {there}; the first run is of one {here}")
    second = {figure.key: figure.seconds for figure in other.figures}
    if not second.keys() & {figure.key for figure in run.figures}:
        raise ValueError("no figure is in both runs")
    both = [replace(figure, again=second.get(figure.key)) for figure in run.figures]
    rows = [
        (
            figure.bench,
            figure.name,
            _shape(figure.shape),
            _time(figure.seconds),
            _time(figure.again),
            f"{figure.again / figure.seconds:.3f}",
            "apart" if abs(_change(figure)) > TOLERANCE else "",
        )
        for figure in both
        if figure.again is not None and figure.seconds >= REPEATABLE_SECONDS
    ]
    heads = ("benchmark", "what", "M x N x K", "first", "second", "second/first", f"> {TOLERANCE:.0%}")
    alone = {figure.key for figure in run.figures} ^ set(second)
    table = f"{_table(heads, rows, left=3)}\n\n{_repeated([f for f in both if f.again is not None])}"
    if alone:
        table += f"\n\n{len(alone)} figures are in one of the runs only."
    differences = _differences(run, other)
    if differences:
        table += f"\n\nIn the second run, {'; '.join(differences)}."
    return replace(run, figures=tuple(both)), table
