"""What the rungs compile to for each architecture, found out with no GPU.

A slow kernel often is a correct one, so the tests that compare with numpy cannot see it: an index
that became signed, a loop that is no longer unrolled, an array that moved from registers to memory.
All of that shows in the machine code, and is held to the budgets below.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from inspect import unwrap

import numpy as np
import pytest

from numba_gemm import LADDER, Tile, codegen, dispatch
from numba_gemm.codegen import CodegenError, Job, Report, ToolchainError, inspect, inspect_many
from numba_gemm.rungs import autotuned, naive, split_k, square
from numba_gemm.target import TARGET, cuda

THREADS_PER_MULTIPROCESSOR = {"sm_80": 2048, "sm_86": 1536, "sm_89": 1536, "sm_90": 2048}
REGISTERS_PER_MULTIPROCESSOR = 64 * 1024


@dataclass(frozen=True)
class Budget:
    """What a rung may cost on every architecture above.

    blocks
        Blocks that its registers have to leave room for on a multiprocessor, as far as their
        threads fit there.
    per_k_step
        Instructions a thread for one step along k.
    loads
        Instructions in the hottest loop that move four floats, or copy without a register, exactly.
    wide_loads
        LDS.128 in the hottest loop, at least: four floats of shared memory in one instruction.
    padding
        Floats of shared memory beside the tiles.
    ffma_share
        The fraction of the instructions that multiply and add, at least.
    """

    blocks: int
    per_k_step: float
    wide_loads: int = 0
    loads: dict[str, int] = field(default_factory=dict)
    padding: int = 0
    ffma_share: float = 0


# Where a number comes from is said beside it.  The slack, half an instruction in a k-step at most, is
# for other versions of the compiler; the index tax, or a loop that is no longer unrolled, costs more.
BUDGETS = {
    # 2 loads, 1 FFMA, and 2 to advance the pointer into B by a row, 64 bits in two additions.  The
    # rest is the control of a loop that is unrolled by 16.  Emitted: 5.4.
    "naive": Budget(blocks=2, per_k_step=5.6),
    "coalesced": Budget(blocks=2, per_k_step=5.6),
    # 1 FFMA, 1 load from Bs and a quarter of one from As, whose rows are read four floats at a
    # time: 2.25.  Filling the tiles costs 19 instructions for 32 k-steps.  Emitted: 2.84.
    "tiled2d": Budget(blocks=2, per_k_step=3, wide_loads=8),
    # 8 FFMA, 1 load from Bs and 8 quarters from As: 11.  Filling the tiles costs 39 to 50
    # instructions, and a chunk has only 8 k-steps to share them.  Emitted: 15.9, sm_90 17.3.
    "column": Budget(blocks=3, per_k_step=17.5, wide_loads=16),
    # 64 FFMA and 16 quarter loads: 68.  Filling the tiles, 8 elements a thread with their bounds and
    # 64-bit addresses, costs 115 to 129 for 8 k-steps.  Emitted: 82.4, sm_90 84.1.
    "square": Budget(blocks=2, per_k_step=84.5, wide_loads=32),
    # 64 FFMA and 4 loads of four floats: 68.  Two of them fetch a chunk, five store it.  Emitted: 71.5.
    "vectorized": Budget(
        blocks=2, per_k_step=72, wide_loads=32, loads={"LDG.E.128": 2, "STS.128": 1, "STS": 4}
    ),
    # 64 FFMA and 5 loads of four floats: 69.  Half the rows, and twice the depth.  Emitted: 72.7, 72.9.
    "autotuned": Budget(
        blocks=4, per_k_step=73.2, wide_loads=80, loads={"LDG.E.128": 6, "STS.128": 4, "STS": 8}
    ),
    # 68 again, and what fetches a chunk is shared by 16 k-steps.  Emitted: 70.9.
    "warptiled": Budget(
        blocks=2, per_k_step=71.2, wide_loads=64, loads={"LDG.E.128": 4, "STS.128": 2, "STS": 8}
    ),
    "padded": Budget(
        blocks=2,
        per_k_step=71.2,
        wide_loads=64,
        loads={"LDG.E.128": 4, "STS.128": 2, "STS": 8},
        padding=16 * 4,
    ),
    # 128 FFMA and 6 loads of four floats: 134.  14 instructions fetch and store a chunk of 8 k; the
    # rest are addresses, some 40.  Emitted: 141.4 to 142.
    "double_buffered": Budget(
        blocks=2,
        per_k_step=142.5,
        wide_loads=48,
        loads={"LDG.E.128": 4, "STS.128": 2, "STS": 8},
        padding=2 * 8 * 4,
        ffma_share=0.9,
    ),
    # 134 again, and 6 copies instead of the 14.  Emitted: 140.
    "async_copy": Budget(
        blocks=1,
        per_k_step=140.5,
        wide_loads=48,
        loads={"LDGSTS.E": 4, "LDGSTS.E.BYPASS.128": 2, "STS": 0, "LDG.E": 0},
        padding=2 * 8 * 8,
        ffma_share=0.91,
    ),
    # The same kernel; those for a part of the tiles are below.
    "split_k": Budget(blocks=1, per_k_step=140.5, wide_loads=48, padding=2 * 8 * 8, ffma_share=0.91),
}

# Their tiles are given, as autotuned has other ones, and would need other budgets, on other GPUs.
LADDER_JOBS = [Job(rung.name, arch, rung.tile) for rung in LADDER for arch in THREADS_PER_MULTIPROCESSOR]
shared_kernel = split_k.build_shared()
SHARED_JOBS = [
    Job(f"{__name__}:shared_kernel", arch, split_k.TILE) for arch in THREADS_PER_MULTIPROCESSOR
]
"""The kernel that split_k launches where blocks share tiles: the fastest of the ladder."""

SMALL_TILE = Tile(BM=64, BN=64, BK=8, TM=4, TN=4)


# Kernels that do what a rung must not, to see that it would be noticed.


@cuda.jit
def plain_indices(A, B, C, alpha, beta):
    """The loop of the naive rung with the integers that Python has."""
    row = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    col = cuda.blockIdx.y * 32 + cuda.threadIdx.y
    if row < C.shape[0] and col < C.shape[1]:
        total = np.float32(0)
        for k in range(A.shape[1]):
            total += A[row, k] * B[k, col]
        C[row, col] = alpha * total


@cuda.jit
def run_time_subscript(A, B, C, alpha, beta):
    """A local array that cannot live in registers, which have no addresses."""
    sums = cuda.local.array(16, np.float32)
    for i in range(16):
        sums[i] = 0
    for k in range(A.shape[1]):
        sums[int(A[0, k])] += alpha
    for i in range(16):
        C[0, i] = sums[i]


@cuda.jit
def without_types(A, B, C, alpha, beta):
    """A kernel that Numba refuses."""
    C[0, 0] = A.no_such_attribute


CRAMPED = {} if TARGET.is_simulator else {"max_registers": 64}  # it has no registers to limit
cramped = cuda.jit(**CRAMPED)(unwrap(square.kernel))
"""The square rung with fewer registers than it has sums and fragments."""


def here(kernel: str, tile: Tile | None = None) -> Job:
    """The job for a kernel of this file."""
    return Job(f"{__name__}:{kernel}", tile=tile)


@pytest.fixture(scope="module")
def reports() -> dict[Job, Report]:
    """Everything that is compiled successfully, at once: starting the compiler takes a second."""
    jobs = [
        *LADDER_JOBS,
        Job("square", tile=SMALL_TILE),
        *SHARED_JOBS,
        here("plain_indices"),
        here("run_time_subscript"),
        here("cramped", square.TILE),
    ]
    try:
        return dict(zip(jobs, inspect_many(jobs), strict=True))
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(params=LADDER_JOBS, ids=lambda job: f"{job.rung}-{job.arch}")
def job(request) -> Job:
    """A rung and an architecture."""
    return request.param


@pytest.fixture
def report(job, reports) -> Report:
    """What the rung became on the architecture."""
    return reports[job]


# The rungs ---------------------------------------------------------------------------------------


def test_every_rung_has_a_budget():
    assert list(BUDGETS) == [rung.name for rung in LADDER]


def test_nothing_is_kept_in_local_memory(report):
    assert (report.spill_store_bytes, report.spill_load_bytes, report.stack_bytes) == (0, 0, 0)
    assert (report.local_loads, report.local_stores) == (0, 0)


def test_shared_memory_is_the_tiles(report):
    tile_bytes = report.tile.shared_bytes if report.tile else 0
    assert report.shared_bytes == tile_bytes + 4 * BUDGETS[report.rung].padding


def test_loads_and_stores_of_a_chunk(report):
    for opcode, count in BUDGETS[report.rung].loads.items():
        assert report.loop.mix.get(opcode, 0) == count, opcode


def test_most_instructions_multiply(report):
    assert report.loop.ffma_share >= BUDGETS[report.rung].ffma_share


def test_registers_leave_room_for_the_blocks(report):
    threads = dispatch.named(report.rung).geometry(1, 1).threads
    room = THREADS_PER_MULTIPROCESSOR[report.arch] // threads
    blocks = min(BUDGETS[report.rung].blocks, room)
    assert report.registers <= REGISTERS_PER_MULTIPROCESSOR // (threads * blocks)


def test_instructions_a_k_step(report):
    assert report.loop.per_k_step <= BUDGETS[report.rung].per_k_step


def test_shared_memory_is_read_four_floats_at_a_time(report):
    assert report.loop.mix.get("LDS.128", 0) >= BUDGETS[report.rung].wide_loads


def test_loop_is_the_one_over_whole_k_steps(report):
    assert report.loop.k_steps >= 1
    assert report.loop.k_steps == int(report.loop.k_steps)


def test_another_tile(reports):
    report = reports[Job("square", tile=SMALL_TILE)]
    assert report.tile == SMALL_TILE
    assert report.shared_bytes == SMALL_TILE.shared_bytes
    assert report.registers < reports[Job("square", tile=square.TILE)].registers
    assert report.loop.k_steps == int(report.loop.k_steps)


@pytest.mark.usefixtures("reports")
def test_the_tile_is_that_of_the_architecture():
    """Where none is given, a rung that has several has the one for that compute capability."""
    assert inspect("autotuned", "sm_86").tile == autotuned.FOUND[8, 6]


@pytest.mark.parametrize("job", SHARED_JOBS, ids=lambda job: job.arch)
def test_the_kernel_of_shared_tiles(job, reports):
    """Nothing in local memory, as fast a loop as the kernel of whole tiles, and one block fits."""
    report = reports[job]
    assert (report.spill_store_bytes, report.spill_load_bytes, report.stack_bytes) == (0, 0, 0)
    assert report.loop.per_k_step <= BUDGETS["split_k"].per_k_step
    assert report.loop.ffma_share >= BUDGETS["split_k"].ffma_share


# Would it be noticed? ----------------------------------------------------------------------------


def test_index_tax_would_be_noticed(reports):
    taxed = reports[here("plain_indices")].loop.per_k_step
    assert taxed > 3 * reports[Job("naive")].loop.per_k_step
    assert taxed > BUDGETS["naive"].per_k_step


def test_spills_would_be_noticed(reports):
    report = reports[here("cramped", square.TILE)]
    assert report.registers <= 64
    assert report.stack_bytes > 0
    assert report.local_loads > 0
    assert report.local_stores > 0
    assert any(opcode.startswith("LDL") for opcode in report.loop.mix)
    # The kernel has no other use for local memory, so the assembler's count is what it emitted.
    assert report.spill_load_bytes == bytes_moved("LDL", report.sass)
    assert report.spill_store_bytes == bytes_moved("STL", report.sass)


def bytes_moved(opcode: str, sass: str) -> int:
    """The sum over all such instructions; one without a width moves 32 bits."""
    instructions = re.findall(rf" {opcode}[.\w]*", sass)
    widths = [re.search(r"\.(64|128)", instruction) for instruction in instructions]
    return sum(int(width[1]) if width else 32 for width in widths) // 8


def test_arrays_in_local_memory_would_be_noticed(reports):
    report = reports[here("run_time_subscript")]
    assert report.stack_bytes == 16 * 4
    assert report.spill_store_bytes == 0
    assert report.local_loads > 0
    assert report.local_stores > 0
    assert report.loop is None


@pytest.mark.usefixtures("reports")
@pytest.mark.skipif(not TARGET.is_gpu, reason="needs a GPU to launch on")
def test_a_launch_gets_the_same():
    matrix = cuda.device_array((1, 1), np.float32)
    kernel = cuda.jit(unwrap(naive.kernel))
    kernel[(1, 1), (32, 32)](matrix, matrix, matrix, np.float32(1), np.float32(0))
    [registers] = kernel.get_regs_per_thread().values()
    major, minor = cuda.get_current_device().compute_capability
    assert inspect("naive", f"sm_{major}{minor}").registers == registers


# Reading the disassembly -------------------------------------------------------------------------

SASS = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_1:
        /*0020*/              @!P0 LDS.64 R8, [R3+0x8] ;
        /*0030*/                   FFMA R0, R4, R8, R0 ;
        /*0040*/                   FFMA.FTZ R1, R5, R9, R1 ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   FFMA R0, R4, R8, R0 ;
        /*0070*/                   FFMA R0, R4, R8, R0 ;
        /*0080*/                   FFMA R0, R4, R8, R0 ;
        /*0090*/               @P2 BRA `(.L_x_3) ;
        /*00a0*/                   BRA.U UP0, `(.L_x_0) ;
.L_x_2:
        /*00b0*/                   FFMA R0, R4, R8, R0 ;
        /*00c0*/              @!P0 BRA `(.L_x_2) ;
.L_x_3:
        /*00d0*/                   EXIT ;
.L_x_4:
        /*00e0*/                   BRA `(.L_x_4);
        /*00f0*/                   NOP;
        /*0100*/                   NOP;
"""


def test_loops_are_found_and_padding_is_not_counted():
    opcodes, loops = codegen._parse_sass(SASS)
    assert len(opcodes) == 14
    assert opcodes[-1] == "EXIT"
    assert loops == [range(2, 6), range(1, 11), range(11, 13)]


def test_hottest_loop_is_an_innermost_one():
    loop = codegen._hottest_loop(*codegen._parse_sass(SASS), entries=2)
    assert loop.mix == {"FFMA": 2, "LDS.64": 1, "BRA": 1}
    assert (loop.instructions, loop.k_steps, loop.per_k_step, loop.ffma_share) == (4, 1, 4, 0.5)


def test_assembler_log():
    log = (
        "ptxas         .     88 bytes stack frame, 232 bytes spill stores, 236 bytes spill loads\n"
        "ptxas info    : Used 64 registers, used 1 barriers, 88 bytes cumulative stack size, "
        "8192 bytes smem\n"
    )
    assert codegen._parse_assembler_log(log) == {
        "registers": 64,
        "spill_store_bytes": 232,
        "spill_load_bytes": 236,
        "stack_bytes": 88,
    }
    with pytest.raises(CodegenError, match="registers"):
        codegen._parse_assembler_log("")


# Reports and errors ------------------------------------------------------------------------------


def test_report_survives_json(report):
    copy = Report.from_dict(json.loads(json.dumps(report.as_dict())))
    assert copy == report
    assert copy.sass == ""
    assert Report.from_dict(report.as_dict(sass=True)).sass == report.sass


def test_json_has_what_follows_from_the_loop(reports):
    loop = reports[Job("naive")].as_dict()["loop"]
    assert loop["instructions"] == sum(loop["mix"].values())
    assert loop["per_k_step"] == loop["instructions"] / loop["k_steps"]
    assert loop["ffma_share"] == loop["mix"]["FFMA"] / loop["instructions"]


def test_disassembly_is_at_hand_but_not_in_the_way(reports):
    report = reports[Job("square", tile=square.TILE)]
    assert "FFMA" in report.sass
    assert "sass" not in repr(report)


def test_no_jobs_no_reports():
    assert inspect_many([]) == []


def test_target_of_the_caller_does_not_matter(monkeypatch, reports):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setenv("NUMBA_GEMM_TARGET", "simulator")
    assert inspect("naive", "sm_90") == reports[Job("naive", "sm_90")]


def test_importing_decides_nothing():
    program = (
        "import sys, numba_gemm.codegen; "
        "print([name for name in ('numba', 'numba_gemm.target') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


ERRORS = {
    "unknown rung": (Job("cube"), ValueError, "'cube'.*naive, coalesced, tiled2d"),
    "no architecture": (Job("naive", "sm_9x"), ValueError, "arch is 'sm_9x'.*sm_80, sm_86"),
    "unknown architecture": (Job("naive", "sm_81"), ValueError, "arch is 'sm_81'.*sm_80, sm_86"),
    "illegal tile": (
        Job("square", tile=replace(SMALL_TILE, TM=3)),
        ValueError,
        "TM=3 does not divide BM=64",
    ),
    "tile for a rung without": (
        Job("naive", tile=SMALL_TILE),
        ValueError,
        "naive has no tile parameters",
    ),
    "unknown module": (Job("no_such_module:kernel"), ValueError, "cannot be imported"),
    "unknown kernel": (here("no_such_kernel"), ValueError, "cannot be imported.*no_such_kernel"),
    "not a kernel": (here("here"), ValueError, "is no @cuda.jit kernel"),
    "does not compile": (
        here("without_types"),
        CodegenError,
        r"(?s)does not compile for sm_90.*no_such_attribute",
    ),
}


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(("job", "error", "message"), ERRORS.values(), ids=ERRORS)
def test_error_reaches_the_caller(job, error, message):
    with pytest.raises(error, match=message):
        inspect_many([job])


def test_architecture_older_than_the_rung_requires(monkeypatch):
    monkeypatch.setattr("numba_gemm.rungs.LADDER", [replace(naive.RUNG, requires=(9, 0))])
    codegen._find_kernel(Job("naive", "sm_90"), (9, 0))
    with pytest.raises(ValueError, match=r"arch is 'sm_80'.*sm_90"):
        codegen._find_kernel(Job("naive", "sm_80"), (8, 0))


def test_compiler_that_dies(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback >&2\necho 'MemoryError: enough' >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(CodegenError, match="ended with 3: MemoryError: enough"):
        inspect("naive")


def test_missing_tool(monkeypatch):
    pathfinder = pytest.importorskip("cuda.pathfinder")
    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match=r"nvdisasm.*pip install nvidia-cuda-nvdisasm"):
        codegen._find_tool("nvdisasm", "nvidia-cuda-nvdisasm")


def test_missing_library(monkeypatch):
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def nowhere(name):
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", nowhere)
    with pytest.raises(ToolchainError, match=re.escape("numba-gemm[cu13]")):
        codegen._require_libraries()
