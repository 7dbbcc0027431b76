"""What the kernels of a test file compile to, and why others do not, found out with no GPU.

A kernel that is compiled here stands at module level, with the arguments (A, B, C, alpha, beta).
"""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from numba_gemm import codegen
from numba_gemm.codegen import Job, Report, ToolchainError, inspect_many

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")

# inspect_many stops at the first kernel that does not compile; this goes on to the next.
COLLECT_ERRORS = """
import json, sys
from numba_gemm import codegen

def error(job):
    try:
        codegen._compile_and_report(job)
    except codegen.CodegenError as error:
        return str(error)

json.dump([error(codegen.Job.from_dict(job)) for job in json.load(sys.stdin)], sys.stdout)
"""


def compiled(module: str, kernels: list[str]) -> dict[tuple[str, str], Report]:
    """The report on each kernel and architecture; skips the test where the toolkit is missing."""
    pairs = [(kernel, arch) for kernel in kernels for arch in ARCHITECTURES]
    try:
        reports = inspect_many(Job(f"{module}:{kernel}", arch) for kernel, arch in pairs)
    except ToolchainError as error:
        pytest.skip(str(error))
    return dict(zip(pairs, reports, strict=True))


def compiler_errors(module: str, kernels: list[str]) -> dict[str, str | None]:
    """The message with which each kernel is refused, None for one that compiles."""
    jobs = [asdict(Job(f"{module}:{kernel}")) for kernel in kernels]
    done = subprocess.run(
        [sys.executable, "-c", COLLECT_ERRORS],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        env=codegen._compiler_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(kernels, json.loads(done.stdout), strict=True))


def memory_instructions(report: Report) -> list[str]:
    """The opcodes that touch global or shared memory, in order."""
    opcodes, _ = codegen._parse_sass(report.sass)
    return [opcode for opcode in opcodes if opcode.startswith(("LDG", "STG", "LDS", "STS"))]
