"""Wavefronts that the profiler counts, beside those of ``numba_gemm.model.banks``.

    python bench/bank_conflicts.py

on a GPU, with NVIDIA's ``ncu`` on the path, profiles one request of a warp after another, each many
times, and prints for each what was counted for one and what the model says; the exit status is 1
where they differ.  The kernels, in ``bank_kernels.py``, do nothing else to shared memory with the
kind of request that is counted.
``--json FILE`` writes the table as well, and ``--model`` prints the model's part, for which no GPU is
needed.  By hand:

    ncu --csv --metrics l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum,\
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum python bench/bank_conflicts.py --launch

``--launch`` only launches the kernels, in the order of the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from numba_gemm.model import banks
from numba_gemm.model.banks import Access
from numba_gemm.tile import Tile

REPEATS = 1000

METRIC = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"

LANES = np.arange(32)
BLOCK = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
WARPS = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=64, WN=32)
WIDE = Tile(BM=128, BN=256, BK=8, TM=8, TN=16, WM=64, WN=64, stages=2)


def cases() -> list[tuple[str, Access]]:
    """Every request and where it comes from: what is certain first, then the rungs' layouts."""
    found = [
        ("neighbours", Access(4 * LANES, what="read 1 float")),
        ("a column of 32 x 32", Access(128 * LANES, what="read 1 float")),
        ("a column of 32 x 33", Access(132 * LANES, what="read 1 float")),
        ("neighbours", Access(16 * LANES, 16, what="read 4 floats")),
        ("all the same", Access(0 * LANES, 16, what="read 4 floats")),
        ("the same in pairs", Access(16 * (LANES // 2), 16, what="read 4 floats")),
        ("lane % 2", Access(16 * (LANES % 2), 16, what="read 4 floats")),
        ("lane % 4", Access(16 * (LANES % 4), 16, what="read 4 floats")),
        ("every other four", Access(32 * LANES, 16, what="read 4 floats")),
    ]
    for name, tile in (
        ("unpadded", BLOCK),
        ("unpadded", WARPS),
        ("padded", WARPS),
        ("linearized", BLOCK),
        ("split", WARPS),
        ("asynchronous", WIDE),
    ):
        kind = "warp tiles" if tile.WM else "no warp tiles"
        found += [(f"{name}, {kind}", access) for access in banks.layout(name, tile)]
    return found


def launch(access: Access, repeats: int = REPEATS) -> np.ndarray:
    """Do *access* so often; what each lane read, added up, or what is last where it stored."""
    import bank_kernels  # only now: it looks for a GPU

    from numba_gemm.target import cuda

    words = cuda.to_device((access.addresses // 4).astype(np.int64))
    out = cuda.to_device(np.zeros(32, np.float32))
    bank_kernels.OF_KIND[access.width, access.store][1, 32](words, repeats, out)
    return out.copy_to_host()


def profile() -> list[float]:
    """Wavefronts for one request of each case, counted by ncu."""
    metrics = ",".join(METRIC.format(kind) for kind in ("ld", "st"))
    here = [sys.executable, str(Path(__file__).resolve()), "--launch"]
    done = subprocess.run(
        ["ncu", "--csv", "--metrics", metrics, *here], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"ncu failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return parse(done.stdout)


def parse(text: str) -> list[float]:
    """Wavefronts for one request of each case from what ncu printed, in the order of the launches."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit(f"ncu printed no table:\n{text[-2000:]}")
    counted: dict[tuple[int, str], float] = {}
    for row in csv.DictReader(lines[start:]):
        counted[int(row["ID"]), row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    launches = sorted({number for number, _ in counted})
    if len(launches) != len(cases()):
        raise SystemExit(f"ncu saw {len(launches)} launches; there should be {len(cases())}")
    kinds = ["st" if access.store else "ld" for _, access in cases()]
    return [
        counted[number, METRIC.format(kind)] / REPEATS
        for number, kind in zip(launches, kinds, strict=True)
    ]


def main() -> int:
    """Profile, compare and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table to FILE as well")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--model", action="store_true", help="print the model's part; needs no GPU")
    only.add_argument("--launch", action="store_true", help="only launch the kernels, for ncu")
    options = parser.parse_args()
    if options.launch:
        for _, access in cases():
            launch(access)
        return 0
    if not options.model and shutil.which("ncu") is None:
        print("ncu is not on the path; --model prints the model's part", file=sys.stderr)
        return 2
    measured = [None] * len(cases()) if options.model else profile()
    rows = [
        {"from": name, "request": access.what, "model": access.wavefronts, "measured": count}
        for (name, access), count in zip(cases(), measured, strict=True)
    ]
    print(f"{'':34}{'request':21}{'model':>6}{'measured':>10}")
    for row in rows:
        count = "" if row["measured"] is None else f"{row['measured']:.2f}"
        print(f"{row['from']:34}{row['request']:21}{row['model']:6}{count:>10}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    # Out of a thousand requests, a few wavefronts more are the kernel's beginning and end.
    return int(any(row["measured"] and abs(row["measured"] - row["model"]) > 0.05 for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
