"""Kernels that make one request of shared memory again and again, for ``bank_conflicts.py``.

``kernel[1, 32](words, repeats, out)``: *words* has for each lane of the warp where its request
begins, in floats.  The barrier in each loop makes the compiler load or store again every time.
"""

from numpy import float32

from numba_gemm.primitives import ALIGNMENT, load4, store4
from numba_gemm.target import cuda

FLOATS = 4096


@cuda.jit
def load1(words, repeats, out):
    tile = cuda.shared.array((1, FLOATS), float32)
    lane = cuda.threadIdx.x
    for i in range(lane, FLOATS, 32):
        tile[0, i] = i
    cuda.syncthreads()
    word, total = words[lane], float32(0)
    for _ in range(repeats):
        total += tile[0, word]
        cuda.syncthreads()
    out[lane] = total


@cuda.jit
def load_four(words, repeats, out):
    tile = cuda.shared.array((1, FLOATS), float32, alignment=ALIGNMENT)
    lane = cuda.threadIdx.x
    for i in range(lane, FLOATS, 32):
        tile[0, i] = i
    cuda.syncthreads()
    word, total = words[lane], float32(0)
    for _ in range(repeats):
        a, b, c, d = load4(tile, 0, word)
        total += (a + b) + (c + d)
        cuda.syncthreads()
    out[lane] = total


@cuda.jit
def store1(words, repeats, out):
    tile = cuda.shared.array((1, FLOATS), float32)
    lane = cuda.threadIdx.x
    word = words[lane]
    for n in range(repeats):
        tile[0, word] = n + lane
        cuda.syncthreads()
    out[lane] = tile[0, word]


@cuda.jit
def store_four(words, repeats, out):
    tile = cuda.shared.array((1, FLOATS), float32, alignment=ALIGNMENT)
    lane = cuda.threadIdx.x
    word = words[lane]
    for n in range(repeats):
        value = float32(n + lane)
        store4(tile, 0, word, (value, value, value, value))
        cuda.syncthreads()
    out[lane] = tile[0, word]


OF_KIND = {
    (4, False): load1,
    (16, False): load_four,
    (4, True): store1,
    (16, True): store_four,
}
"""By the bytes of a request and whether it stores."""
