"""What people would use instead, each as a call that queues ``C <- A @ B`` on the default stream.

All of them get the same device arrays.  One that is missing, or cannot do a shape, says so by
PeerMissingError.  TF32 is off everywhere.
"""

import math

import numpy as np
import pytest

from numba_gemm import cublas
from numba_gemm.target import TARGET, cuda


class PeerMissingError(RuntimeError):
    """There is nothing to compare with; the message says why."""


def or_skip(name, A, B, C):
    """The call of the peer of that name; skips the test with the reason where there is none."""
    try:
        return PEERS[name](A, B, C)
    except PeerMissingError as error:
        pytest.skip(str(error))


def _imported(name, what):
    """The module of that name; a PeerMissingError where there is none, or no GPU for it."""
    if not TARGET.is_gpu:
        raise PeerMissingError(f"{what} needs a GPU, but {TARGET.reason}")
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        raise PeerMissingError(f"{what} is not there: {error}") from error


def prepare_cublas(A, B, C):
    """cuBLAS' sgemm, through CuPy; numba_gemm/cublas.py says why through that."""
    try:
        return cublas.prepare(A, B, C)
    except cublas.CublasMissingError as error:
        raise PeerMissingError(str(error)) from error


def prepare_cupy(A, B, C):
    """``cupy.matmul``, as its users write it; it multiplies in FP32 unless CUPY_TF32 is set."""
    cupy = _imported("cupy", "CuPy")
    a, b, c = (cupy.asarray(array) for array in (A, B, C))

    def launch():
        with cupy.cuda.Stream.null:
            cupy.matmul(a, b, out=c)

    return launch


def prepare_torch(A, B, C):
    """``torch.mm``, with TF32 off, which is PyTorch's default too."""
    torch = _imported("torch", "PyTorch")
    if not torch.cuda.is_available():
        raise PeerMissingError("this PyTorch has no CUDA")
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b, c = (torch.as_tensor(array, device="cuda") for array in (A, B, C))
    return lambda: torch.mm(a, b, out=c)


# The shared-memory example of Numba's documentation -------------------------------------------------

TPB = 16 if TARGET.is_gpu else 8


@cuda.jit
def documented(A, B, C):
    """One entry of C a thread, tiles of TPB x TPB in shared memory, bounds on every load.

    In the structure of ``fast_matmul`` in the CUDA section of Numba's manual (BSD licence), rewritten:
    plain signed subscripts, tiles cleared before they are filled.  There, as many tiles are walked as
    the grid is wide, which is right for a grid that is widened to the longest side; here as many as K
    needs, which is less work where K is short.
    """
    a_tile = cuda.shared.array((TPB, TPB), np.float32)
    b_tile = cuda.shared.array((TPB, TPB), np.float32)
    col, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = np.float32(0)
    for tile in range((A.shape[1] + TPB - 1) // TPB):
        a_tile[ty, tx] = 0
        b_tile[ty, tx] = 0
        if row < A.shape[0] and tx + tile * TPB < A.shape[1]:
            a_tile[ty, tx] = A[row, tx + tile * TPB]
        if col < B.shape[1] and ty + tile * TPB < B.shape[0]:
            b_tile[ty, tx] = B[ty + tile * TPB, col]
        cuda.syncthreads()
        for k in range(TPB):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = total


def prepare_documented(A, B, C):
    """Numba's own example."""
    M, N = C.shape
    grid = math.ceil(N / TPB), math.ceil(M / TPB)
    configured = documented[grid, (TPB, TPB)]
    return lambda: configured(A, B, C)


# nvmath-python inside of a Numba kernel -------------------------------------------------------------

DX_M, DX_N, DX_K, DX_THREADS = 128, 128, 16, 256


def prepare_nvmath(A, B, C):
    """A kernel around nvmath-python's device-side matmul (cuBLASDx), which multiplies a block's tiles.

    Tiles of A and B go through shared memory, two of each, so that the next ones are copied while the
    present ones are multiplied; the tile of C is in registers.  In the order of NVIDIA's example of a
    whole multiply (cublasdx_device_gemm_performance.py), for row-major arrays.
    """
    _imported("nvmath.device", "nvmath-python's device-side matmul (nvmath-python[cu13-dx])")
    M, N, K = *C.shape, A.shape[1]
    if M % DX_M or N % DX_N or K % DX_K:
        raise PeerMissingError(f"this kernel has no bounds: only multiples of {DX_M} x {DX_N} x {DX_K}")
    kernel, threads, shared_bytes = nvmath_kernel(K, N)
    configured = kernel[(N // DX_N, M // DX_M), threads, 0, shared_bytes]
    return lambda: configured(A, B, C)


def nvmath_kernel(lda, ldb, **where):
    """The kernel for row-major A and B with rows of *lda* and *ldb*, its block, its shared memory.

    *where* may name another compute capability than that of the current GPU, as ``sm``.
    """
    from nvmath.device import Matmul
    from nvmath.device.common import clear, copy, copy_fragment, copy_wait, make_tensor
    from nvmath.device.cublasdx import MAX_ALIGNMENT

    tile = Matmul(
        size=(DX_M, DX_N, DX_K),
        precision=(np.float32, np.float32, np.float32),
        data_type="real",
        arrangement=("row_major", "row_major", "row_major"),
        execution="Block",
        block_size=DX_THREADS,
        alignment=MAX_ALIGNMENT,
        static_block_dim=True,
        **where,
    )
    a_size = tile.suggest_layout_smem_a().cosize
    b_size = tile.suggest_layout_smem_b().cosize
    c_size = tile.suggest_layout_rmem_c().cosize

    @cuda.jit
    def kernel(A, B, C):
        row, col = cuda.blockIdx.y * DX_M, cuda.blockIdx.x * DX_N
        shared = cuda.shared.array((0,), np.float32, alignment=16)
        a_here = make_tensor(shared[:a_size], tile.suggest_layout_smem_a())
        a_next = make_tensor(shared[a_size : 2 * a_size], tile.suggest_layout_smem_a())
        rest = shared[2 * a_size :]
        b_here = make_tensor(rest[:b_size], tile.suggest_layout_smem_b())
        b_next = make_tensor(rest[b_size : 2 * b_size], tile.suggest_layout_smem_b())
        sums = make_tensor(cuda.local.array((c_size,), np.float32), tile.suggest_layout_rmem_c())
        clear(sums)

        rows, cols = A[row : row + DX_M, :], B[:, col : col + DX_N]
        copy(make_tensor(rows[:, :DX_K], tile.get_layout_gmem_a(lda)), a_here)
        copy(make_tensor(cols[:DX_K, :], tile.get_layout_gmem_b(ldb)), b_here)
        for k in range(DX_K, A.shape[1], DX_K):
            copy_wait()
            copy(make_tensor(rows[:, k : k + DX_K], tile.get_layout_gmem_a(lda)), a_next)
            copy(make_tensor(cols[k : k + DX_K, :], tile.get_layout_gmem_b(ldb)), b_next)
            tile.execute(a_here, b_here, sums)
            a_here, a_next = a_next, a_here
            b_here, b_next = b_next, b_here
        copy_wait()
        tile.execute(a_here, b_here, sums)
        out = C[row : row + DX_M, col : col + DX_N]
        copy_fragment(sums, make_tensor(out, tile.get_layout_gmem_c(ldb)))

    return kernel, tile.block_dim, 4 * 2 * (a_size + b_size)


PEERS = {
    "cuBLAS": prepare_cublas,
    "CuPy": prepare_cupy,
    "PyTorch": prepare_torch,
    "Numba's example": prepare_documented,
    "nvmath.device": prepare_nvmath,
}
