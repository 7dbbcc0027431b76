"""The first five rungs in CUDA C++, compiled by NVRTC through CuPy, to measure Numba's kernels against.

They are as short as can be: no beta, and no bounds, so that M, N and K have to be multiples of 128.
Structure and tiles are those of S. Boehm's kernels 1 to 5, the text is ours.
"""

RUNGS = ("naive", "coalesced", "tiled2d", "column", "square")

SOURCE = r"""
extern "C" __global__ void naive(int N, int K, float alpha, const float *A, const float *B, float *C) {
    int row = blockIdx.x * 32 + threadIdx.x, col = blockIdx.y * 32 + threadIdx.y;
    float total = 0;
    for (int k = 0; k < K; ++k) total += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * total;
}

extern "C" __global__ void
coalesced(int N, int K, float alpha, const float *A, const float *B, float *C) {
    int row = blockIdx.y * 32 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    float total = 0;
    for (int k = 0; k < K; ++k) total += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * total;
}

extern "C" __global__ void tiled2d(int N, int K, float alpha, const float *A, const float *B, float *C) {
    __shared__ float As[32 * 32], Bs[32 * 32];
    int tx = threadIdx.x, ty = threadIdx.y;
    A += blockIdx.y * 32 * K;
    B += blockIdx.x * 32;
    C += blockIdx.y * 32 * N + blockIdx.x * 32;
    float total = 0;
    for (int chunk = 0; chunk < K; chunk += 32) {
        As[ty * 32 + tx] = A[ty * K + tx];
        Bs[ty * 32 + tx] = B[ty * N + tx];
        __syncthreads();
        A += 32;
        B += 32 * N;
        for (int k = 0; k < 32; ++k) total += As[ty * 32 + k] * Bs[k * 32 + tx];
        __syncthreads();
    }
    C[ty * N + tx] = alpha * total;
}

template <int BM, int BN, int BK, int TM, int TN>
__device__ void tiles_in_registers(int N, int K, float alpha, const float *A, const float *B, float *C) {
    __shared__ float As[BM * BK], Bs[BK * BN];
    constexpr int THREADS = BM * BN / (TM * TN), A_STEP = THREADS / BK, B_STEP = THREADS / BN;
    int ty = threadIdx.x / (BN / TN), tx = threadIdx.x % (BN / TN);
    int ar = threadIdx.x / BK, ac = threadIdx.x % BK, br = threadIdx.x / BN, bc = threadIdx.x % BN;
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    float sums[TM][TN] = {}, a[TM], b[TN];
    for (int chunk = 0; chunk < K; chunk += BK) {
        for (int r = 0; r < BM; r += A_STEP) As[(ar + r) * BK + ac] = A[(ar + r) * K + ac];
        for (int r = 0; r < BK; r += B_STEP) Bs[(br + r) * BN + bc] = B[(br + r) * N + bc];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (int k = 0; k < BK; ++k) {
            for (int i = 0; i < TM; ++i) a[i] = As[(ty * TM + i) * BK + k];
            for (int j = 0; j < TN; ++j) b[j] = Bs[k * BN + tx * TN + j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) sums[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) C[(ty * TM + i) * N + tx * TN + j] = alpha * sums[i][j];
}

extern "C" __global__ void __launch_bounds__(512)
column(int N, int K, float alpha, const float *A, const float *B, float *C) {
    tiles_in_registers<64, 64, 8, 8, 1>(N, K, alpha, A, B, C);
}

extern "C" __global__ void __launch_bounds__(256)
square(int N, int K, float alpha, const float *A, const float *B, float *C) {
    tiles_in_registers<128, 128, 8, 8, 8>(N, K, alpha, A, B, C);
}
"""


def prepare(rung, problem, A, B, C):
    """A call that queues ``C <- alpha * A @ B`` by the C++ twin of *rung*, on the default stream."""
    import cupy

    kernel = cupy.RawModule(code=SOURCE, options=("-std=c++17",)).get_function(rung.name)
    geometry = rung.geometry(problem.M, problem.N)
    arrays = [cupy.asarray(array) for array in (A, B, C)]
    sizes = [cupy.int32(problem.N), cupy.int32(problem.K)]
    arguments = (*sizes, cupy.float32(problem.alpha), *arrays)
    return lambda: kernel(geometry.grid, geometry.block, arguments)
