"""``numba-gemm tune``: search for the fastest tile, or the fastest of the portfolio, and keep it."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from .. import terminal
from ..dispatch import forget
from ..model import devices
from ..operands import MAX_SIZE
from ..problem import Problem
from ..rung import Rung
from ..rungs import LADDER, named
from ..target import TARGET
from ..terminal import InputError
from . import found, predict
from .halving import (
    HEATS,
    CandidateError,
    Result,
    State,
    drawn_at_random,
    ranked,
    search,
    seconds_left,
)
from .journal import Journal, JournalBusyError, Shape
from .lab import LabError, ProcessLab
from .orders import permutations
from .portfolio import PORTFOLIO
from .space import Candidate, Space, enumerate_space
from .suite import SUITE

__all__ = ["DEFAULT_SHAPE", "read_shapes", "run"]

DEFAULT_SHAPE: Shape = (4096, 4096, 4096)
BUDGET = 180.0
"""Seconds for a shape."""

DRY_RUN_GPU = "H200"
SHOWN = 10


def run(options: argparse.Namespace) -> int:
    """Do what ``numba-gemm tune`` was asked for; the exit status.  Raises InputError for bad input."""
    output = terminal.writable(options.json)
    if options.plot:
        _check_picture(options.plot)
    terminal.writable(options.found, "--found")
    if options.found:
        _check_found(options.found)
    terminal.writable(options.plot, "--plot")
    terminal.distinct((f"--{name}", getattr(options, name)) for name in ("json", "plot", "found"))
    if options.portfolio and (options.rung or options.orders):
        other = "--rung" if options.rung else "--orders"
        raise InputError(f"--portfolio and {other} exclude each other: it has several rungs")
    gpu = _gpu(options)
    shapes = _shapes(options)
    space = None
    if options.orders:
        candidates = _orders(options.rung, gpu, options.orders, options.seed)
    elif options.portfolio:
        candidates = _able(PORTFOLIO, gpu)
    else:
        space = _space(options.rung, gpu)
        candidates = space.candidates
    if not candidates:
        raise InputError(f"the {gpu.name} can run none of the candidates")
    always = {candidates[0]: "its own"} if options.orders else _yardsticks(space) if space else {}
    if options.dry_run:
        _dry_run(candidates, space, shapes, gpu, options.seed, output)
        return 0
    if not TARGET.is_gpu:
        raise InputError(
            f"tune measures on a GPU, but {TARGET.reason}; --dry-run lists what it would try"
        )
    return _tune(options, gpu, shapes, candidates, always, output)


def _check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn in the end."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise InputError(f"--plot needs matplotlib; pip install 'numba-gemm[plot]' ({error})") from error
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise InputError(f"--plot {path}: its name should end in one of .{', .'.join(known)}")


def _check_found(path: Path) -> None:
    """Refuse a file to which results could not be added in the end."""
    try:
        found.check(path)
    except OSError as error:
        raise InputError(f"--found {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"--found {path}: it has no results of a search: {error}") from error


# What to search ----------------------------------------------------------------------------------


def _gpu(options: argparse.Namespace) -> devices.Gpu:
    """The GPU at hand, or the one to list candidates for."""
    if options.gpu is not None and not options.dry_run:
        raise InputError("--gpu names a GPU for --dry-run; a search runs on the one at hand")
    try:
        if options.gpu is not None:
            return devices.named(options.gpu)
        return devices.current() or devices.named(DRY_RUN_GPU)
    except (RuntimeError, ValueError) as error:
        raise InputError(str(error)) from error


def _shapes(options: argparse.Namespace) -> list[Shape]:
    if options.shapes:
        shapes = read_shapes(options.shapes)
    elif options.shape:
        shapes = [tuple(options.shape)]
    else:
        shapes = list(SUITE) if options.portfolio else [DEFAULT_SHAPE]
    for M, N, K in shapes:
        if max(M, N, K) > MAX_SIZE or max(M * K, K * N, M * N) > terminal.MOST_ELEMENTS:
            raise InputError(f"{M} x {N} x {K} is too large; such matrices fit in no memory")
    return shapes


def read_shapes(path: Path) -> list[Shape]:
    """The shapes in a text file, one a line as ``M N K``; what follows a # does not count.

    Raises InputError that names the line for anything else, and for a file without shapes.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(f"--shapes {path}: {reason}") from error
    shapes: list[Shape] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            M, N, K = (int(word) for word in words)
        except ValueError:
            M = N = K = 0
        if min(M, N, K) < 1:
            raise InputError(
                f"--shapes {path}, line {number}: {line.strip()!r} should be M N K, each 1 or more"
            )
        shapes.append((M, N, K))
    if not shapes:
        raise InputError(f"--shapes {path}: there are no shapes in it")
    return list(dict.fromkeys(shapes))


def _space(name: str | None, gpu: devices.Gpu) -> Space:
    """The space of the rung *name*, by default the highest with tile parameters that *gpu* can run."""
    try:
        rung = _highest(gpu) if name is None else named(name)
        if rung.requires > gpu.compute_capability:
            needed = "{}.{}".format(*rung.requires)
            raise ValueError(f"the rung {rung.name} needs compute capability {needed}")
        return enumerate_space(rung, lambda tile: predict.limits(tile, gpu))
    except ValueError as error:
        raise InputError(str(error)) from error


def _yardsticks(space: Space) -> dict[Candidate, str]:
    """What other tiles are compared with: the rung's own and that of the rung below, and whose it is.

    One that the rung refuses is not among them.
    """
    rung = named(space.rung)
    below = LADDER[max(0, LADDER.index(rung) - 1)]
    whose = {below.tile: f"that of {below.name}", rung.tile: "its own"}
    return {Candidate(rung.name, tile): name for tile, name in whose.items() if tile in space.legal}


def _orders(name: str | None, gpu: devices.Gpu, count: int, seed: int) -> list[Candidate]:
    """Orders of columns for the rung *name*, its own first."""
    try:
        candidates = permutations(_highest(gpu) if name is None else named(name), count, seed)
    except ValueError as error:
        raise InputError(str(error)) from error
    if not _able(candidates, gpu):
        raise InputError(f"the {gpu.name} cannot run the rung {candidates[0].rung}")
    return candidates


def _highest(gpu: devices.Gpu) -> Rung:
    return [rung for rung in LADDER if rung.tile and rung.requires <= gpu.compute_capability][-1]


def _able(candidates: Sequence[Candidate], gpu: devices.Gpu) -> list[Candidate]:
    """Those that *gpu* can run."""
    return [
        candidate
        for candidate in candidates
        if named(candidate.rung).requires <= gpu.compute_capability
        and not (candidate.tile and predict.limits(candidate.tile, gpu))
    ]


def _ranked(
    candidates: Sequence[Candidate], shape: Shape, gpu: devices.Gpu, seed: int, explore: bool
) -> tuple[list[Candidate], dict[Candidate, float]]:
    """The order to try them in, and what the model expects of each, in seconds."""
    problem = Problem(*shape)
    expected = {c: predict.candidate_seconds(c, problem, gpu) for c in candidates}
    if not explore:
        return sorted(candidates, key=expected.__getitem__), expected
    return ranked(candidates, expected.__getitem__, seed), expected


# Without a GPU ------------------------------------------------------------------------------------


def _dry_run(
    candidates: Sequence[Candidate],
    space: Space | None,
    shapes: Sequence[Shape],
    gpu: devices.Gpu,
    seed: int,
    output: Path | None,
) -> None:
    """List the candidates in the order in which they would be tried, and why others are not."""
    console = terminal.stdout()
    record: dict[str, Any] = {"device": gpu.name, "seed": seed, "shapes": []}
    for shape in shapes:
        order, expected = _ranked(candidates, shape, gpu, seed, space is not None)
        title = f"{_name(shape)} on the {gpu.name}: the order in which to try, seed {seed}"
        table = terminal.table(title)
        table.add_column("#", justify="right")
        table.add_column("candidate", no_wrap=True)
        table.add_column("threads", justify="right")
        table.add_column("expected TFLOP/s", justify="right", no_wrap=True)
        if space:
            table.add_column("why here", no_wrap=True)
        for place, candidate in enumerate(order):
            threads = str(candidate.tile.threads) if candidate.tile else ""
            cells = [str(place + 1), _label(candidate), threads, _tflops(shape, expected[candidate])]
            if space and drawn_at_random(place):
                cells.append("drawn at random")
            table.add_row(*cells)
        terminal.show(console, table)
        record["shapes"].append(
            {
                "shape": shape,
                "candidates": [
                    candidate.as_dict() | {"predicted_seconds": _finite(expected[candidate])}
                    for candidate in order
                ],
            }
        )
    if space:
        total = len(space.legal) + len(space.refused)
        table = terminal.table(
            f"{len(space.refused)} of {total} combinations are refused, some for several reasons"
        )
        table.add_column("tiles", justify="right")
        table.add_column("reason, with the numbers of one of them")
        for _, count, example in space.reasons():
            table.add_row(str(count), example)
        terminal.show(console, table)
        record["refused"] = [
            {"reason": kind, "tiles": count, "example": example}
            for kind, count, example in space.reasons()
        ]
    if output:
        terminal.write_json(output, record)


# On a GPU -----------------------------------------------------------------------------------------


def _tune(
    options: argparse.Namespace,
    gpu: devices.Gpu,
    shapes: Sequence[Shape],
    candidates: Sequence[Candidate],
    always: Mapping[Candidate, str],
    output: Path | None,
) -> int:
    what = "portfolio" if options.portfolio else candidates[0].rung
    if options.orders:
        what += " orders"
    about = {
        "device": gpu.name,
        "what": what,
        "seed": options.seed,
        "versions": found.versions(),
        "candidates": _digest([candidate.as_dict() for candidate in candidates]),
    }
    path = found.cache_folder() / "tune" / f"{what.replace(' ', '-')}-{_digest(about)}.jsonl"
    errors = Console(stderr=True)
    console = terminal.stdout()
    budget = options.budget or (math.inf if options.portfolio else BUDGET * len(shapes))
    try:
        with Journal(path, about) as journal:
            if journal.outcomes:
                errors.print(f"numba-gemm: going on from {len(journal.outcomes)} outcomes in {path}")
            records, winners = _measure(
                options, gpu, shapes, candidates, always, journal, budget, errors
            )
            record = about | {"budget_seconds": _finite(budget), "shapes": records}
            record["rounds"] = [heat.rounds for heat in HEATS]
            complete = _save(options, record, winners, output, errors)
            kept = journal.finish()  # until here, the same command goes on with what is measured
    except (JournalBusyError, LabError) as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        print(f"numba-gemm: the same command goes on from {path}", file=sys.stderr)
        raise
    errors.print(f"numba-gemm: every measurement is in {kept}", highlight=False)
    if options.orders:  # gemm takes a rung's order as its module has it
        for winner in winners:
            console.print(f"{_name(winner.shape)}: FOUND_ORDER = {winner.candidate.order}")
    ratios = [entry["of_cublas"] for entry in records if entry["of_cublas"]]
    if len(ratios) > 1:
        console.print(
            f"{len(ratios)} shapes: {statistics.geometric_mean(ratios):.3f} x cuBLAS in the geometric "
            f"mean, {min(ratios):.3f} x at the least.",
            highlight=False,
        )
    return 0 if complete and len(winners) == len(shapes) else 1


def _measure(
    options: argparse.Namespace,
    gpu: devices.Gpu,
    shapes: Sequence[Shape],
    candidates: Sequence[Candidate],
    always: Mapping[Candidate, str],
    journal: Journal,
    budget_for_all: float,
    errors: Console,
) -> tuple[list[dict[str, Any]], list[found.Found]]:
    """Race the candidates at every shape and show each race; everything about them, and the winners."""
    records: list[dict[str, Any]] = []
    winners: list[found.Found] = []
    explore = not (options.portfolio or options.orders)
    begun = time.monotonic()
    with ProcessLab(gpu, shapes, options.seed) as lab, _progress(errors) as progress:
        if options.portfolio:  # few candidates, many shapes: compile first, then time undisturbed
            _compile_all(lab, candidates, progress)
        for number, shape in enumerate(shapes):
            order, expected = _ranked(candidates, shape, gpu, options.seed, explore)
            left = budget_for_all - (time.monotonic() - begun)
            budget = max(0.0, left) / (len(shapes) - number)
            watch = _watcher(progress, shape, budget)
            first = list(always) or order[:1]
            result = search(order, shape, lab, journal, always=first, budget=budget, watch=watch)
            cublas = _cublas(lab, shape, errors, said=bool(records and not records[-1]["cublas"]))
            records.append(_record(result, expected, cublas))
            if result.winner:
                winners.append(_found(gpu, result, cublas))
            terminal.show(terminal.stdout(), _table_of(result, expected, cublas, always, gpu))
    return records, winners


def _save(
    options: argparse.Namespace,
    record: dict[str, Any],
    winners: Sequence[found.Found],
    output: Path | None,
    errors: Console,
) -> bool:
    """Write what a search was made for, wherever it is wanted; what cannot be written is only said."""

    def keep() -> None:
        for written in found.keep(winners):
            errors.print(f"numba-gemm: the fastest are kept in {written}", highlight=False)
        forget()

    def draw() -> None:
        from . import plot

        plot.draw(record, options.plot)

    writes: list[Callable[[], object]] = []
    if not options.orders:
        writes.append(keep)
    if output:
        writes.append(partial(terminal.write_json, output, record))
    if options.found and not options.orders:
        writes.append(partial(found.add, options.found, winners))
    if options.plot:
        writes.append(draw)
    complete = True
    for write in writes:
        try:
            write()
        except (OSError, ValueError) as error:
            errors.print(f"numba-gemm: {error}", highlight=False, markup=False)
            complete = False
    return complete


def _compile_all(lab: ProcessLab, candidates: Sequence[Candidate], progress: Progress) -> None:
    """Compile every candidate; those that fail will say so when they are to be timed."""
    task = progress.add_task("compiling", total=len(candidates), best="", left="?")
    for _ in lab.ready(candidates):
        progress.advance(task)
    progress.remove_task(task)


def _cublas(lab: ProcessLab, shape: Shape, errors: Console, said: bool) -> float | None:
    """Median device time of cuBLAS in the same process, or None; says why unless it was *said*."""
    try:
        return statistics.median(lab.race_cublas(shape, HEATS[-1].rounds))
    except CandidateError as error:
        if not said:
            errors.print(f"numba-gemm: no share of cuBLAS: {error.reason}", highlight=False)
        return None


def _found(gpu: devices.Gpu, result: Result, cublas: float | None) -> found.Found:
    assert result.winner
    return found.Found(
        device=gpu.name,
        candidate=result.winner.candidate,
        shape=result.shape,
        seconds=result.winner.seconds,
        cublas_seconds=cublas,
        versions=found.versions(),
    )


def _record(result: Result, expected: dict[Candidate, float], cublas: float | None) -> dict[str, Any]:
    """Everything about the search on one shape, ready for JSON."""
    places = {c: place for place, c in enumerate(sorted(expected, key=expected.__getitem__), 1)}
    winner = result.winner
    return {
        "shape": result.shape,
        "cublas": cublas,
        "of_cublas": cublas / winner.seconds if cublas and winner else None,
        "winner": winner.candidate.as_dict() if winner else None,
        "seconds": winner.seconds if winner else None,
        "left_out": result.left_out,
        "standings": [
            standing.candidate.as_dict()
            | {
                "name": str(standing.candidate),
                "heat": standing.heat,
                "seconds": standing.seconds,
                "predicted_seconds": _finite(expected[standing.candidate]),
                "predicted_rank": places[standing.candidate],
            }
            for standing in result.standings
        ],
        "failures": [
            outcome.candidate.as_dict() | {"failed": outcome.failed, "reason": outcome.reason}
            for outcome in result.failures
        ],
    }


# Showing ------------------------------------------------------------------------------------------


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]} left"),
        TextColumn("{task.fields[best]}"),
        console=console,
        transient=True,
    )


def _watcher(progress: Progress, shape: Shape, budget: float) -> Any:
    """Shows a search on the progress bar: the heat, the best so far, and the time left."""
    task = progress.add_task("", total=None, best="compiling", left="?")
    heat, begun = -1, time.monotonic()
    heat_begun = begun

    def watch(state: State) -> None:
        nonlocal heat, heat_begun
        now = time.monotonic()
        if state.heat != heat:
            heat, heat_begun = state.heat, now
            progress.reset(task, total=state.total)
        best = ""
        if state.best:
            best = f"best {_tflops(shape, state.best.seconds)} {_label(state.best.candidate)}"
        over = heat == state.heats - 1 and state.done == state.total
        progress.update(
            task,
            description=f"{_name(shape)} heat {state.heat + 1}/{state.heats}",
            completed=state.done,
            best=best,
            left=_minutes(min(seconds_left(state, now - heat_begun), budget - (now - begun))),
            visible=not over,
        )

    return watch


def _minutes(seconds: float) -> str:
    """Seconds as minutes and seconds, a clock's way."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02}"


def _table_of(
    result: Result,
    expected: dict[Candidate, float],
    cublas: float | None,
    always: Mapping[Candidate, str],
    gpu: devices.Gpu,
) -> Any:
    """The fastest of a search, those of *always* with their names, and cuBLAS."""
    title = f"{_name(result.shape)}, {gpu.name}: {len(result.first)} candidates timed"
    if result.left_out:
        title += f", {result.left_out} left out for lack of time"
    if result.failures:
        title += f", {len(result.failures)} failed"
    table = terminal.table(title)
    table.add_column("candidate", no_wrap=True)
    for heading in ("time", "TFLOP/s", "of cuBLAS", "expected at"):
        table.add_column(heading, justify="right", no_wrap=True)
    places = {c: place for place, c in enumerate(sorted(expected, key=expected.__getitem__), 1)}
    for place, standing in enumerate(result.standings):
        if place >= SHOWN and standing.candidate not in always:
            continue
        table.add_row(
            ", ".join(filter(None, (_label(standing.candidate), always.get(standing.candidate)))),
            terminal.milliseconds(standing.seconds),
            _tflops(result.shape, standing.seconds),
            f"{cublas / standing.seconds:.1%}" if cublas else "",
            f"{places[standing.candidate]} of {len(places)}",
        )
    if cublas:
        table.add_section()
        speed = _tflops(result.shape, cublas)
        table.add_row("cuBLAS", terminal.milliseconds(cublas), speed, "100.0%", "")
    for outcome in result.failures[:SHOWN]:
        table.add_row(f"[red]{outcome.candidate}[/] {outcome.failed}: {outcome.reason}"[:110])
    return table


def _label(candidate: Candidate) -> str:
    """A candidate in a table; of an order, the order alone, as everything else is the same."""
    return ",".join(map(str, candidate.order)) or str(candidate)


def _name(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _tflops(shape: Shape, seconds: float) -> str:
    return f"{2 * math.prod(shape) / seconds / 1e12:.2f}"


def _finite(value: float) -> float | None:
    """A number for JSON, which has no infinity."""
    return value if math.isfinite(value) else None


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
