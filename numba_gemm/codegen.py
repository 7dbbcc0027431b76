"""Compile a rung for an architecture with no GPU: registers, spills, instruction mix.

>>> from numba_gemm.codegen import inspect
>>> report = inspect("square", arch="sm_90")
>>> print(report.registers, report.spill_load_bytes, report.loop.per_k_step, report.loop.mix)

A kernel is compiled as it is for a launch, with the options of its own ``@cuda.jit``: Numba and
libNVVM make LTO IR of it and nvJitLink makes machine code (SASS) of that.  The assembler inside
nvJitLink says how many registers and bytes it needed; nvdisasm says which instructions came out.

Numba compiles for a GPU only where it was not imported for the simulator, so the work is done in a
process of its own: ``python -m numba_gemm.codegen`` reads jobs and writes reports, both as JSON.
Importing this module neither imports :mod:`numba.cuda` nor decides where kernels run.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .tile import RESERVED_SHARED_BYTES, Tile

__all__ = [
    "CodegenError",
    "Job",
    "Loop",
    "Report",
    "ToolchainError",
    "inspect",
    "inspect_many",
]


class CodegenError(RuntimeError):
    """The kernel could not be compiled; the message says why."""


class ToolchainError(CodegenError):
    """A part of the CUDA toolkit is missing; the message says which pip package brings it."""


# What is asked and answered ----------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One kernel to compile for one architecture.

    rung
        The name of a rung, or ``"module:attribute"`` for any other ``@cuda.jit`` kernel that can be
        imported.  Of its arguments, those in capitals are float32 matrices, alpha and beta float32 and
        all others int64.
    arch
        The architecture as the CUDA toolkit spells it, ``"sm_90"`` for compute capability 9.0.
    tile
        Tile parameters; None is the rung's own for that architecture.  A kernel that is no rung is what
        it is, and the tile only says how many entries a thread computes (one where it is None).
    """

    rung: str
    arch: str = "sm_90"
    tile: Tile | None = None

    def __post_init__(self) -> None:
        for name, kind in (("rung", str), ("arch", str), ("tile", Tile | None)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                wanted = "a Tile or None" if name == "tile" else "a string"
                raise TypeError(f"{name} is a {type(value).__name__}; it should be {wanted}")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Job:
        """The job that :func:`dataclasses.asdict` took apart."""
        return cls(data["rung"], data["arch"], _tile_from_dict(data["tile"]))


@dataclass(frozen=True)
class Loop:
    """The instructions of one pass through a loop.

    mix
        How often each opcode occurs, most frequent first.  Loads and stores keep their widths and
        other modifiers (``LDS.128``, ``LDG.E``), all others are counted under their bare name.
        Every instruction counts once, whether or not its predicate lets it execute.
    k_steps
        Steps along k in one pass: FFMA instructions for each entry of C that the thread computes.
    """

    mix: dict[str, int]
    k_steps: float

    @property
    def instructions(self) -> int:
        """Instructions in the loop."""
        return sum(self.mix.values())

    @property
    def per_k_step(self) -> float:
        """Instructions for one step along k."""
        return self.instructions / self.k_steps

    @property
    def ffma_share(self) -> float:
        """The fraction of the instructions that are multiply-adds, from 0 to 1."""
        return self.mix["FFMA"] / self.instructions

    def as_dict(self) -> dict[str, Any]:
        """The loop and what follows from it, ready for JSON."""
        return {
            "instructions": self.instructions,
            "k_steps": self.k_steps,
            "per_k_step": self.per_k_step,
            "ffma_share": self.ffma_share,
            "mix": self.mix,
        }


@dataclass(frozen=True)
class Report:
    """What a kernel became on one architecture.

    rung, arch, tile
        As in the :class:`Job`, the rung's own tile filled in; None for a kernel without one.
    registers
        Registers a thread.
    spill_store_bytes, spill_load_bytes
        Bytes a thread that the assembler stores and loads because its registers did not suffice.
    stack_bytes
        Bytes of local memory a thread: spilled registers, and arrays with subscripts that are not
        constants.
    shared_bytes
        Bytes of static shared memory a block that the kernel declares.  From compute capability 8.0
        on a block takes another 1024, which CUDA reserves for itself.
    local_loads, local_stores
        LDL and STL instructions, which go to local memory.
    instructions
        Instructions in the whole kernel, without the padding at its end.
    loop
        The hottest loop: of the loops with multiply-adds that contain no other such loop, the one
        with the most, and of several with as many the shortest: a kernel may have a longer one for
        operands that are not aligned.  None where a kernel has none.  Where the loop over BK is
        unrolled, it is the loop over chunks of k, so that filling the tiles counts too.
    sass
        The disassembly.
    """

    rung: str
    arch: str
    tile: Tile | None
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    local_loads: int
    local_stores: int
    instructions: int
    loop: Loop | None
    sass: str = field(default="", repr=False, compare=False)

    def as_dict(self, *, sass: bool = False) -> dict[str, Any]:
        """The report ready for JSON, with the disassembly if *sass* is true."""
        data = asdict(self) | {"loop": self.loop and self.loop.as_dict()}
        if not sass:
            del data["sass"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """The report that :meth:`as_dict` took apart."""
        loop = data["loop"] and Loop(data["loop"]["mix"], data["loop"]["k_steps"])
        return cls(**data | {"tile": _tile_from_dict(data["tile"]), "loop": loop})


def _tile_from_dict(data: dict[str, Any] | None) -> Tile | None:
    return None if data is None else Tile(**data)


ENOUGH_FOR_A_PROCESS = 4
"""Kernels that are worth the start of another process."""


# In the caller's process -------------------------------------------------------------------------


def inspect(rung: str, arch: str = "sm_90", tile: Tile | None = None) -> Report:
    """Compile one kernel and report; the arguments are those of a :class:`Job`.

    Raises what :func:`inspect_many` raises.
    """
    [report] = inspect_many([Job(rung, arch, tile)])
    return report


def inspect_many(jobs: Iterable[Job]) -> list[Report]:
    """Compile all *jobs* in other processes and report on each, in their order.

    Starting a process takes a second or two, and each kernel half a second to five; where there are many
    they are dealt out among as many processes as there are processors.

    Raises ValueError for an unknown rung, an illegal tile and an architecture that the toolkit does
    not know or the rung does not run on; ToolchainError where libNVVM, nvJitLink or nvdisasm is not
    installed; CodegenError where a kernel does not compile.
    """
    request = [asdict(job) for job in jobs]
    if not request:
        return []
    processes = min(os.cpu_count() or 1, len(request) // ENOUGH_FOR_A_PROCESS) or 1
    with ThreadPoolExecutor(processes) as pool:
        answers = list(pool.map(_ask_compiler, (request[n::processes] for n in range(processes))))
    reports: list[Any] = [None] * len(request)
    for n, answer in enumerate(answers):
        if "error" in answer:
            raise _ERRORS[answer["error"]](answer["message"])
        reports[n::processes] = map(Report.from_dict, answer["reports"])
    return reports


_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (ValueError, ToolchainError, CodegenError)
}
"""The errors that travel from one process to the other, the most specific first."""


def _compiler_environment() -> dict[str, str]:
    """The environment of a process that compiles: it can import whatever this one can."""
    environment = dict(os.environ)
    environment.pop("NUMBA_ENABLE_CUDASIM", None)
    environment["NUMBA_GEMM_TARGET"] = "compiler"
    # A kernel may live in a test or a script.
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    return environment


def _ask_compiler(request: list[dict[str, Any]]) -> dict[str, Any]:
    """Hand *request* to :func:`main` in a new process; its answer."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=_compiler_environment(),
        check=False,
    )
    if done.returncode:
        last_line = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise CodegenError(f"the compiling process ended with {done.returncode}: {last_line}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# In the compiling process ------------------------------------------------------------------------


def main() -> None:
    """Answer a list of jobs on stdin with reports, or with the first error, on stdout, as JSON."""
    jobs = [Job.from_dict(job) for job in json.load(sys.stdin)]
    answer: dict[str, Any]
    with contextlib.redirect_stdout(sys.stderr):  # a kernel's module may print when it is imported
        try:
            _require_libraries()
            answer = {"reports": [_compile_and_report(job).as_dict(sass=True) for job in jobs]}
        except tuple(_ERRORS.values()) as error:
            name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
            answer = {"error": name, "message": str(error)}
    json.dump(answer, sys.stdout)


def _require_libraries() -> None:
    """Raise ToolchainError unless the libraries that Numba compiles with can be loaded."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    for library in ("nvvm", "nvrtc", "nvJitLink"):
        try:
            load_nvidia_dynamic_lib(library)
        except DynamicLibNotFoundError as error:
            raise ToolchainError(
                f"the CUDA library {library} is not installed; pip install 'numba-gemm[cu13]' brings it"
            ) from error


def _find_tool(name: str, package: str) -> str:
    """Where an executable of the CUDA toolkit is: in site-packages, Conda, CUDA_HOME or on PATH."""
    from cuda.pathfinder import find_nvidia_binary_utility

    found = find_nvidia_binary_utility(name) or shutil.which(name)
    if found is None:
        raise ToolchainError(f"{name} is not installed; pip install {package} brings it")
    return found


def _compile_and_report(job: Job) -> Report:
    capability = _compute_capability(job.arch)
    kernel, tile = _find_kernel(job, capability)
    try:
        cubin, log = _compile(kernel, capability)
    except Exception as error:  # Numba, libNVVM and nvJitLink each have a family of their own
        raise CodegenError(
            f"{job.rung} does not compile for {job.arch}: {type(error).__name__}: {error}"
        ) from error

    sass = _disassemble(cubin)
    opcodes, loops = _parse_sass(sass)
    return Report(
        rung=job.rung,
        arch=job.arch,
        tile=tile,
        **_parse_assembler_log(log),
        shared_bytes=_shared_bytes(cubin, capability),
        local_loads=sum(opcode.startswith("LDL") for opcode in opcodes),
        local_stores=sum(opcode.startswith("STL") for opcode in opcodes),
        instructions=len(opcodes),
        loop=_hottest_loop(opcodes, loops, tile.TM * tile.TN if tile else 1),
        sass=sass,
    )


def _compute_capability(arch: str) -> tuple[int, int]:
    """``"sm_90"`` as (9, 0); ValueError where the toolkit does not compile for it."""
    from cuda.bindings import nvrtc

    _, known = nvrtc.nvrtcGetSupportedArchs()
    names = [f"sm_{number}" for number in known]
    if arch not in names:
        raise ValueError(
            f"arch is {arch!r}; it should be one that this CUDA toolkit compiles for: {', '.join(names)}"
        )
    return divmod(int(arch.removeprefix("sm_")), 10)


def _find_kernel(job: Job, capability: tuple[int, int]) -> tuple[Any, Tile | None]:
    """The kernel that *job* names and its tile; ValueError where there is none."""
    if ":" in job.rung:
        return _import_kernel(job.rung), job.tile

    from .rungs import named

    rung = named(job.rung)
    if capability < rung.requires:
        major, minor = rung.requires
        raise ValueError(f"arch is {job.arch!r}; {rung.name} needs sm_{major}{minor} or later")
    tile = job.tile or rung.tile_on(capability)
    return rung.build(tile), tile


def _import_kernel(name: str) -> Any:
    """The kernel ``"module:attribute"``."""
    from .target import cuda  # decides, before the kernel's module imports numba.cuda

    module, _, attribute = name.partition(":")
    try:
        kernel = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"rung is {name!r}, which cannot be imported: {error}") from error
    if not isinstance(kernel, cuda.dispatcher.CUDADispatcher):
        raise ValueError(f"rung is {name!r}, which is no @cuda.jit kernel")
    return kernel


def _compile(kernel: Any, capability: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin of *kernel* and the assembler's log, by the steps that Numba takes for a launch."""
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import cuda

    major, minor = capability
    suffix = "a" if capability >= (9, 0) else ""  # as Numba: all that this very GPU can do
    matrix, scalar, integer = cuda.types.float32[:, ::1], cuda.types.float32, cuda.types.int64
    names = signature(kernel.py_func).parameters
    types = tuple(
        matrix if name.isupper() else scalar if name in ("alpha", "beta") else integer for name in names
    )
    options = kernel.targetoptions
    lto = options["lto"]

    with _stand_in_device(capability):
        code, _ = cuda.compile(
            kernel.py_func,
            types,
            cc=(major, minor, suffix),
            device=False,
            abi="numba",
            output="ltoir" if lto else "ptx",
            **{name: options[name] for name in _COMPILER_OPTIONS},
        )
    linker = Linker(
        ObjectCode.from_ltoir(code) if lto else ObjectCode.from_ptx(code.encode()),
        options=LinkerOptions(
            arch=f"sm_{major}{minor}{suffix}",
            link_time_optimization=lto or None,
            max_register_count=options.get("max_registers"),
            ptxas_options="-v",
        ),
    )
    return linker.link("cubin").code, linker.get_info_log()


_COMPILER_OPTIONS = ("debug", "fastmath", "launch_bounds", "lineinfo", "opt")
"""The options of ``@cuda.jit`` that change the code before it is linked."""


@contextlib.contextmanager
def _stand_in_device(capability: tuple[int, int]) -> Iterator[None]:
    """Let Numba ask the current device for its compute capability where there is none.

    It does so while it types a call of a ``@cuda.jit(device=True)`` function.
    """
    from numba.cuda import dispatcher

    real = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = real


def _disassemble(cubin: bytes) -> str:
    """The SASS in *cubin*, as nvdisasm prints it."""
    nvdisasm = _find_tool("nvdisasm", "nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        done = subprocess.run(
            [nvdisasm, "--print-code", path], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise CodegenError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


# Reading what the tools say ----------------------------------------------------------------------

_FUNCTION = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_ENTRY = re.compile(r"Used (\d+) registers")
_LABEL = re.compile(r"(\.L\w+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?(?P<opcode>[\w.]+)(?P<operands>.*?);")
_TARGET = re.compile(r"`\((\.L\w+)\)")


def _parse_assembler_log(log: str) -> dict[str, int]:
    """What ``ptxas -v`` says about the kernel, together with the functions that it calls."""
    functions = [[int(number) for number in match] for match in _FUNCTION.findall(log)]
    entry = _ENTRY.search(log)
    if not functions or not entry:
        raise CodegenError(f"nvJitLink does not say how many registers it used: {log!r}")
    stack, stores, loads = (sum(column) for column in zip(*functions, strict=True))
    return {
        "registers": int(entry[1]),
        "spill_store_bytes": stores,
        "spill_load_bytes": loads,
        "stack_bytes": stack,
    }


def _shared_bytes(cubin: bytes, capability: tuple[int, int]) -> int:
    """The size of the section ``.nv.shared.*`` of a kernel: its static shared memory.

    The assembler's log leaves it out where PTX is linked.  A cubin is an ELF file of 64 bits.  From
    9.0 on the section has room for what CUDA reserves for itself, too.
    """
    [table] = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + n * size) for n in range(count)]
    names = headers[names_at][4]
    total = 0
    for name, _, _, _, _, length in headers:
        start = names + name
        text = cubin[start : cubin.index(0, start)].decode()
        if text.startswith(".nv.shared.") and not text.startswith(".nv.shared.reserved"):
            total += length
    return total - RESERVED_SHARED_BYTES if total and capability >= (9, 0) else total


def _parse_sass(sass: str) -> tuple[list[str], list[range]]:
    """The opcodes of a kernel in order, and its loops as ranges of them.

    A loop is what lies between a branch and the label before it that it jumps to.
    """
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    loops: list[range] = []
    for line in map(str.strip, sass.splitlines()):
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(line):
            target = _TARGET.search(instruction["operands"])
            if instruction["opcode"].startswith("BRA") and target and target[1] in labels:
                loops.append(range(labels[target[1]], len(opcodes) + 1))
            opcodes.append(instruction["opcode"])

    # A kernel ends in a branch to itself, in case anything runs past its end, and padding of NOPs.
    while opcodes and opcodes[-1] == "NOP":
        opcodes.pop()
    if loops and loops[-1] == range(len(opcodes) - 1, len(opcodes)):
        opcodes.pop()
        loops.pop()
    return opcodes, loops


def _hottest_loop(opcodes: list[str], loops: list[range], entries: int) -> Loop | None:
    """The loop of :attr:`Report.loop`, in a kernel with so many *entries* of C a thread."""
    mixes = {loop: _mix(opcodes[loop.start : loop.stop]) for loop in loops}
    multiplying = [loop for loop in loops if mixes[loop]["FFMA"]]
    innermost = [
        loop for loop in multiplying if not any(_contains(loop, other) for other in multiplying)
    ]
    if not innermost:
        return None
    mix = max((mixes[loop] for loop in innermost), key=lambda mix: (mix["FFMA"], -mix.total()))
    return Loop(dict(mix.most_common()), mix["FFMA"] / entries)


def _contains(outer: range, inner: range) -> bool:
    return outer != inner and outer.start <= inner.start and inner.stop <= outer.stop


def _mix(opcodes: list[str]) -> Counter[str]:
    """How often each opcode occurs; only loads and stores keep their modifiers."""
    return Counter(
        opcode if opcode.startswith(("LD", "ST")) else opcode.partition(".")[0] for opcode in opcodes
    )


if __name__ == "__main__":
    main()
