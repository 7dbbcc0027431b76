"""The command line: ``numba-gemm climb``, ``inspect``, ``model``, ``tune`` and ``report``.

Tables go to stdout, progress and errors to stderr.  The exit status is 0, 1 where a check failed, 2 for
bad input and 130 after Ctrl-C.  Modules that look for a GPU are imported by the command that needs one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from . import __version__, terminal
from .terminal import InputError

if TYPE_CHECKING:
    from .climb import Step
    from .codegen import Report
    from .device import Device
    from .problem import Problem
    from .rung import Rung

__all__ = ["main"]

GPU_SIZE = 4096
SIMULATOR_SIZE = 40
"""More than one block, with a fringe, for the first rungs, a part of one for the others.  The simulator
takes about a minute for all of them on two cores: most of it for threads, whatever the size."""

SIMULATOR_PRODUCTS = 2**27
"""Multiply-adds for each rung, M * N * K, above which the simulator is not begun: 512 in each direction.
It does some 150,000 a second, so that one rung takes a quarter of an hour and a climb hours."""

BAD_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on *arguments* (``sys.argv`` by default) and return the exit status."""
    if sys.stdout is None:  # closed by the shell
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  for as long as the process lives
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
        return status
    except InputError as error:
        print(f"numba-gemm: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("numba-gemm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"numba-gemm: {error}", file=sys.stderr)
        return 1
    except MemoryError:
        print("numba-gemm: there is not enough memory for this problem", file=sys.stderr)
        return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="numba-gemm", description="The GEMM ladder in Numba CUDA, from naive to fast."
    )
    parser.add_argument("--version", action="version", version=f"numba-gemm {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    climb = commands.add_parser(
        "climb",
        help="run every rung on a random problem, check it and compare",
        description="Run every rung on one random problem, check each result against numpy, and "
        "print one table: times on a GPU, costs in the simulator.",
    )
    shape = climb.add_mutually_exclusive_group()
    shape.add_argument(
        "--size",
        type=_size,
        metavar="N",
        help=f"M = N = K = N (default {GPU_SIZE} on a GPU, {SIMULATOR_SIZE} in the simulator)",
    )
    shape.add_argument(
        "--shape",
        type=_size,
        nargs=3,
        metavar=("M", "N", "K"),
        help="A is M x K, B is K x N, C is M x N",
    )
    climb.add_argument("--rungs", metavar="A,B", help="only these rungs, in the order of the ladder")
    climb.add_argument("--alpha", type=_number, default=1.0, help="(default 1)")
    climb.add_argument("--beta", type=_number, default=0.0, help="(default 0)")
    climb.add_argument("--seed", type=_seed, help="of the random operands (default: a fresh one)")
    climb.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE as well")
    climb.set_defaults(command=_climb)

    inspect = commands.add_parser(
        "inspect",
        help="compile rungs for a GPU that need not be there and look at the code",
        description="Compile rungs for an architecture, with or without a GPU, and print registers, "
        "spills, shared memory and the instructions of the hottest loop.",
    )
    inspect.add_argument("rungs", nargs="*", metavar="RUNG", help="(default: the whole ladder)")
    inspect.add_argument("--arch", default="sm_90", help="for example sm_80 (default sm_90)")
    inspect.add_argument("--sass", action="store_true", help="print the machine code too")
    inspect.add_argument("--json", action="store_true", help="print JSON instead of a table")
    inspect.set_defaults(command=_inspect)

    model = commands.add_parser(
        "model",
        help="what a multiply is allowed to cost on a GPU that need not be there",
        description="Print what a multiply costs by formula: the ceilings, what each rung asks of "
        "memory, waves, occupancy and the time no kernel can beat.",
    )
    model.add_argument(
        "--shape",
        type=_size,
        nargs=3,
        default=(GPU_SIZE, GPU_SIZE, GPU_SIZE),
        metavar=("M", "N", "K"),
        help=f"A is M x K, B is K x N, C is M x N (default {GPU_SIZE} each)",
    )
    model.add_argument(
        "--tile",
        metavar="BMxBNxBK[xTMxTN[xWMxWN[xSTAGES]]]",
        help="one tile instead of the ladder, for example 128x128x8x8x8: BM x BN entries of C a block, "
        "BK deep, TM x TN a thread, WM x WN a warp, STAGES chunks in shared memory; or as tables write "
        "it, '128x256x8 8x16 w64x64 s2'",
    )
    model.add_argument(
        "--registers",
        type=_size,
        help="of a thread, with --tile (default: what the tile needs at least)",
    )
    model.add_argument("--gpu", metavar="NAME", help="(default: the machine's own, or else H200)")
    model.add_argument(
        "--measured",
        type=Path,
        metavar="FILE",
        help="what climb --json or --measure-waves --json wrote, to draw beside the model",
    )
    model.add_argument("--plot", type=Path, metavar="FILE", help="save a picture, .png or .svg")
    model.add_argument(
        "--picture",
        choices=("roofline", "ladder", "tiles", "waves", "tilings", "banks"),
        help="which one (default roofline, or waves with --measure-waves)",
    )
    model.add_argument(
        "--measure-waves",
        action="store_true",
        help="on a GPU: time launches of more and more blocks, across whole waves, for two tiles",
    )
    model.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE as well")
    model.add_argument(
        "--explain", action="store_true", help="which kernel gemm takes for this shape, and why"
    )
    model.set_defaults(command=_model)
    _add_tune(commands)
    _add_report(commands)
    return parser


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="turn measured benchmarks into tables and pictures",
        description="Print tables of what pytest --benchmark-only bench --benchmark-json FILE measured "
        "on a GPU, write pictures of it, fill the places in a text that are marked for it.",
    )
    report.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="of pytest-benchmark, or from --slim; several are parts of one run",
    )
    report.add_argument(
        "--output", type=Path, metavar="DIR", help="write report.md and the pictures there"
    )
    report.add_argument(
        "--readme",
        type=Path,
        action="append",
        default=[],
        metavar="TEXT",
        help="fill the tables between <!-- report:NAME --> and <!-- /report --> (may be repeated)",
    )
    report.add_argument(
        "--slim", type=Path, metavar="FILE", help="write what a report needs of FILE, to be committed"
    )
    report.add_argument(
        "--against",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="compare with a second run, figure by figure",
    )
    report.set_defaults(command=_report)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number") from None


def _size(text: str) -> int:
    value = _whole_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} should be at least 1")
    return value


def _seed(text: str) -> int:
    value = _whole_number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} should be at least 0")
    return value


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} should be finite")
    return value


def _launch_nothing(*, compile_only: bool = False) -> None:
    """Spare a command that runs no kernel the line that says where kernels would run.

    With *compile_only* no GPU is looked for either.
    """
    if "numba_gemm.target" not in sys.modules:
        os.environ["NUMBA_GEMM_QUIET"] = "1"
        if compile_only:
            os.environ["NUMBA_GEMM_TARGET"] = "compiler"


# climb --------------------------------------------------------------------------------------------


def _climb(options: argparse.Namespace) -> int:
    output = terminal.writable(options.json)
    try:
        from .target import TARGET
    except RuntimeError as error:
        raise InputError(str(error)) from error
    if TARGET.kind == "compiler":
        raise InputError(f"nothing can be launched: {TARGET.reason}")
    from . import climb, cublas, device, operands
    from .problem import Problem
    from .rungs import LADDER, named

    names = [name.strip() for name in options.rungs.split(",")] if options.rungs is not None else None
    try:
        wanted = {named(name).name for name in names} if names else None
        alpha = operands.scalar("--alpha", options.alpha)
        beta = operands.scalar("--beta", options.beta)
    except ValueError as error:
        raise InputError(str(error)) from error
    rungs = [rung for rung in LADDER if wanted is None or rung.name in wanted]
    gpu = device.current()
    if gpu:
        too_new = [rung for rung in rungs if rung.requires > gpu.compute_capability]
        rungs = [rung for rung in rungs if rung not in too_new]
        for rung in too_new:
            needed = "{}.{}".format(*rung.requires)
            print(
                f"numba-gemm: left out {rung.name}: it needs compute capability {needed}",
                file=sys.stderr,
            )
        if not rungs:
            raise InputError("this GPU runs none of these rungs")

    size = options.size or (GPU_SIZE if TARGET.is_gpu else SIMULATOR_SIZE)
    M, N, K = options.shape or (size, size, size)
    if max(M, N, K) > operands.MAX_SIZE:
        raise InputError(f"{M} x {N} x {K} is too large; no size may be more than {operands.MAX_SIZE}")
    if max(M * K, K * N, M * N) > terminal.MOST_ELEMENTS:
        raise InputError(f"{M} x {N} x {K} is too large; a matrix of that size fits in no memory")
    if TARGET.is_simulator and M * N * K > SIMULATOR_PRODUCTS:
        raise InputError(
            f"{M} x {N} x {K} is too large for the simulator, which would take hours; "
            f"M * N * K should be at most {SIMULATOR_PRODUCTS}"
        )
    problem = Problem(M, N, K, alpha, beta)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")

    steps: list[Step] = []
    errors = Console(stderr=True)
    with terminal.progress(errors) as progress:
        task = progress.add_task("", total=len(rungs))
        progress.update(task, description=rungs[0].name)
        for step in climb.climb(problem, rungs, seed):
            steps.append(step)
            coming = rungs[len(steps)].name if len(steps) < len(rungs) else ""
            progress.update(task, advance=1, description=coming)
        vendor = None
        try:
            vendor = climb.time_cublas(problem, seed) if TARGET.is_gpu else None
        except cublas.CublasMissingError as error:
            errors.print(f"numba-gemm: no share of cuBLAS: {error}", highlight=False)

    if output:
        terminal.write_json(output, _climb_record(problem, steps, gpu, vendor, seed))
    console = terminal.stdout()
    title = _title(problem, gpu.name if gpu else "Numba's CUDA simulator", seed)
    table = _gpu_table(title, problem, steps, gpu, vendor) if gpu else _cost_table(title, steps)
    terminal.show(console, table)
    if not gpu:
        console.print(
            "The simulator shows that a kernel is right, not how fast it is. Bytes asked of global "
            "memory are counted by formula.",
            highlight=False,
        )
    console.print(
        "error/bound: the largest error as a fraction of what rounding in float32 may cause.",
        highlight=False,
    )
    return 0 if all(step.passed for step in steps) else 1


def _title(problem: Problem, where: str, seed: int) -> str:
    product = "A B" if problem.alpha == 1 else f"{problem.alpha:g} A B"
    previous = f" + {problem.beta:g} C" if problem.beta else ""
    return (
        f"C <- {product}{previous}, "
        f"{problem.M} x {problem.N} x {problem.K}, float32, seed {seed}\n{where}"
    )


def _error_cell(step: Step) -> str:
    """The error over its bound, red where it is too large."""
    text = f"{step.worst:.2g}"
    return f"[green]{text}[/]" if step.passed else f"[bold red]{text} wrong[/]"


def _cost_table(title: str, steps: Sequence[Step]) -> Table:
    """What each rung costs: for the simulator, which has no speed worth showing."""
    table = terminal.table(title)
    table.add_column("rung", no_wrap=True)
    table.add_column("idea", min_width=20)
    table.add_column("bytes asked for", justify="right", no_wrap=True)
    table.add_column("FLOP/byte", justify="right", no_wrap=True)
    table.add_column("error/bound", justify="right", no_wrap=True)
    for step in steps:
        table.add_row(
            step.rung,
            step.idea,
            f"{step.requested_bytes:,}",
            f"{step.intensity:.2f}",
            _error_cell(step),
        )
    return table


def _gpu_table(
    title: str, problem: Problem, steps: Sequence[Step], gpu: Device, vendor: float | None
) -> Table:
    """Time and speed of each rung, beside the device's peak, the rung below and cuBLAS."""
    table = terminal.table(title)
    table.add_column("rung", no_wrap=True)
    table.add_column("idea", min_width=16)
    for heading in ("time", "TFLOP/s", "of peak", "x below", "of cuBLAS", "error/bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    below = None
    for step in steps:
        assert step.seconds is not None
        table.add_row(
            step.rung,
            step.idea,
            terminal.milliseconds(step.seconds),
            _tflops(problem, step.seconds),
            f"{problem.product_flops / step.seconds / gpu.fp32_peak:.1%}",
            f"{below / step.seconds:.2f}" if below else "",
            f"{vendor / step.seconds:.1%}" if vendor else "",
            _error_cell(step),
        )
        below = step.seconds
    if vendor:
        share = f"{problem.product_flops / vendor / gpu.fp32_peak:.1%}"
        table.add_section()
        table.add_row(
            "cuBLAS",
            "FP32, TF32 off",
            terminal.milliseconds(vendor),
            _tflops(problem, vendor),
            share,
            "",
            "100.0%",
            "",
        )
    return table


def _tflops(problem: Problem, seconds: float) -> str:
    return f"{problem.product_flops / seconds / 1e12:.2f}"


def _climb_record(
    problem: Problem, steps: Sequence[Step], gpu: Device | None, vendor: float | None, seed: int
) -> dict[str, Any]:
    """Everything that the table shows and what it takes to make it again."""
    return {
        "problem": {name: getattr(problem, name) for name in ("M", "N", "K", "alpha", "beta")},
        "seed": seed,
        "device": gpu.name if gpu else "simulator",
        "fp32_peak_flops_per_second": gpu.fp32_peak if gpu else None,
        "cublas_seconds": vendor,
        "product_flops": problem.product_flops,
        "rungs": [step.as_dict() for step in steps],
        "versions": {
            "python": platform.python_version(),
            "numba-gemm": __version__,
            **{name: version(name) for name in ("numba", "numba-cuda", "numpy")},
        },
    }


# inspect ------------------------------------------------------------------------------------------


def _runs_on(rung: Rung, arch: str) -> bool:
    """Whether an architecture such as sm_75 has what the rung needs; others refuse odd names."""
    known = re.fullmatch(r"sm_(\d+)(\d)", arch)
    return not known or rung.requires <= (int(known[1]), int(known[2]))


def _inspect(options: argparse.Namespace) -> int:
    _launch_nothing(compile_only=True)
    from . import codegen
    from .rungs import LADDER

    names = options.rungs or [rung.name for rung in LADDER if _runs_on(rung, options.arch)]
    try:
        reports = codegen.inspect_many([codegen.Job(name, options.arch) for name in names])
    except (ValueError, codegen.CodegenError) as error:
        raise InputError(str(error)) from error
    if options.json:
        print(json.dumps([report.as_dict(sass=options.sass) for report in reports], indent=2))
        return 0
    console = terminal.stdout()
    terminal.show(console, _inspect_table(options.arch, reports))
    for name in dict.fromkeys(names):
        rung = next((rung for rung in LADDER if rung.name == name and rung.split), None)
        same = [
            other.name for other in LADDER if rung and other is not rung and other.kernel is rung.kernel
        ]
        if same:
            console.print(
                f"{name}: the figures are those of the kernel that computes whole tiles, which is "
                f"{same[0]}'s. Where blocks share tiles, it launches others, which are not shown.",
                highlight=False,
            )
    if options.sass:
        for report in reports:
            print(report.sass)
    return 0


def _inspect_table(arch: str, reports: Sequence[Report]) -> Table:
    table = terminal.table(
        f"Compiled for {arch}: registers a thread; instructions of the hottest loop for one k, and all"
    )
    table.add_column("rung", no_wrap=True)
    for heading in ("registers", "spilled", "shared", "for one k", "FFMA"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("in the loop", min_width=24)
    for report in reports:
        spilled = report.spill_store_bytes + report.spill_load_bytes
        loop = report.loop
        table.add_row(
            report.rung,
            str(report.registers),
            f"[bold red]{spilled} B[/]" if spilled else "0 B",
            f"{report.shared_bytes} B",
            f"{loop.per_k_step:.1f}" if loop else "",
            f"{loop.ffma_share:.0%}" if loop else "",
            ", ".join(f"{count} {opcode}" for opcode, count in loop.mix.items()) if loop else "",
        )
    return table


# model --------------------------------------------------------------------------------------------


def _model(options: argparse.Namespace) -> int:
    if not options.measure_waves:
        _launch_nothing()
    from . import model_command

    return _explain(options) if options.explain else model_command.run(options)


def _explain(options: argparse.Namespace) -> int:
    for name in ("tile", "plot", "json", "measure_waves"):
        if getattr(options, name):
            raise InputError(f"--explain and --{name.replace('_', '-')} exclude each other")
    try:
        from . import dispatch, operands
        from .model import devices
        from .problem import Problem

        gpu = devices.named(options.gpu) if options.gpu else devices.current() or devices.named("H200")
    except (RuntimeError, ValueError) as error:
        raise InputError(str(error)) from error
    if max(options.shape) > operands.MAX_SIZE:
        raise InputError(
            f"--shape has {max(options.shape)}; no size may be more than {operands.MAX_SIZE}"
        )
    print(dispatch.explain(Problem(*options.shape), gpu))
    return 0


# tune ---------------------------------------------------------------------------------------------


def _add_tune(commands: Any) -> None:
    tune = commands.add_parser(
        "tune",
        help="search for the fastest tile parameters on this GPU",
        description="Time every legal tile of a rung on this GPU, the slower ones briefly, check the "
        "fastest against numpy and keep it for gemm to use. The same command goes on where an "
        "interrupted one stopped.",
    )
    tune.add_argument("--rung", metavar="R", help="(default: the highest that the GPU can run)")
    tune.add_argument(
        "--portfolio",
        action="store_true",
        help="time the few kernels among which gemm chooses instead, by default on its 24 shapes",
    )
    tune.add_argument(
        "--orders",
        type=_size,
        metavar="COUNT",
        help="try so many orders of a thread's columns for the rung's own tile instead of tiles",
    )
    shape = tune.add_mutually_exclusive_group()
    shape.add_argument(
        "--shape", type=_size, nargs=3, metavar=("M", "N", "K"), help="(default 4096 4096 4096)"
    )
    shape.add_argument("--shapes", type=Path, metavar="FILE", help="one M N K a line, # for comments")
    tune.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="for all shapes together (default 180 for each; none for --portfolio)",
    )
    tune.add_argument("--seed", type=_seed, default=0, help="of the operands and the order (default 0)")
    tune.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")
    tune.add_argument("--plot", type=Path, metavar="FILE", help="draw the candidates (PNG, SVG)")
    tune.add_argument(
        "--found",
        type=Path,
        metavar="FILE",
        help="add the winners to FILE, as the package keeps its own",
    )
    tune.add_argument("--dry-run", action="store_true", help="only list what would be tried, in order")
    tune.add_argument(
        "--gpu",
        metavar="NAME",
        help="with --dry-run: the GPU to list for (default: the machine's own, or else H200)",
    )
    tune.set_defaults(command=_tune)


def _seconds(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} should be more than 0")
    return value


def _tune(options: argparse.Namespace) -> int:
    if options.dry_run:
        _launch_nothing()
    try:
        from .search import tune
    except RuntimeError as error:
        raise InputError(str(error)) from error
    return tune.run(options)


# report -------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    _launch_nothing(compile_only=True)
    from . import report_command

    return report_command.run(options)
