# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Climbing the GEMM ladder in Python
#
# A matrix multiply is three nested loops. Written so for a GPU, it reaches about a hundredth of
# what the card can do. This notebook climbs from there, in twelve rungs, to the speed of the
# vendor's library. Each rung is one idea, and each is a kernel that you can read here, run here and
# change here: with a GPU at real sizes, or without one in Numba's simulator, where you can also
# stop inside of a kernel and look around.
#
# You need Python and a little CUDA: what a thread, a block and a grid are. Everything else is said
# on the way.
#
# <a id="contents"></a>
#
# **Contents**
#
# - [What a multiply is allowed to cost](#cost)
# - One thread, one entry: [1 naive](#naive) · [2 coalesced](#coalesced)
# - A block shares: [3 tiled2d](#tiled2d) · [Inside a running kernel](#inside)
# - A thread keeps more: [4 column](#column) · [5 square](#square) · [Words of the
#   kernels](#words) · [6 vectorized](#vectorized) · [7 autotuned](#autotuned)
# - The hardware's own shape: [8 warptiled](#warptiled) · [9 padded](#padded) · [10
#   double_buffered](#double_buffered) · [11 async_copy](#async_copy) · [12 split_k](#split_k)
# - What is not a rung: [The fringe and the last wave](#fringe) · [Six parameters, found by
#   search](#search)
# - [What is left, and where the ladder goes next](#next)
#
# After each rung there is an exercise: a kernel with something missing. Change it until the check
# agrees; a solution is folded away below it. *Restart and run all* runs everything, in about a
# minute without a GPU.

# %%
# Install numba_gemm where it is missing, from the clone of the repository that this notebook lies in.
# On Colab, clone the repository first: !git clone <where you found this notebook>
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("numba_gemm") is None:
    here = Path.cwd()
    nearby = [here, *here.parents, *(path for path in here.iterdir() if path.is_dir())]
    clone = next((path for path in nearby if (path / "numba_gemm" / "__init__.py").exists()), None)
    if clone is None:
        raise SystemExit(
            "There is no clone of the repository around: git clone it, and run this cell again."
        )
    extras = "notebook"
    if shutil.which("nvidia-smi"):
        told = subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout
        extras += ",cu13" if "CUDA Version: 13" in told else ",cu12"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "-e", f"{clone}[{extras}]"], check=True
    )
    sys.path.insert(0, str(clone))  # an editable install counts from the next start of Python on

# %%
# fmt: off
from functools import partial

import numpy as np
from IPython.display import Markdown
from numba import float32

from numba_gemm import LADDER, Problem, Tile, debugging, dispatch, harness, plots
from numba_gemm.model import (
    banks, devices, hierarchy, occupancy, prediction, quantization, roofline, traffic,
)
from numba_gemm.model.roofline import tile_intensity
from numba_gemm.plots import Span
from numba_gemm.primitives import (
    block_x, block_y, commit_copies, copy_async, load4, problem_size, thread_x, thread_y, update,
    wait_for_copies,
)
from numba_gemm.rungs import (
    async_copy, autotuned, coalesced, column, double_buffered, naive, padded, split_k, square,
    tiled2d, vectorized, warptiled,
)
from numba_gemm.search.predict import limits
from numba_gemm.search.predict import seconds as ranked_seconds
from numba_gemm.search.space import enumerate_space, short
from numba_gemm.target import TARGET, cuda
from numba_gemm.walkthrough import (
    TILES, able, blocks_of, difference, picture, recorded, recorded_suite, recorded_waves, registers_left,
    run, source, speeds, table, three_digits,
)

# fmt: on
H200 = devices.named("H200")  # the card that the recorded figures are of
SIZE = 4096
problem = Problem(SIZE, SIZE, SIZE)

# %% [markdown]
# That line says where kernels run in this session. Cells that run a kernel say what came out
# **here**, and what was **recorded** on one H200 by the benchmarks in [bench/](../bench/README.md),
# if your copy has the record.
#
# <a id="cost"></a>
# ## What a multiply is allowed to cost
#
# The task is $C \leftarrow \alpha A B + \beta C$ in float32, with A of M x K, B of K x N and C of M
# x N. Before any kernel: what would a perfect one have to pay?
#
# The arithmetic is given. Every entry of C is a sum of K products, so there are 2 M N K operations
# whatever we do. The traffic is not given: at the very least A and B have to be read once and C has
# to be written. How far a kernel stays above that least is what the whole ladder is about.

# %%
seconds = {
    "arithmetic, at the peak": roofline.arithmetic_seconds(problem.product_flops, H200.fp32_peak),
    "memory, each byte once": roofline.memory_seconds(problem.compulsory_bytes, H200.memory_bandwidth),
}
Markdown(
    f"{SIZE} x {SIZE} x {SIZE}: {problem.product_flops / 1e9:.0f} GFLOP and at least "
    f"{problem.compulsory_bytes / 1e6:.0f} MB, {problem.intensity:.0f} FLOP for each byte. On an {H200.name} that takes "
    + " and ".join(f"{1e3 * took:.3g} ms ({what})" for what, took in seconds.items())
    + f". The card can do {roofline.ridge_point(H200.fp32_peak, H200.memory_bandwidth):.1f} FLOP in the time in "
    "which it reads a byte."
)

# %% [markdown]
# The FLOPs per byte are the **arithmetic intensity** of a kernel. Memory alone caps its speed at
# intensity times bandwidth, arithmetic alone caps it at the peak, and where the two caps meet is
# the **ridge point**. A kernel left of it waits for memory; one to the right of it may reach the
# peak.
#
# A perfect multiply lies far to the right. No kernel is perfect: the operands do not fit into a
# core, and are fetched again and again. So the number that counts is the intensity of what a kernel
# *asks for*.
#
# And that has one formula for the whole ladder. A worker that computes m x n entries of C at a time
# needs, for each k, m numbers of A and n of B, and multiplies each with each. It pays m + n and
# gets m n: the squarer and the larger, the better. In float32 it is $mn / 2(m+n)$ FLOP per byte.

# %%
table(
    ["m x n of one worker", "FLOP/byte", f"ceiling on an {H200.name}, TFLOP/s"],
    [
        [
            f"{m} x {n}",
            tile_intensity(m, n),
            roofline.attainable(tile_intensity(m, n), H200.fp32_peak, H200.memory_bandwidth) / 1e12,
        ]
        for m, n in ((1, 1), (32, 32), (64, 64), (128, 128), (128, 256))
    ],
)

# %%
picture(
    plots.roofline(H200, {rung.name: tile_intensity(*rung.reuse) for rung in LADDER}, speeds() or None),
    "The roofline of an H200 with every rung at its intensity: two at 0.25 FLOP per byte, then 8, 16, and up to 43",
)

# %% [markdown]
# Filled points were measured. Where there is no record, hollow ones stand on the roof: what memory
# would allow a kernel that did everything else for nothing. (A point may lie above the slope, as
# `coalesced` does: the roof counts what is *asked for*, and caches answer part of that.) From the
# third rung on, nothing in this picture forbids most of the peak. What does, we will meet one at a
# time. The formulas live in [numba_gemm.model](../numba_gemm/model/__init__.py), plain Python, and so
# does a table of GPUs.
#
# <a id="naive"></a>
# ## Rung 1: naive
#
# [contents](#contents) · [next: coalesced](#coalesced) · [naive.py](../numba_gemm/rungs/naive.py)
#
# **The idea:** one thread for each entry of C. It walks along a row of A and down a column of B,
# and writes once.

# %%
source(naive.RUNG)

# %% [markdown]
# Two things in it that every kernel here has. `problem_size` returns M, N and K as integers that
# subscript arrays at no extra cost ([why](../numba_gemm/primitives/index.py)), with K = 0 where
# alpha is 0, so that A and B are not read. And `update` writes `alpha * total + beta * C`, without
# reading C where beta is 0. That is what BLAS promises, and NaN in an array that does not count
# must not get through.
#
# What does a thread cost? It reads a float for every single operation.

# %%
Markdown(
    f"A thread reads {traffic.worker_floats(SIZE)} floats, {traffic.worker_bytes(SIZE)} bytes, for "
    f"{roofline.product_flops(1, 1, SIZE)} operations: {tile_intensity(1, 1)} FLOP per byte. Together they ask for "
    f"{naive.RUNG.requested_bytes(problem) / 1e9:.0f} GB where {problem.compulsory_bytes / 1e6:.0f} MB would do. If "
    f"all of it came from DRAM, an {H200.name} could not exceed "
    f"{roofline.attainable(tile_intensity(1, 1), H200.fp32_peak, H200.memory_bandwidth) / 1e12:.2g} TFLOP/s."
)

# %%
picture(
    plots.operands(16, (1, 1), (5, 9)),
    "For one entry of C, a whole row of A and a whole column of B",
)

# %%
run(naive.RUNG)

# %%
recorded(naive.RUNG)

# %% [markdown]
# Caches answer a good part of those requests, so the ceiling above is not even what stops this
# kernel. The *shape* of its requests is: that is the next rung.
#
# **Exercise.** The kernel below multiplies well, but the check finds something wrong with it. Read
# what it says and mend the line; `update` is not allowed.


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    M, N, K = problem_size(A, B, alpha)
    row = block_y() * 4 + thread_y()
    col = block_x() * 4 + thread_x()
    if row < M and col < N:
        total = float32(0)
        for k in range(K):
            total += A[row, k] * B[k, col]
        C[row, col] = alpha * total + beta * C[row, col]


harness.check(mine, blocks_of(4, 4), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# C was NaN, and 0 times NaN is NaN: where beta is 0, C must not be read.
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     M, N, K = problem_size(A, B, alpha)
#     row = block_y() * 4 + thread_y()
#     col = block_x() * 4 + thread_x()
#     if row < M and col < N:
#         total = float32(0)
#         for k in range(K):
#             total += A[row, k] * B[k, col]
#         if beta == 0:
#             C[row, col] = alpha * total
#         else:
#             C[row, col] = alpha * total + beta * C[row, col]
#
#
# harness.check(mine, blocks_of(4, 4))
# ```
#
# </details>
#
# <a id="coalesced"></a>
# ## Rung 2: coalesced
#
# [contents](#contents) · [back: naive](#naive) · [next: tiled2d](#tiled2d) ·
# [coalesced.py](../numba_gemm/rungs/coalesced.py)
#
# **The idea:** the lanes of a warp read and write neighbours.
#
# A GPU does not run threads, it runs *warps*: 32 threads with consecutive numbers, its *lanes*,
# that execute the same instruction together. `threadIdx.x` counts fastest, so a warp is 32 values
# of x. When its lanes load, the memory system looks at all 32 addresses at once and fetches the
# sectors of 32 bytes that they fall into.
#
# In the naive kernel x picks the row. Lanes lie a whole row apart, each in a sector of its own, of
# which it uses one float. Let x run along the row instead, and 32 lanes share four sectors to the
# last byte.

# %%
difference(naive.RUNG, coalesced.RUNG)

# %%
ROW_BYTES = SIZE * 4
apart = [lane * ROW_BYTES for lane in range(32)]
neighbours = [lane * 4 for lane in range(32)]
table(
    ["what a warp touches at one k", "A, sectors", "B, sectors", "C, sectors"],
    [
        ["naive: x picks the row", *map(traffic.transactions, (apart, [0] * 32, apart))],
        [
            "coalesced: x runs along the row",
            *map(traffic.transactions, ([0] * 32, neighbours, neighbours)),
        ],
    ],
)

# %%
picture(
    plots.sectors(
        [("naive", [lane * 256 for lane in range(32)]), ("coalesced", [lane * 4 for lane in range(32)])],
        32,
        256,
    ),
    "Writing C: 32 lanes in a column touch 32 sectors, 32 lanes in a row touch four",
)

# %% [markdown]
# The same arithmetic in the same order, and still a quarter of a FLOP per byte asked for. For the
# choice of which index is called x, it is by its factor the largest single step of the ladder.

# %%
run(coalesced.RUNG)

# %%
recorded(coalesced.RUNG)

# %%
steps = {
    size: speeds(size)["coalesced"] / speeds(size)["naive"]
    for size in (SIZE, SIZE - 4)
    if {"naive", "coalesced"} <= speeds(size).keys()
}
Markdown(
    f"In part the step is naive's misfortune with {SIZE}: it has {three_digits(speeds()['naive'])} TFLOP/s there, and "
    f"{three_digits(speeds(SIZE - 4)['naive'])} at {SIZE - 4}. (Its lanes read A a row apart, and rows of {SIZE} floats "
    "probably fall into the same few sets of a cache; that was not profiled.) That makes a factor of "
    f"{three_digits(steps[SIZE])} at the one, and of {three_digits(steps[SIZE - 4])} at the other."
    if len(steps) == 2
    else "**Recorded:** no recorded run."
)

# %% [markdown]
# In the simulator the largest error is naive's to the last digit, and stays so all the way up. Every
# rung gets the same random input, and adds up an entry's products in float32 in the order of k, so
# every rounding is the same: the small problem comes out bit for bit alike. Only `split_k` adds in
# another order, and only where it divides a tile, which at this size it does not.
#
# **Exercise.** Let a thread compute two entries of a row, so that an element of A serves twice. A
# block of 4 x 4 threads then covers 4 x 8 entries. The kernel below computes the first of the two.
# Which should be the second: `col + 1`, or `col + 4`? Think of the addresses of a warp.


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    M, N, K = problem_size(A, B, alpha)
    row = block_y() * 4 + thread_y()
    col = block_x() * 8 + thread_x()
    if row < M:
        for c in range(col, min(col + 1, N)):
            total = float32(0)
            for k in range(K):
                total += A[row, k] * B[k, c]
            update(C, row, c, total, alpha, beta)


harness.check(mine, blocks_of(4, 8, threads=(4, 4)), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# As far away as the block is wide, so that for either entry the lanes are still neighbours. With
# `col + 1` each lane would begin two floats from the last, and a request would touch twice the
# sectors.
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     M, N, K = problem_size(A, B, alpha)
#     row = block_y() * 4 + thread_y()
#     col = block_x() * 8 + thread_x()
#     if row < M:
#         for c in range(col, min(col + 8, N), 4):
#             total = float32(0)
#             for k in range(K):
#                 total += A[row, k] * B[k, c]
#             update(C, row, c, total, alpha, beta)
#
#
# harness.check(mine, blocks_of(4, 8, threads=(4, 4)))
# ```
#
# </details>
#
# <a id="tiled2d"></a>
# ## Rung 3: tiled2d
#
# [contents](#contents) · [back: coalesced](#coalesced) · [next: column](#column) ·
# [tiled2d.py](../numba_gemm/rungs/tiled2d.py)
#
# **The idea:** the threads of a block share what they read.
#
# So far the worker of our formula was a thread, and its tile 1 x 1. But all threads in a row of C
# want the same row of A, and all in a column the same column of B. A block has what it takes to
# share them: *shared memory*, close to the cores, and a *barrier*, at which threads wait for one
# another.
#
# A whole row does not fit there. So the block goes along k in chunks: every thread brings one
# element of A and one of B, all wait until both tiles are complete, everyone multiplies out of
# them, all wait until nobody reads them any more, and on to the next chunk.

# %%
source(tiled2d.RUNG)

# %%
WIDTH = tiled2d.TILE.BM
Markdown(
    f"A block of {WIDTH} x {WIDTH} is now the worker: {tile_intensity(WIDTH, WIDTH):g} FLOP per byte, "
    f"{tile_intensity(WIDTH, WIDTH) / tile_intensity(1, 1):.0f} times as much as before, whatever K is. Of "
    f"{naive.RUNG.requested_bytes(problem) / 1e9:.0f} GB, {tiled2d.RUNG.requested_bytes(problem) / 1e9:.1f} are left."
)

# %%
picture(
    plots.operands(16, (4, 4), (4, 8), chunk=(8, 4), part=(1, 1)),
    "A block tile of C, the rows of A and columns of B it needs, and the chunk of both in shared memory",
)

# %%
run(tiled2d.RUNG)

# %%
recorded(tiled2d.RUNG)

# %% [markdown]
# <a id="inside"></a>
# ### Inside a running kernel
#
# A GPU does not let you look, and the simulator does: threads are Python threads, and registers are
# variables. `debugging.look` runs them one at a time and stops one where you say. Here thread (2,
# 1), about to add its fourth product; both tiles are complete, since it is past the first barrier.

# %%
few_A, few_B, _ = harness.random_operands(11, 13, 19, seed=0)


def launch():
    """tiled2d in blocks of 8 x 8 threads."""
    return tiled2d.gemm(few_A, few_B, tile=Tile(8, 8, 8))


with debugging.simulator_only():
    print(debugging.look(launch, thread=(2, 1), line="total +=", visit=4))

# %% [markdown]
# What is the first barrier for? Leave it out. Shared memory begins as NaN here, so that what is
# read too early shows. `debugging.watch` keeps a record of who uses which entry, and calls it a
# **race** when two threads use the same one, one of them to store, and no barrier lies between.

# %%
with debugging.simulator_only():
    for barrier in (None, 1, 2):
        seen = debugging.watch(launch, without_barrier=barrier)
        wrong = np.count_nonzero(~np.isclose(seen.result, few_A @ few_B, atol=1e-4))
        print(f"without barrier {barrier}:" if barrier else "as it is:")
        print(f"    {wrong} of {seen.result.size} entries are wrong; {seen}")

# %% [markdown]
# Each barrier prevents an accident of its own. Without the first, a thread multiplies tiles that
# others have not finished. Without the second, a fast thread stores the next chunk over one that a
# slow thread still reads, and there is no NaN to warn you: just a wrong result. On a GPU either may
# go well for a long time.
#
# **Exercise.** Here is the kernel with small tiles and one barrier. Which is missing?


# %% tags=["exercise"]
# Few threads where they are simulated; several warps where a race has to happen by itself.
T = 4 if TARGET.is_simulator else 16


@cuda.jit
def mine(A, B, C, alpha, beta):
    As = cuda.shared.array((T, T), float32)
    Bs = cuda.shared.array((T, T), float32)
    M, N, K = problem_size(A, B, alpha)
    tx, ty = thread_x(), thread_y()
    row, col = block_y() * T + ty, block_x() * T + tx
    total = float32(0)
    for k0 in range(0, K, T):
        a = b = float32(0)
        if row < M and k0 + tx < K:
            a = A[row, k0 + tx]
        if k0 + ty < K and col < N:
            b = B[k0 + ty, col]
        As[ty, tx] = a
        Bs[ty, tx] = b
        cuda.syncthreads()
        for k in range(T):
            total += As[ty, k] * Bs[k, tx]
    if row < M and col < N:
        update(C, row, col, total, alpha, beta)


harness.check(mine, blocks_of(T, T), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# The one behind the multiplying. (In the simulator the check fails every time without it. On a GPU
# all small problems go well, and the last one, with 41 x 41 blocks, does not. Were a block one warp,
# whose lanes happen to go in step, no check would notice. Nothing promises that they do.)
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     As = cuda.shared.array((T, T), float32)
#     Bs = cuda.shared.array((T, T), float32)
#     M, N, K = problem_size(A, B, alpha)
#     tx, ty = thread_x(), thread_y()
#     row, col = block_y() * T + ty, block_x() * T + tx
#     total = float32(0)
#     for k0 in range(0, K, T):
#         a = b = float32(0)
#         if row < M and k0 + tx < K:
#             a = A[row, k0 + tx]
#         if k0 + ty < K and col < N:
#             b = B[k0 + ty, col]
#         As[ty, tx] = a
#         Bs[ty, tx] = b
#         cuda.syncthreads()
#         for k in range(T):
#             total += As[ty, k] * Bs[k, tx]
#         cuda.syncthreads()
#     if row < M and col < N:
#         update(C, row, col, total, alpha, beta)
#
#
# harness.check(mine, blocks_of(T, T))
# ```
#
# </details>
#
# <a id="column"></a>
# ## Rung 4: column
#
# [contents](#contents) · [back: tiled2d](#tiled2d) · [next: square](#square) ·
# [column.py](../numba_gemm/rungs/column.py)
#
# **The idea:** a thread keeps TM entries of a column in registers.
#
# The tiles made global memory cheap. What nobody counted yet is the way from shared memory to the
# registers: two loads for each multiply-add. It is the same problem one level further down, and has
# the same answer: give the worker, now a thread, more of C. A column of TM entries needs TM
# elements of A and *one* of B for each k.

# %%
source(column.RUNG)

# %%
table(
    ["a thread computes", "loads from shared memory a multiply-add"],
    [[f"{TM} x 1", traffic.shared_loads(TM, 1)] for TM in (1, 2, 4, column.TILE.TM, 16)],
)

# %%
tile = column.TILE
Markdown(
    f"A block has {tile.threads} threads, but covers {tile.BM} x {tile.BN} entries: "
    f"{tile_intensity(tile.BM, tile.BN):g} FLOP per byte of global memory, too."
)

# %%
picture(
    plots.operands(16, (8, 8), (8, 0), chunk=(4, 4), part=(4, 1)),
    "A block tile of C of which one thread computes a short column",
)

# %%
run(column.RUNG)

# %%
recorded(column.RUNG)

# %% [markdown]
# The sums are a `cuda.local.array`. Registers have no addresses, so it stays in them only if the
# compiler knows every subscript, once it has written the loops out. `numba-gemm inspect column`
# shows that it does.
#
# **Exercise.** A thread's entries need not be next to each other. Below, thread `ty` is to have the
# rows `ty`, `ty + 2`, `ty + 4` and `ty + 6` of a block of 8 x 4 entries. It multiplies the right
# rows. Does it store them?


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    sums = cuda.local.array(4, float32)
    M, N, K = problem_size(A, B, alpha)
    ty = thread_y()
    row0, col = block_y() * 8, block_x() * 4 + thread_x()
    for i in range(4):
        sums[i] = 0
    if col < N:
        for k in range(K):
            b = B[k, col]  # loaded once, used four times
            for i in range(4):
                row = row0 + ty + i * 2
                if row < M:
                    sums[i] += A[row, k] * b
        for i in range(4):
            row = row0 + ty * 4 + i
            if row < M:
                update(C, row, col, sums[i], alpha, beta)


harness.check(mine, blocks_of(8, 4, threads=(4, 2)), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     sums = cuda.local.array(4, float32)
#     M, N, K = problem_size(A, B, alpha)
#     ty = thread_y()
#     row0, col = block_y() * 8, block_x() * 4 + thread_x()
#     for i in range(4):
#         sums[i] = 0
#     if col < N:
#         for k in range(K):
#             b = B[k, col]  # loaded once, used four times
#             for i in range(4):
#                 row = row0 + ty + i * 2
#                 if row < M:
#                     sums[i] += A[row, k] * b
#         for i in range(4):
#             row = row0 + ty + i * 2
#             if row < M:
#                 update(C, row, col, sums[i], alpha, beta)
#
#
# harness.check(mine, blocks_of(8, 4, threads=(4, 2)))
# ```
#
# </details>
#
# <a id="square"></a>
# ## Rung 5: square
#
# [contents](#contents) · [back: column](#column) · [next: vectorized](#vectorized) ·
# [square.py](../numba_gemm/rungs/square.py)
#
# **The idea:** a thread keeps TM x TN entries in registers.
#
# A column is a long thin tile, and we know what the formula says of those. Make it a square: for
# each k, copy TM elements of A and TN of B into registers, the *fragments*, and multiply every one
# with every other.

# %%
source(square.RUNG)

# %%
tile = square.TILE
SUMS = occupancy.block_registers(tile.threads, tile.TM * tile.TN)
left = registers_left(tile, H200)
fits = occupancy.occupancy(H200, tile.threads, left, tile.shared_bytes)
Markdown(
    f"{tile.TM} x {tile.TN} entries take {traffic.shared_loads(tile.TM, tile.TN):g} loads a multiply-add instead of "
    f"{traffic.shared_loads(column.TILE.TM):g}, and the block tile of {tile.BM} x {tile.BN} asks for a byte every "
    f"{tile_intensity(tile.BM, tile.BN):g} FLOP. The price is registers: the sums of {tile.threads} threads alone are "
    f"{SUMS} of a multiprocessor's {H200.limits.registers}. With up to {left} a thread, {fits.blocks} "
    f"blocks fit, {fits.warps} warps of {fits.max_warps}: an occupancy of {fits.fraction:.0%}. Fewer warps to hide each "
    "other's waiting, and far less to wait for."
)

# %%
picture(
    plots.bars(
        {
            f"{rung.name}: {rung.tile.TM} x {rung.tile.TN}": traffic.shared_loads(
                rung.tile.TM, rung.tile.TN
            )
            for rung in (tiled2d.RUNG, column.RUNG, square.RUNG)
        },
        "loads from shared memory for one multiply-add",
        "What a thread tile saves",
    ),
    "Two loads a multiply-add in tiled2d, about one in column, a quarter in square",
)

# %%
run(square.RUNG)

# %%
recorded(square.RUNG)

# %% [markdown]
# **Exercise.** A kernel without shared memory in which each thread has 2 x 2 entries. Its fragments
# are right, with zeros beyond the edge. Its outer product is not: it is only the diagonal.


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    sums = cuda.local.array((2, 2), float32)
    a = cuda.local.array(2, float32)
    b = cuda.local.array(2, float32)
    M, N, K = problem_size(A, B, alpha)
    row, col = (block_y() * 4 + thread_y()) * 2, (block_x() * 4 + thread_x()) * 2
    for i in range(2):
        for j in range(2):
            sums[i, j] = 0
    for k in range(K):
        for i in range(2):
            a[i] = A[row + i, k] if row + i < M else float32(0)
            b[i] = B[k, col + i] if col + i < N else float32(0)
        for i in range(2):
            sums[i, i] += a[i] * b[i]
    for i in range(2):
        for j in range(2):
            if row + i < M and col + j < N:
                update(C, row + i, col + j, sums[i, j], alpha, beta)


harness.check(mine, blocks_of(8, 8, threads=(4, 4)), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     sums = cuda.local.array((2, 2), float32)
#     a = cuda.local.array(2, float32)
#     b = cuda.local.array(2, float32)
#     M, N, K = problem_size(A, B, alpha)
#     row, col = (block_y() * 4 + thread_y()) * 2, (block_x() * 4 + thread_x()) * 2
#     for i in range(2):
#         for j in range(2):
#             sums[i, j] = 0
#     for k in range(K):
#         for i in range(2):
#             a[i] = A[row + i, k] if row + i < M else float32(0)
#             b[i] = B[k, col + i] if col + i < N else float32(0)
#         for i in range(2):
#             for j in range(2):
#                 sums[i, j] += a[i] * b[j]
#     for i in range(2):
#         for j in range(2):
#             if row + i < M and col + j < N:
#                 update(C, row + i, col + j, sums[i, j], alpha, beta)
#
#
# harness.check(mine, blocks_of(8, 8, threads=(4, 4)))
# ```
#
# </details>

# %% [markdown]
# <a id="words"></a>
# ### Words of these kernels
#
# The kernels from here on are longer. What they call by name, some of it met already, is what CUDA C++
# has and Numba lacks, or what several rungs have in common: small functions in
# [numba_gemm/primitives/](../numba_gemm/primitives/__init__.py), whose files say what they are for.
#
# - `index`: an integer that subscripts arrays without Python's negative indices, and their price
#   ([index.py](../numba_gemm/primitives/index.py)). `block_x()`, `thread_x()` and `problem_size` give
#   such ([helpers.py](../numba_gemm/primitives/helpers.py)).
# - `unroll(n)`: a `range` whose loop the compiler is asked to write out
#   ([loops.py](../numba_gemm/primitives/loops.py)).
# - `device_function`: marks a function that kernels call, and that becomes part of them.
#   `launch_bounds(threads, blocks)`: so many blocks are to share a multiprocessor; the compiler gives
#   a thread no more registers than that leaves. `jit_by_ptx(registers)`: `cuda.jit` with a limit of
#   registers, and without a second optimization at link time
#   ([jit.py](../numba_gemm/primitives/jit.py)).
# - `stage`: a block's threads copy a chunk of A or B to shared memory, with zeros beyond the edge
#   ([helpers.py](../numba_gemm/primitives/helpers.py)). `stage4` and `stage4_transposed` copy
#   four floats at a time (`quad_of` says which thread copies which) and have no zeros: beyond the last
#   row or column they take that one again (`clamp`), as nobody stores what comes of it.
#   `stage_remainder` copies what is left of k behind the last whole chunk, and zeros after it
#   ([matrices.py](../numba_gemm/primitives/matrices.py)).
# - `load4`, `store4`: four floats in one instruction. `rows_are_aligned(A)`: whether every row begins
#   at a multiple of 16 bytes, as they require, called `wide` from there on
#   ([vectors.py](../numba_gemm/primitives/vectors.py)). `fetch4`: four floats, in one instruction
#   where `wide` ([matrices.py](../numba_gemm/primitives/matrices.py)).
# - `window(As, row, col)`: As seen from one element on, so that the distances from there are
#   constants ([windows.py](../numba_gemm/primitives/windows.py)).
# - `fetch`, `store`: not from there, but functions inside of
#   [double_buffered.py](../numba_gemm/rungs/double_buffered.py), which read a thread's part of the
#   next chunk into registers, and write it to shared memory later.

# %% [markdown]
# <a id="vectorized"></a>
# ## Rung 6: vectorized
#
# [contents](#contents) · [back: square](#square) · [next: autotuned](#autotuned) ·
# [vectorized.py](../numba_gemm/rungs/vectorized.py)
#
# **The idea:** four floats an instruction, and A transposed on its way to shared memory.
#
# A load instruction moves four bytes or sixteen, and it is instructions that queue. Sixteen bytes
# have to begin at a multiple of sixteen and lie next to each other. For B they do. The fragment of
# A, though, is a piece of a *column*. So A is turned on its way in: As[k, row] instead of As[row,
# k]. The turning is done once a chunk, by the stores; the reading, by every thread at every k,
# gains from it.

# %%
source(vectorized.RUNG, "multiply")

# %%
tile = vectorized.TILE
Markdown(
    f"For one k, {traffic.shared_loads(tile.TM, tile.TN) * tile.TM * tile.TN:.0f} loads become "
    f"{traffic.shared_loads(tile.TM, tile.TN, vector=4) * tile.TM * tile.TN:.0f} for the same {tile.TM * tile.TN} "
    f"multiply-adds. Nothing changes in global memory: {tile_intensity(tile.BM, tile.BN):g} FLOP per byte."
)

# %%
picture(
    plots.bars(
        {
            "square: a float each": traffic.shared_loads(tile.TM, tile.TN) * tile.TM * tile.TN,
            "vectorized: four floats each": traffic.shared_loads(tile.TM, tile.TN, vector=4)
            * tile.TM
            * tile.TN,
        },
        "loads of a thread for one k",
        "The same fragments in fewer instructions",
    ),
    "Sixteen load instructions for one k become four",
)

# %% [markdown]
# Here is the chunk of A in shared memory, seen from a thread that is about to multiply: rows are k
# now.

# %%
with debugging.simulator_only():
    A, B, _ = harness.random_operands(16, 32, 8, seed=0)
    seen = debugging.look(
        lambda: vectorized.gemm(A, B, tile=TILES["vectorized"]), thread=(9,), line="sums[i, j] +="
    )
    turned = np.array_equal(seen.shared["As"], A.T)
    print(f"A is {A.shape}, As is {seen.shared['As'].shape}; transposed: {turned}")
    print("the thread's fragments:")
    print("    a =", seen.registers["a"])
    print("    b =", seen.registers["b"])

# %%
run(vectorized.RUNG)

# %%
recorded(vectorized.RUNG)

# %% [markdown]
# **Exercise.** Tiles of 4 x 4, and each thread of a block of 4 has a whole row of four entries: it
# reads four floats of Bs at a time with `load4`, and As is transposed. One subscript still thinks
# that it is not.


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    As = cuda.shared.array((4, 4), float32)
    Bs = cuda.shared.array((4, 4), float32)
    sums = cuda.local.array(4, float32)
    M, N, K = problem_size(A, B, alpha)
    t = thread_y()
    row, col0 = block_y() * 4 + t, block_x() * 4
    for j in range(4):
        sums[j] = 0
    for k0 in range(0, K, 4):
        for j in range(4):
            As[j, t] = A[row, k0 + j] if row < M and k0 + j < K else float32(0)
            Bs[t, j] = B[k0 + t, col0 + j] if k0 + t < K and col0 + j < N else float32(0)
        cuda.syncthreads()
        for k in range(4):
            b0, b1, b2, b3 = load4(Bs, k, 0)
            a = As[t, k]
            sums[0] += a * b0
            sums[1] += a * b1
            sums[2] += a * b2
            sums[3] += a * b3
        cuda.syncthreads()
    for j in range(4):
        if row < M and col0 + j < N:
            update(C, row, col0 + j, sums[j], alpha, beta)


harness.check(mine, blocks_of(4, 4, threads=(1, 4)), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     As = cuda.shared.array((4, 4), float32)
#     Bs = cuda.shared.array((4, 4), float32)
#     sums = cuda.local.array(4, float32)
#     M, N, K = problem_size(A, B, alpha)
#     t = thread_y()
#     row, col0 = block_y() * 4 + t, block_x() * 4
#     for j in range(4):
#         sums[j] = 0
#     for k0 in range(0, K, 4):
#         for j in range(4):
#             As[j, t] = A[row, k0 + j] if row < M and k0 + j < K else float32(0)
#             Bs[t, j] = B[k0 + t, col0 + j] if k0 + t < K and col0 + j < N else float32(0)
#         cuda.syncthreads()
#         for k in range(4):
#             b0, b1, b2, b3 = load4(Bs, k, 0)
#             a = As[k, t]
#             sums[0] += a * b0
#             sums[1] += a * b1
#             sums[2] += a * b2
#             sums[3] += a * b3
#         cuda.syncthreads()
#     for j in range(4):
#         if row < M and col0 + j < N:
#             update(C, row, col0 + j, sums[j], alpha, beta)
#
#
# harness.check(mine, blocks_of(4, 4, threads=(1, 4)))
# ```
#
# </details>
#
# <a id="autotuned"></a>
# ## Rung 7: autotuned
#
# [contents](#contents) · [back: vectorized](#vectorized) · [next: warptiled](#warptiled) ·
# [autotuned.py](../numba_gemm/rungs/autotuned.py)
#
# **The idea:** the same kernel, with the tile parameters that measuring found.
#
# Larger tiles ask for fewer bytes and take more registers, deeper chunks need fewer barriers and
# more shared memory, more threads hide more waiting and have less each. Which mixture is best
# depends on latencies, on bandwidths and on what the compiler makes of each: nobody derives it.
# What a model *can* say is which tiles tie. For this GPU it expects the same of a good many of
# them, and measuring decides. (The model here is the *ideal* one of
# [prediction.py](../numba_gemm/model/prediction.py): arithmetic, or the bytes that are asked for, and
# nothing else.)
#
# Tiles are written in short from here on. `128x256x8 8x16 w64x64 s2` is a block tile of BM x BN = 128
# x 256 whose chunks are BK = 8 deep, TM x TN = 8 x 16 entries a thread, warp tiles of WM x WN = 64 x
# 64 (from [warptiled](#warptiled) on), and two *stages*, chunks that shared memory holds at a time
# (from [double_buffered](#double_buffered) on). What a rung does not have is left out.

# %%
source(autotuned.RUNG)

# %%
table(
    ["compute capability", "found by measuring"],
    [["{}.{}".format(*capability), short(tile)] for capability, tile in autotuned.FOUND.items()],
)

# %%
space = enumerate_space(vectorized.RUNG, lambda tile: limits(tile, H200))
expected = {
    tile: problem.product_flops / prediction.predicted_seconds(problem, tile, H200) / 1e12
    for tile in space.legal
}
best = sorted(expected, key=expected.get, reverse=True)
ties = [tile for tile in best if expected[tile] > 0.99 * expected[best[0]]]
chosen = autotuned.FOUND[9, 0]
Markdown(
    f"Of {len(space.legal) + len(space.refused)} combinations, {len(space.legal)} make a kernel for an {H200.name}, and "
    f"within one per cent of the best expectation there are {len(ties)}. Measuring found `{short(chosen)}` for it, which "
    f"asks for a byte every {tile_intensity(chosen.BM, chosen.BN):.3g} FLOP, more often than "
    f"`{short(vectorized.TILE)}` with its {tile_intensity(vectorized.TILE.BM, vectorized.TILE.BN):g}."
)

# %%
picture(
    plots.bars(
        {
            short(tile): expected[tile]
            for tile in dict.fromkeys([*best[:: max(1, len(best) // 9)], vectorized.TILE, chosen])
        },
        "TFLOP/s if nothing but arithmetic and memory counted",
        f"What the model expects of some tiles at {SIZE}",
    ),
    "The model's expectation for some tiles from the best to the worst, several of which tie, and last for "
    "the tile of vectorized and the one that was found",
)

# %% [markdown]
# And what measuring says. `numba-gemm tune --rung autotuned` took 80 seconds on an H200 to time 248 of
# the 341; further left is what the ranking model of the package expects more of:
#
# ![Speed of 248 tiles over the place that the model gave them: far apart at every place, and the fastest at place 100](../bench/results/autotuned.svg)

# %%
run(autotuned.RUNG)

# %%
recorded(autotuned.RUNG)

# %% [markdown]
# **Exercise.** A tile of your own. This one is refused; the list says why. Find one with BM = 48
# that is legal.

# %% tags=["exercise"]
tile = Tile(BM=48, BN=32, BK=8, TM=4, TN=4)
vectorized.RUNG.why_illegal(tile) or harness.check(
    vectorized.build(tile), vectorized.RUNG, tile=tile, shapes=[(49, 33, 9)], seed=1
)

# %% [markdown]
# <details><summary>Solution</summary>
#
# A chunk is fetched by the block's threads, all at once and in whole rows. A row of B is 32 / 4 =
# eight fours, so 96 threads would fetch 12 rows at a time, and the chunk has 8. With TM = 12 there are
# 32 threads: they fetch 4 of B's 8 rows at a time, twice. A's rows are 8 / 4 = two fours, and so 16
# of its 48 come at a time, three times.
#
# ```python
# tile = Tile(BM=48, BN=32, BK=8, TM=12, TN=4)
# vectorized.RUNG.why_illegal(tile) or harness.check(
#     vectorized.build(tile), vectorized.RUNG, tile=tile, shapes=[(49, 33, 9)]
# )
# ```
#
# </details>
#
# <a id="warptiled"></a>
# ## Rung 8: warptiled
#
# [contents](#contents) · [back: autotuned](#autotuned) · [next: padded](#padded) ·
# [warptiled.py](../numba_gemm/rungs/warptiled.py)
#
# **The idea:** a warp computes a tile of its own.
#
# Blocks have tiles and threads have tiles. Between the two is the unit that really executes, and so
# far its 32 threads lie wherever their numbers put them: in `vectorized`, in two long rows. When
# lanes of a warp read the same address they share one answer, so a warp too pays m + n for its m n,
# and should be as square as it can be. It is the same construction for the third time.

# %%
difference(vectorized.RUNG, warptiled.RUNG)

# %%
tile = warptiled.TILE
levels = hierarchy.hierarchy(tile)
across = tile.BN // tile.TN  # threads in a row of a block without warp tiles
before = 32 // across * tile.TM, across * tile.TN
Markdown(
    f"A block tile of {tile.BM} x {tile.BN} has {levels.warps[0]} x {levels.warps[1]} warp tiles of {tile.WM} x {tile.WN}, "
    f"each of those {levels.lanes[0]} x {levels.lanes[1]} lanes with {levels.entries[0]} x {levels.entries[1]} entries. "
    f"For one k a warp reads {tile.WM + tile.WN} floats from shared memory where it read {sum(before)} with "
    f"{before[0]} x {before[1]}. The tile has changed as well, from `{short(vectorized.TILE)}` in `vectorized` and "
    f"`{short(autotuned.FOUND[9, 0])}` in `autotuned` to `{short(tile)}`: the block of the one with the depth of the "
    "other. What is recorded below is due to both."
)

# %%
picture(
    plots.tilings(tile),
    "Block tile, warp tile and thread tile of C, each cut from the one before with nothing left over",
)

# %%
run(warptiled.RUNG)

# %%
recorded(warptiled.RUNG)

# %% [markdown]
# **Exercise.** A block of 64 threads covers 8 x 8 entries with two warps, side by side: warp tiles
# of 8 x 4, one entry a lane. The kernel's rows and columns are not there yet, and some entries have
# two threads while others have none.


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    M, N, K = problem_size(A, B, alpha)
    warp, lane = thread_x() // 32, thread_x() % 32
    row = block_y() * 8 + lane // 8
    col = block_x() * 8 + warp * 4 + lane % 4
    if row < M and col < N:
        total = float32(0)
        for k in range(K):
            total += A[row, k] * B[k, col]
        update(C, row, col, total, alpha, beta)


harness.check(mine, blocks_of(8, 8, threads=(64, 1)), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# Four lanes across, so eight down: `lane // 4` and `lane % 4`.
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     M, N, K = problem_size(A, B, alpha)
#     warp, lane = thread_x() // 32, thread_x() % 32
#     row = block_y() * 8 + lane // 4
#     col = block_x() * 8 + warp * 4 + lane % 4
#     if row < M and col < N:
#         total = float32(0)
#         for k in range(K):
#             total += A[row, k] * B[k, col]
#         update(C, row, col, total, alpha, beta)
#
#
# harness.check(mine, blocks_of(8, 8, threads=(64, 1)))
# ```
#
# </details>
#
# <a id="padded"></a>
# ## Rung 9: padded
#
# [contents](#contents) · [back: warptiled](#warptiled) · [next: double_buffered](#double_buffered)
# · [padded.py](../numba_gemm/rungs/padded.py)
#
# **The idea:** no two lanes of one request meet in a bank.
#
# Shared memory is 32 *banks*, each four bytes wide: neighbouring words lie in neighbouring banks,
# and word 32 is back in the first. A bank serves one word at a time. Lanes that want different
# words of one bank wait for each other, and the request takes a pass, a *wavefront*, for each of
# them.
#
# The simulator has no banks, but it knows who asks for what. At the rung's real tile, the first
# warp:

# %%
tile = warptiled.TILE
A, B, _ = harness.random_operands(tile.BM, tile.BN, tile.BK, seed=0)
with debugging.simulator_only():
    for rung in (warptiled, padded):
        print(f"{rung.RUNG.name}:")
        for request in debugging.watch(partial(rung.gemm, A, B)).worst(warp=0):
            print("   ", request)

# %% [markdown]
# The model has the same by formula, for any tile and without running anything:

# %%
table(
    ["rung", "a warp's request", "degree", "wavefronts"],
    [
        [rung.name, access.what, access.degree, access.wavefronts]
        for rung in (warptiled.RUNG, padded.RUNG)
        for access in banks.accesses(rung.name, rung.tile)
    ],
)

# %% [markdown]
# A load of 16 bytes a lane takes at least two wavefronts when neighbours share, and four otherwise:
# that is not a conflict, just the width of the memory. The store of A is one. Rows of As are BM
# floats long, and all begin in bank 0, so the two groups of k that a warp stores meet there. Four
# more floats a row, never read, shift each row by four banks:

# %%
picture(
    plots.banks(
        [
            ("A stored transposed, as in warptiled", banks.store_a(tile), tile.BM),
            ("with rows padded by 4", banks.store_a(tile, padded.PADDING), tile.BM + padded.PADDING),
        ]
    ),
    "Without padding half of the banks have two words to take; with it every bank has one",
)

# %%
difference(warptiled.RUNG, padded.RUNG)

# %% [markdown]
# The difference also takes the thread tile apart into pieces of 4 x 4, so that lanes side by side
# read side by side. What is that good for?

# %%
wider = double_buffered.TILE
table(
    ["a warp reads 4 floats of B a lane", "in one piece, wavefronts", "in pieces, wavefronts"],
    [
        [
            f"{each.TM} x {each.TN} entries a thread",
            *(banks.read_b(each, split).wavefronts for split in (False, True)),
        ]
        for each in (padded.TILE, wider)
    ],
)

# %% [markdown]
# Nothing yet, at this tile. It is the wider thread tile of the next rung that would conflict without.

# %%
run(padded.RUNG)

# %%
recorded(padded.RUNG)

# %% [markdown]
# **Exercise.** 32 lanes store down a column of a tile of 32 x PITCH, lane i to word i * PITCH, and
# later read along its rows. Choose PITCH so that no two of them meet in a bank and the kernel is
# still right.

# %% tags=["exercise"]
PITCH = 32
degree = banks.Access(4 * PITCH * np.arange(32)).degree


@cuda.jit
def mine(A, B, C, alpha, beta):
    turned = cuda.shared.array((32, PITCH), float32)  # turned[k, row of the block]
    M, _, K = problem_size(A, B, alpha)
    t = thread_x()
    row, col = block_y() * 32 + t, block_x()
    total = float32(0)
    for k0 in range(0, K, 32):
        for r in range(32):
            inside = block_y() * 32 + r < M and k0 + t < K
            turned[t, r] = A[block_y() * 32 + r, k0 + t] if inside else float32(0)
        cuda.syncthreads()
        for k in range(32):
            if k0 + k < K:
                total += turned[k, t] * B[k0 + k, col]
        cuda.syncthreads()
    if row < M:
        update(C, row, col, total, alpha, beta)


print(f"conflict degree of the stores: {degree}")
degree == 1 and harness.check(mine, blocks_of(32, 1, threads=(32, 1)), shapes=[(33, 2, 35)], seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# Any odd number of 32 or more: one float a row is enough to shift each row by a bank.
#
# ```python
# PITCH = 33
# degree = banks.Access(4 * PITCH * np.arange(32)).degree
#
#
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     turned = cuda.shared.array((32, PITCH), float32)  # turned[k, row of the block]
#     M, _, K = problem_size(A, B, alpha)
#     t = thread_x()
#     row, col = block_y() * 32 + t, block_x()
#     total = float32(0)
#     for k0 in range(0, K, 32):
#         for r in range(32):
#             inside = block_y() * 32 + r < M and k0 + t < K
#             turned[t, r] = A[block_y() * 32 + r, k0 + t] if inside else float32(0)
#         cuda.syncthreads()
#         for k in range(32):
#             if k0 + k < K:
#                 total += turned[k, t] * B[k0 + k, col]
#         cuda.syncthreads()
#     if row < M:
#         update(C, row, col, total, alpha, beta)
#
#
# print(f"conflict degree of the stores: {degree}")
# degree == 1 and harness.check(mine, blocks_of(32, 1, threads=(32, 1)), shapes=[(33, 2, 35)])
# ```
#
# </details>
#
# <a id="double_buffered"></a>
# ## Rung 10: double_buffered
#
# [contents](#contents) · [back: padded](#padded) · [next: async_copy](#async_copy) ·
# [double_buffered.py](../numba_gemm/rungs/double_buffered.py)
#
# **The idea:** what comes next is fetched while the threads multiply.
#
# In every kernel so far the block stands still twice for each chunk: until it is loaded, and until
# all have read it. Arithmetic and memory take turns, and each is idle while the other works. With a
# second buffer, they need not: ask for the next chunk before multiplying this one, keep it in
# registers meanwhile, store it into the buffer that nobody reads. One barrier a chunk is left. The
# fragments do the same on a small scale, k + 1 while k is multiplied.

# %%
source(double_buffered.RUNG, "multiply_chunks")

# %% jupyter={"source_hidden": true}
tile = double_buffered.TILE
one = H200.multiprocessors
loading = 1e6 * roofline.memory_seconds(
    traffic.worker_bytes(tile.BK, tile.BM, tile.BN), H200.memory_bandwidth / one
)
multiplying = 1e6 * roofline.arithmetic_seconds(
    roofline.product_flops(tile.BM, tile.BN, tile.BK), H200.fp32_peak / one
)
turns = [
    Span(n * (loading + multiplying) + begin, length, kind, str(n))
    for n in range(4)
    for begin, length, kind in ((0, loading, "load a chunk"), (loading, multiplying, "multiply it"))
]
loads = [
    Span(max(0, n - 1) * multiplying + (loading if n > 0 else 0), loading, "load a chunk", str(n))
    for n in range(4)
]
works = [Span(loading + n * multiplying, multiplying, "multiply it", str(n)) for n in range(4)]
picture(
    plots.schedule(
        {"one buffer": turns, "two: memory": loads, "two: arithmetic": works},
        "microseconds, of one multiprocessor's share of bandwidth and peak",
        "Four chunks, by the model",
    ),
    "With one buffer loading and multiplying alternate; with two, loading hides behind multiplying",
)

# %%
left = registers_left(tile, H200)
fits = occupancy.occupancy(H200, tile.threads, left, tile.shared_bytes)
Markdown(
    f"The chunks, {tile.BK} k deep instead of {padded.TILE.BK}, take {tile.shared_bytes} bytes of shared memory, twice "
    f"what one of that depth would. A thread has {tile.TM} x {tile.TN} "
    f"entries now, {traffic.shared_loads(tile.TM, tile.TN, vector=4):.3g} loads a multiply-add. `launch_bounds` "
    f"asks for {tile.blocks} blocks of {tile.threads} threads on a multiprocessor, which leaves a thread up to {left} of "
    f"its {H200.limits.registers} registers; {fits.blocks} fit, and one multiplies while the other waits at its barrier."
)

# %%
run(double_buffered.RUNG)

# %%
recorded(double_buffered.RUNG)

# %% [markdown]
# **Exercise.** Two buffers and one barrier a chunk. But who said that the buffers take turns?
# `here` never changes, so a fast thread stores into the chunk that a slow one reads.


# %% tags=["exercise"]
T = 4 if TARGET.is_simulator else 16
BOTH = 2 * T  # two buffers of T rows each


@cuda.jit
def mine(A, B, C, alpha, beta):
    As = cuda.shared.array((BOTH, T), float32)
    Bs = cuda.shared.array((BOTH, T), float32)
    M, N, K = problem_size(A, B, alpha)
    tx, ty = thread_x(), thread_y()
    row, col = block_y() * T + ty, block_x() * T + tx
    total = float32(0)
    here = 0
    for k0 in range(0, K, T):
        As[here + ty, tx] = A[row, k0 + tx] if row < M and k0 + tx < K else float32(0)
        Bs[here + ty, tx] = B[k0 + ty, col] if k0 + ty < K and col < N else float32(0)
        cuda.syncthreads()
        for k in range(T):
            total += As[here + ty, k] * Bs[here + k, tx]
    if row < M and col < N:
        update(C, row, col, total, alpha, beta)


harness.check(mine, blocks_of(T, T), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# `here = T - here` behind the multiplying. One barrier is enough: whoever stores to a buffer has
# passed the barrier that the last readers of it had to reach first.
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     As = cuda.shared.array((BOTH, T), float32)
#     Bs = cuda.shared.array((BOTH, T), float32)
#     M, N, K = problem_size(A, B, alpha)
#     tx, ty = thread_x(), thread_y()
#     row, col = block_y() * T + ty, block_x() * T + tx
#     total = float32(0)
#     here = 0
#     for k0 in range(0, K, T):
#         As[here + ty, tx] = A[row, k0 + tx] if row < M and k0 + tx < K else float32(0)
#         Bs[here + ty, tx] = B[k0 + ty, col] if k0 + ty < K and col < N else float32(0)
#         cuda.syncthreads()
#         for k in range(T):
#             total += As[here + ty, k] * Bs[here + k, tx]
#         here = T - here
#     if row < M and col < N:
#         update(C, row, col, total, alpha, beta)
#
#
# harness.check(mine, blocks_of(T, T))
# ```
#
# </details>
#
# <a id="async_copy"></a>
# ## Rung 11: async_copy
#
# [contents](#contents) · [back: double_buffered](#double_buffered) · [next: split_k](#split_k) ·
# [async_copy.py](../numba_gemm/rungs/async_copy.py)
#
# **The idea:** the memory system does the copying.
#
# The rung below carries the next chunk through registers, and stores it by instructions of its own.
# Since compute capability 8.0 a thread can *ask* for a copy from global to shared memory and go on;
# nothing passes through its registers. It commits a group of such copies, and later waits for that
# group. The registers that are left go where the formula wants them: into a larger tile.

# %%
source(async_copy.RUNG, "begin_copies")

# %% [markdown]
# A copy cannot turn four floats of A at once, so A travels a float at a time, and rows are padded
# by 8, which puts the elements that a warp stores into 32 different banks. The loop over chunks
# asks for the next one, multiplies this one, and waits:

# %%
source(async_copy.RUNG, "multiply_chunks")

# %%
tile, before = async_copy.TILE, double_buffered.TILE
Markdown(
    f"A block of {tile.threads} threads now computes {tile.BM} x {tile.BN}: {tile_intensity(tile.BM, tile.BN):.3g} FLOP "
    f"per byte instead of {tile_intensity(before.BM, before.BN):g}. Of {double_buffered.RUNG.requested_bytes(problem) / 1e9:.2f}"
    f" GB that the rung below asks for, {async_copy.RUNG.requested_bytes(problem) / 1e9:.2f} are left."
)

# %%
store_a = banks.accesses("async_copy", tile)[0]
picture(
    plots.banks([("A stored by asynchronous copies", store_a, tile.BM + async_copy.PADDING)]),
    "Four rows of eight floats each, in 32 different banks",
)

# %%
run(async_copy.RUNG)

# %%
recorded(async_copy.RUNG)

# %% [markdown]
# **Exercise.** The simulator delivers an asynchronous copy as late as it may: when it is waited
# for. Until then there is NaN. The kernel below commits its copies, and has both barriers. What
# does it forget?


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    As = cuda.shared.array((4, 4), float32)
    Bs = cuda.shared.array((4, 4), float32)
    M, N, K = problem_size(A, B, alpha)
    tx, ty = thread_x(), thread_y()
    row, col = block_y() * 4 + ty, block_x() * 4 + tx
    total = float32(0)
    for k0 in range(0, K, 4):
        a_there = 1 if row < M and k0 + tx < K else 0
        b_there = 1 if k0 + ty < K and col < N else 0
        # The last two arguments: copy one float, and read it (1) or leave a zero in its place (0).
        copy_async(As, ty, tx, A, min(row, M - 1), min(k0 + tx, K - 1), 1, a_there)
        copy_async(Bs, ty, tx, B, min(k0 + ty, K - 1), min(col, N - 1), 1, b_there)
        commit_copies()
        cuda.syncthreads()
        for k in range(4):
            total += As[ty, k] * Bs[k, tx]
        cuda.syncthreads()
    if row < M and col < N:
        update(C, row, col, total, alpha, beta)


able(async_copy.RUNG) and harness.check(mine, blocks_of(4, 4), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# A barrier makes threads wait for threads, not for copies. Each thread waits for its own copies,
# `wait_for_copies(0)`, and *then* meets the others.
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     As = cuda.shared.array((4, 4), float32)
#     Bs = cuda.shared.array((4, 4), float32)
#     M, N, K = problem_size(A, B, alpha)
#     tx, ty = thread_x(), thread_y()
#     row, col = block_y() * 4 + ty, block_x() * 4 + tx
#     total = float32(0)
#     for k0 in range(0, K, 4):
#         a_there = 1 if row < M and k0 + tx < K else 0
#         b_there = 1 if k0 + ty < K and col < N else 0
#         copy_async(As, ty, tx, A, min(row, M - 1), min(k0 + tx, K - 1), 1, a_there)
#         copy_async(Bs, ty, tx, B, min(k0 + ty, K - 1), min(col, N - 1), 1, b_there)
#         commit_copies()
#         wait_for_copies(0)
#         cuda.syncthreads()
#         for k in range(4):
#             total += As[ty, k] * Bs[k, tx]
#         cuda.syncthreads()
#     if row < M and col < N:
#         update(C, row, col, total, alpha, beta)
#
#
# able(async_copy.RUNG) and harness.check(mine, blocks_of(4, 4))
# ```
#
# </details>
#
# <a id="split_k"></a>
# ## Rung 12: split_k
#
# [contents](#contents) · [back: async_copy](#async_copy) · [next: the fringe](#fringe) ·
# [split_k.py](../numba_gemm/rungs/split_k.py)
#
# **The idea:** blocks share the tiles that would leave some multiprocessors idle.
#
# Large tiles are few. A C of 256 x 256 has two of 128 x 256, and the rest of the card watches,
# however deep k is. With a few tiles more than there are multiprocessors, most watch while the last
# ones are computed. But a sum over k can be cut: the chunks of the tiles that are left over, laid
# in a row, are dealt out in equal shares. A block writes what it has of a tile to a workspace, and
# a second kernel adds up the parts, always in the same order.
#
# Say seven tiles of a hundred chunks on four multiprocessors. `plan` says how many tiles to leave
# whole, and among how many blocks to share the others:

# %%
source(split_k.RUNG, "plan")

# %% jupyter={"source_hidden": true}
TILES_OF_C, CHUNKS, PROCESSORS = 7, 100, 4
whole, blocks = split_k.plan(TILES_OF_C, CHUNKS, PROCESSORS)
share = -(-(TILES_OF_C - whole) * CHUNKS // blocks)
idle = {
    f"each whole: {p}": [
        Span(n * CHUNKS, CHUNKS, "a whole tile", f"tile {n * PROCESSORS + p}")
        for n in range(2)
        if n * PROCESSORS + p < TILES_OF_C
    ]
    for p in range(PROCESSORS)
}
shared = {}
for p in range(PROCESSORS):
    spans = [Span(0, CHUNKS, "a whole tile", f"tile {p}")]
    begin = p * share
    while begin < min((p + 1) * share, (TILES_OF_C - whole) * CHUNKS):
        end = min((begin // CHUNKS + 1) * CHUNKS, (p + 1) * share)
        last = spans[-1]
        spans.append(
            Span(last.start + last.length, end - begin, "part of one", f"{whole + begin // CHUNKS}")
        )
        begin = end
    shared[f"split: {p}"] = spans
picture(
    plots.schedule({**idle, **shared}, "chunks", f"{TILES_OF_C} tiles on {PROCESSORS} multiprocessors"),
    "Seven whole tiles keep one of four multiprocessors idle half of the time; shared, all finish together",
)

# %%
wide = quantization.tiling(SIZE, SIZE, split_k.TILE.BM, split_k.TILE.BN).tiles
rounds = quantization.waves(wide, H200.multiprocessors)
deep = Problem(256, 256, 65536)
few = split_k.RUNG.geometry(deep.M, deep.N).blocks
parts = split_k.plan(few, deep.K // split_k.TILE.BK, H200.multiprocessors)[1]
Markdown(
    f"At {SIZE} there are {wide} tiles, {rounds.exact:.2f} waves of {H200.multiprocessors}: the cut gains little. At "
    f"{deep.M} x {deep.N} x {deep.K} there are {few} tiles, and {parts} blocks share them."
)

# %% [markdown]
# The first blocks take the shares, and the others a tile each. A share may be the end of one tile and
# the beginning of the next, hence the loop. `multiply_range` and `write_tile` are those of the rung
# below:

# %%
source(split_k.RUNG, "build_shared")

# %%
run(split_k.RUNG)

# %%
recorded(split_k.RUNG)

# %% [markdown]
# **Exercise.** The same inside of a block: threads with y = 0 and y = 1 halve the k of an entry.
# Each has its part of the sum in shared memory, and the first writes C. It writes only its own
# part.


# %% tags=["exercise"]
@cuda.jit
def mine(A, B, C, alpha, beta):
    parts = cuda.shared.array((2, 8), float32)
    _, N, K = problem_size(A, B, alpha)
    tx, half = thread_x(), thread_y()
    row, col = block_y(), block_x() * 8 + tx
    total = float32(0)
    if col < N:
        for k in range(half, K, 2):
            total += A[row, k] * B[k, col]
    parts[half, tx] = total
    if half == 0 and col < N:
        update(C, row, col, parts[0, tx], alpha, beta)


harness.check(mine, blocks_of(1, 8, threads=(8, 2)), seed=1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# Add the other part, behind a barrier: it is another thread's. Without the barrier the check says so
# every time in the simulator. (On a GPU it may not notice: the 16 threads are half a warp.)
#
# ```python
# @cuda.jit
# def mine(A, B, C, alpha, beta):
#     parts = cuda.shared.array((2, 8), float32)
#     _, N, K = problem_size(A, B, alpha)
#     tx, half = thread_x(), thread_y()
#     row, col = block_y(), block_x() * 8 + tx
#     total = float32(0)
#     if col < N:
#         for k in range(half, K, 2):
#             total += A[row, k] * B[k, col]
#     parts[half, tx] = total
#     cuda.syncthreads()
#     if half == 0 and col < N:
#         update(C, row, col, parts[0, tx] + parts[1, tx], alpha, beta)
#
#
# harness.check(mine, blocks_of(1, 8, threads=(8, 2)))
# ```
#
# </details>
#
# <a id="fringe"></a>
# ## The fringe and the last wave
#
# [contents](#contents) · [back: split_k](#split_k) · [next: six parameters](#search)
#
# Two costs have nothing to do with how good a kernel is. Both come from rounding up.
#
# **Space.** Tiles have a fixed shape, and matrices do not care. The last row and column of tiles
# hang over the edge, their threads compute what nobody stores, and a matrix that is a little larger
# than a tile may cost twice as much.

# %%
cases = [quantization.tiling(N, N, 128, 128) for N in (4092, 300)]
step = quantization.growth(
    quantization.tiling(256, 256, 128, 128), quantization.tiling(256, 257, 128, 128)
)
Markdown(
    " ".join(
        f"A C of {each.M} x {each.N} takes {each.down} x {each.across} tiles of {each.BM} x {each.BN}, which cover "
        f"{each.covered[0]} x {each.covered[1]}: {each.useful:.1%} of what they compute is part of C."
        for each in cases
    )
    + f" From 256 to 257 columns, the arithmetic grows {step[0]:.1f} times, for an answer {step[1]:.2%} larger."
)

# %%
picture(
    plots.tile_quantization(range(16, 1025), [(64, 64), (128, 128), (128, 256)]),
    "The useful part of what tiles compute, over N: a saw whose teeth are as wide as the tile and get smaller",
)

# %% [markdown]
# **Time.** A block stays on its multiprocessor until it is done, and a card holds so many at a
# time: a *wave*. The last wave takes about as long as the others, even if it is one block.

# %%
A6000 = devices.A6000_BOEHM
per = occupancy.occupancy(A6000, square.TILE.threads, square.TILE.TM * square.TILE.TN).blocks
tiles_there = quantization.tiling(4092, 4092, square.TILE.BM, square.TILE.BN).tiles
there = quantization.waves(tiles_there, A6000.multiprocessors, per)
real = occupancy.occupancy(
    A6000, square.TILE.threads, registers_left(square.TILE, A6000), square.TILE.shared_bytes
).blocks
really = quantization.waves(tiles_there, A6000.multiprocessors, real)
Markdown(
    f"A thought experiment of *A GEMM Kernel, Step by Step*: an A6000 has {A6000.multiprocessors} multiprocessors. If a "
    f"thread of `square` needed registers for its sums and nothing else, each would hold {per} blocks, and a wave be "
    f"{there.slots} blocks. The {there.blocks} tiles of 4092 x 4092 are {there.exact:.2f} waves, so it runs "
    f"{there.run}, the last with {there.tail} blocks: {there.efficiency:.0%} of the machine, if all waves took equally "
    "long. They do not quite: blocks start as others end, and a multiprocessor with less to do does it faster. "
    f"The real kernel needs registers for more than its sums, and {real} blocks fit: {really.exact:.2f} waves of "
    f"{really.slots}, {really.run} to run, the last with {really.tail} blocks."
)

# %%
by_model = [plots.Waves(f"{n} to a multiprocessor", H200.multiprocessors, n) for n in (1, 2)]
picture(
    plots.waves(recorded_waves() or by_model),
    "Time over the number of blocks: the model's steps at each full wave, and what was measured where it was",
)

# %% [markdown]
# Where blocks of one multiprocessor slow each other down, the steps are lower than whole waves say;
# where a block has it to itself, they are as high. Neither cost is a rung. The fringe is why one
# tile cannot be best for every shape, and the last wave is what [split_k](#split_k) buys back. On a
# GPU, `numba-gemm model --measure-waves` measures the steps.
#
# <a id="search"></a>
# ## Six parameters, found by search
#
# [contents](#contents) · [back: the fringe](#fringe) · [next: what is left](#next)
#
# BM, BN, BK, TM, TN and with them the number of threads; for the upper rungs a warp tile and a
# number of stages as well. They constrain each other, and the hardware constrains them all. Most
# combinations make no kernel (`#` stands for a number):

# %%
table(
    ["a reason", "tiles refused", "for example"],
    [[kind, count, example] for kind, count, example in space.reasons()[:6]],
)

# %% [markdown]
# The rest can only be tried. `numba-gemm tune` does: it goes through the legal ones, the most
# promising by the model first and some at random in case the model is wrong, times them on the
# device, drops the slow ones early, checks the fastest against numpy and remembers it. From then on
# `numba_gemm.gemm` takes what was fastest on such a card for shapes like yours. That is also why a
# vendor's library is large: it is many kernels, and a choice.
#
# "The model" here is not the ideal one of the [autotuned](#autotuned) rung but the *ranking model* of
# [predict.py](../numba_gemm/search/predict.py): the ideal one with rough estimates of what else costs
# time, and with k shared among blocks where the rung can. It is there to order candidates, and
# gives other times for the same tile and shape.

# %%
print(dispatch.explain(Problem(16, 4096, 4096), H200))

# %%
recorded_suite()

# %% [markdown]
# **Exercise.** Which of two tiles will the ranking model prefer for a narrow C of 16 x 4096, and why?
# Think of the fringe. Then make `yours` a tile with BM = 16 that is legal for `split_k` and that the
# model prefers to the first.

# %% tags=["exercise"]
first, yours = Tile(128, 128, 8, 8, 16, 64, 64, 2), Tile(64, 128, 8, 8, 16, 64, 32, 2)
narrow = Problem(16, 4096, 4096)
for tile in (first, yours):
    took = ranked_seconds(split_k.RUNG, tile, narrow, H200)
    print(
        f"{short(tile)}: {1e6 * took:.0f} us, {quantization.tiling(16, 4096, tile.BM, tile.BN).useful:.0%} useful"
    )
split_k.RUNG.why_illegal(yours) or (
    yours.BM == 16
    and ranked_seconds(split_k.RUNG, yours, narrow, H200)
    < ranked_seconds(split_k.RUNG, first, narrow, H200)
)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# yours = Tile(16, 128, 16, 4, 8, 16, 64, 3)
# split_k.RUNG.why_illegal(yours) or (
#     yours.BM == 16
#     and ranked_seconds(split_k.RUNG, yours, narrow, H200)
#     < ranked_seconds(split_k.RUNG, first, narrow, H200)
# )
# ```
#
# </details>
#
# <a id="next"></a>
# ## What is left, and where the ladder goes next
#
# [contents](#contents) · [back: six parameters](#search)

# %%
known = speeds()
ceilings = {
    rung.name: roofline.attainable(tile_intensity(*rung.reuse), H200.fp32_peak, H200.memory_bandwidth)
    / 1e12
    for rung in LADDER
}
picture(
    plots.ladder(
        ceilings,
        known or None,
        peak=H200.fp32_peak / 1e12,
        cublas=known.get("cuBLAS"),
        title=f"The ladder on an {H200.name}",
    ),
    "Every rung as a bar: hollow what memory would allow it, filled what was measured where there is a record",
)

# %% [markdown]
# What lies between the top of the ladder and the peak? Not bytes any more. It is the issue slots
# that are not multiply-adds, registers that come from the same half of the register file, and the
# waits at the one barrier that is left. [bench/notes.md](../bench/notes.md) has what was predicted,
# tried and measured, the disappointments included, and what to try next.
#
# Look back once. Block tile, warp tile, thread tile: one construction at three scales, each a
# rectangle of C whose operands move one level closer. One formula governed all three, and was
# written down three times in three notations, with parameters threaded through by hand. What is
# missing is an algebra of *layouts*: functions from coordinates to addresses, with rules to cut and
# combine them. CUTLASS and CuTe are built on that.
#
# And two things were fixed all the way up: ordinary arithmetic does the multiplying, and a thread
# owns the numbers it multiplies. Today's fastest kernels give up both. A **tensor core** takes a
# whole tile in one instruction, from operands of fewer bits, and a copy engine brings the next tile
# at the word of a single thread. That moves both caps:

# %%
narrower = [
    ("float32, the lanes", H200.fp32_peak),
    ("TF32, tensor cores", H200.tf32_peak),
    ("FP16 or BF16, tensor cores", H200.fp16_peak),
]
table(
    ["arithmetic", "peak, TFLOP/s", "ridge point, operations per byte"],
    [[what, peak / 1e12, roofline.ridge_point(peak, H200.memory_bandwidth)] for what, peak in narrower],
)

# %% [markdown]
# With the ridge point so far to the right, the tiles of this ladder would be too small, and
# everything starts again one size larger: *give one worker a squarer, bigger tile of the answer.*
#
# **From here:** change a kernel in [numba_gemm/rungs/](../numba_gemm/rungs) and run `pytest
# tests/test_rungs.py`; compile one for a GPU you do not have with `numba-gemm inspect`; on a GPU,
# `numba-gemm climb`. The README says how to [use the multiply](../README.md), and
# [CONTRIBUTING](../CONTRIBUTING.md) how to add a rung of your own.
