"""What a caller may pass, what is refused, and what is left alone when it is."""

import decimal
import fractions
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from numba_gemm import Tile, TileError, gemm
from numba_gemm.harness import random_operands
from numba_gemm.operands import MAX_SIZE, check
from numba_gemm.rungs import naive, square
from numba_gemm.target import TARGET, cuda

M, N, K = 4, 6, 5


def foreign(interface):
    """An array of some other library, known only by its CUDA array interface."""
    return SimpleNamespace(__cuda_array_interface__=interface)


def operands():
    """Legal A, B and C to spoil one at a time."""
    A, B, C = random_operands(M, N, K)
    return {"A": A, "B": B, "C": C}


def read_only(array):
    """A copy that may not be written."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


# What is refused ----------------------------------------------------------------------------------

# Ways to spoil a matrix, each with the exception and its message: the argument, what it was and
# what it should be.
DTYPES = {
    dtype: (
        lambda array, dtype=dtype: array.astype(dtype),
        TypeError,
        f"{{name}} has dtype {dtype}; it should be float32",
    )
    for dtype in ("float64", "float16", "int32", "complex64", "bool", "object", ">f4")
}
DIMENSIONS = {
    f"{dimensions} dimensions": (
        how,
        ValueError,
        f"{{name}} has {dimensions} dimension{'' if dimensions == 1 else 's'}; it should have 2",
    )
    for dimensions, how in {
        0: lambda array: array[0, 0, None].reshape(()),
        1: lambda array: array.ravel(),
        3: lambda array: array[None],
    }.items()
}
STRIDES = {
    layout: (
        how,
        ValueError,
        "{name} of shape {shape} has strides {strides} in bytes; it should be C-contiguous, "
        "as numpy.ascontiguousarray makes it",
    )
    for layout, how in {
        "every other column": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
        "every other row": lambda array: np.repeat(array, 2, axis=0)[::2],
        "part of wider rows": lambda array: np.pad(array, ((0, 0), (0, 3)))[:, :-3],
        "Fortran order": np.asfortranarray,
        "transposed": lambda array: array.T.copy().T,
        "upside down": lambda array: array[::-1],
        "one row repeated": lambda array: np.lib.stride_tricks.as_strided(array, strides=(0, 4)),
    }.items()
}
NOT_ARRAYS = {
    kind: (how, TypeError, f"{{name}} is a {kind}; it should be a")
    for kind, how in {
        "builtins.list": lambda array: array.tolist(),
        "builtins.float": lambda array: 1.0,
        "builtins.str": lambda array: "matrix",
        "numpy.ma.MaskedArray": np.ma.masked_array,
    }.items()
}


def spoil(name, how, error, message):
    """The argument *name*, spoilt; the exception that is due and its message."""
    array = how(operands()[name])
    strides = getattr(array, "strides", None)
    shape = operands()[name].shape
    return {name: array}, error, message.format(name=name, shape=shape, strides=strides)


SPOILED = {
    f"{name}: {way}": spoil(name, *case)
    for name in "ABC"
    for way, case in (DTYPES | DIMENSIONS | STRIDES | NOT_ARRAYS).items()
}
SPOILED |= {
    "A: None": ({"A": None}, TypeError, "A is a builtins.NoneType; it should be"),
    "B: None": ({"B": None}, TypeError, "B is a builtins.NoneType; it should be"),
    "inner sizes": (
        {"B": np.zeros((K + 1, N), np.float32)},
        ValueError,
        f"A is {M} x {K} and B is {K + 1} x {N}; B should have as many rows as A has columns, {K}",
    ),
    "rows of C": (
        {"C": np.zeros((M + 1, N), np.float32)},
        ValueError,
        f"C is {M + 1} x {N}; it should be {M} x {N}",
    ),
    "columns of C": (
        {"C": np.zeros((M, N - 1), np.float32)},
        ValueError,
        f"C is {M} x {N - 1}; it should be {M} x {N}",
    ),
    "C transposed": (
        {"C": np.zeros((N, M), np.float32)},
        ValueError,
        f"C is {N} x {M}; it should be {M} x {N}",
    ),
    "read-only C": (
        {"C": read_only(np.zeros((M, N), np.float32))},
        ValueError,
        "C is read-only; it should be writable",
    ),
    "beta without C": (
        {"C": None, "beta": 0.5},
        ValueError,
        "beta is 0.5 but there is no C to multiply by it; pass C",
    ),
    "unknown rung": (
        {"rung": "staircase"},
        ValueError,
        "there is no rung 'staircase'; the ladder has naive, coalesced, tiled2d, column, square",
    ),
    "rung None": ({"rung": None}, TypeError, "rung is a NoneType; it should be a name or a Rung"),
    "rung a module": (
        {"rung": naive},
        TypeError,
        "rung is a module; it should be a name or a Rung",
    ),
}

NOT_REAL = {
    "complex": (1j, "complex"),
    "str": ("1", "str"),
    "None": (None, "NoneType"),
    "list": ([1.0], "list"),
    "array": (np.ones(1, np.float32), "ndarray"),
    "complex64": (np.complex64(1), "complex64"),
    "0-d complex": (np.array(1j), "complex128"),
    "Decimal": (decimal.Decimal(1), "Decimal"),
}
SPOILED |= {
    f"{name}: {kind}": (
        {name: value},
        TypeError,
        f"{name} is a {type_name}; it should be a real number",
    )
    for name in ("alpha", "beta")
    for kind, (value, type_name) in NOT_REAL.items()
}
SPOILED |= {
    f"{name}: {value:.0e}": (
        {name: value},
        ValueError,
        f"{name} is {value}; it should fit in float32",
    )
    for name in ("alpha", "beta")
    for value in (3.5e38, -1e39, 1e308, 10**300)
}


def memory(value):
    """The bytes of an array, to be compared afterwards; nothing for what is no array."""
    return value.tobytes() if isinstance(value, np.ndarray) else None


@pytest.mark.parametrize(("changes", "error", "message"), SPOILED.values(), ids=SPOILED.keys())
def test_refused(changes, error, message):
    """The exact exception and what it says; and nothing has been written anywhere."""
    arguments = operands() | changes
    before = {name: memory(value) for name, value in arguments.items()}
    with pytest.raises(error) as caught:
        gemm(**arguments)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert {name: memory(value) for name, value in arguments.items()} == before


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids=["1e400", "-1e400", "1e5000"])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_integers_too_large_even_for_float64(name, value):
    """They do not fit in float32 either, and are refused in the same words."""
    with pytest.raises(ValueError, match=f"^{name} is .*; it should fit in float32$"):
        gemm(**operands() | {name: value})


ON_DEVICE = {
    way: (DTYPES | DIMENSIONS | STRIDES)[way]
    for way in ("float64", "int32", "1 dimensions", "3 dimensions", "Fortran order", "transposed")
}


@pytest.mark.parametrize("name", "ABC")
@pytest.mark.parametrize("case", ON_DEVICE.values(), ids=ON_DEVICE.keys())
def test_refused_on_the_device(name, case):
    """Device arrays are checked by the same rules, and left alone by the same rule."""
    changes, error, message = spoil(name, *case)
    arguments = {key: cuda.to_device(array) for key, array in (operands() | changes).items()}
    before = arguments["C"].copy_to_host()
    with pytest.raises(error) as caught:
        gemm(**arguments)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert arguments["C"].copy_to_host().tobytes() == before.tobytes()


def test_part_of_a_device_array_with_wider_rows():
    """A slice of columns on the device is refused, too."""
    wide = cuda.to_device(np.zeros((M, K + 3), np.float32))
    with pytest.raises(ValueError, match=r"A of shape .* should be C-contiguous"):
        gemm(wide[:, :K], operands()["B"])


def test_dimensions_beyond_31_bits():
    """Rows and columns are counted in 31 bits; an empty matrix shows it without the memory."""
    empty = np.zeros((0, 0), np.float32)
    assert gemm(np.zeros((MAX_SIZE, 0), np.float32), empty).shape == (MAX_SIZE, 0)
    with pytest.raises(
        ValueError, match=f"^A is {MAX_SIZE + 1} x 0; neither may be more than {MAX_SIZE}$"
    ):
        gemm(np.zeros((MAX_SIZE + 1, 0), np.float32), empty)
    with pytest.raises(
        ValueError, match=f"^B is 0 x {MAX_SIZE + 1}; neither may be more than {MAX_SIZE}$"
    ):
        gemm(empty, np.zeros((0, MAX_SIZE + 1), np.float32))


@pytest.mark.parametrize("stream", ["x", 7, object()], ids=["text", "number", "object"])
def test_what_is_no_stream(stream):
    """It is refused before anything is written, also where the simulator could do without it."""
    arguments = operands()
    before = arguments["C"].copy()
    with pytest.raises(TypeError, match=r"^stream is a .*; it should be a Numba stream$"):
        gemm(**arguments, stream=stream)
    np.testing.assert_array_equal(arguments["C"], before)


def test_an_illegal_tile_is_refused_before_anything_is_written():
    """Tiles are arguments, too."""
    arguments = operands()
    before = memory(arguments["C"])
    with pytest.raises(TileError, match="TM=3 does not divide BM=16"):
        square.gemm(**arguments, tile=Tile(16, 32, 4, TM=3, TN=4))
    with pytest.raises(TileError, match="the rung naive has no tile parameters"):
        naive.gemm(**arguments, tile=Tile(32, 32, 32))
    assert memory(arguments["C"]) == before


@pytest.mark.simulator
@pytest.mark.parametrize("name", "ABC")
def test_a_gpu_array_in_the_simulator(name):
    """Its memory is out of reach: say so, and say why this is the simulator."""
    arguments = operands()
    shape = arguments[name].shape
    arguments[name] = foreign({"shape": shape, "typestr": "<f4", "data": (4096, False), "version": 3})
    with pytest.raises(TypeError) as caught:
        gemm(**arguments)
    assert str(caught.value) == (
        f"{name} lies in a GPU's memory, but {TARGET.reason}; it should be a NumPy array"
    )


class NeedsGradients:
    """As a torch tensor that records gradients: it refuses to show its memory."""

    @property
    def __cuda_array_interface__(self):
        """Refuse, in the words of torch."""
        raise RuntimeError("use tensor.detach()")


@pytest.mark.parametrize("name", "ABC")
def test_an_array_that_refuses_to_show_its_memory(name):
    """The message names the argument and passes on what its library says."""
    with pytest.raises(TypeError, match=rf"^{name} .*use tensor\.detach\(\)"):
        gemm(**operands() | {name: NeedsGradients()})


# Sharing memory -----------------------------------------------------------------------------------

SIZE = 6  # square matrices, so that one may stand for another


@pytest.fixture(params=["host", "device"])
def buffer(request):
    """Memory for three square matrices in a row, on either side."""
    values = np.random.default_rng().random(3 * SIZE**2, np.float32)
    return values if request.param == "host" else cuda.to_device(values)


def square_at(buffer, element):
    """The square matrix that begins at that element of the buffer."""
    return buffer[element : element + SIZE**2].reshape(SIZE, SIZE)


def contents(buffer):
    """A host copy of the buffer."""
    return buffer.copy() if isinstance(buffer, np.ndarray) else buffer.copy_to_host()


@pytest.mark.parametrize("distance", [0, 1, -1, SIZE, SIZE**2 - 1, 1 - SIZE**2])
@pytest.mark.parametrize("name", "AB")
def test_C_may_not_overlap(buffer, name, distance):
    """Neither the same matrix nor one that shares a single element."""
    before = contents(buffer)
    middle = SIZE**2
    other = np.eye(SIZE, dtype=np.float32)
    arguments = {"A": other, "B": other, name: square_at(buffer, middle + distance)}
    with pytest.raises(ValueError, match=f"^C shares memory with {name}; it should be an array of its"):
        gemm(**arguments, C=square_at(buffer, middle))
    assert contents(buffer).tobytes() == before.tobytes()


def test_neighbours_do_not_overlap(buffer, quick):
    """C may lie between A and B without a gap; they stay as they are."""
    before = contents(buffer)
    A, C, B = (square_at(buffer, i * SIZE**2) for i in range(3))
    gemm(A, B, C, rung=quick)
    after = contents(buffer)
    a, _, b = before.reshape(3, SIZE, SIZE)
    np.testing.assert_allclose(square_at(after, SIZE**2), a @ b, rtol=1e-5)
    np.testing.assert_array_equal(after[: SIZE**2], before[: SIZE**2])
    np.testing.assert_array_equal(after[-(SIZE**2) :], before[-(SIZE**2) :])


@pytest.mark.parametrize("distance", [0, 1, SIZE])
def test_A_and_B_may_overlap(buffer, quick, distance):
    """Both are only read, so they may be the same matrix or share some of it."""
    A, B = square_at(buffer, 0), square_at(buffer, distance)
    C = gemm(A, B, rung=quick)
    before = contents(buffer)
    expected = square_at(before, 0) @ square_at(before, distance)
    np.testing.assert_allclose(contents(C), expected, rtol=1e-5)


def test_an_empty_matrix_overlaps_nothing(quick):
    """A panel of no columns within C, as the first step of a blocked algorithm has it."""
    C = np.ones((4, 4), np.float32)
    panel = np.ndarray((4, 0), np.float32, buffer=C, offset=8)  # C[:, 2:2], at its true address
    gemm(panel, np.zeros((0, 4), np.float32), C, beta=2, rung=quick)
    assert (C == 2).all()


# What is accepted ---------------------------------------------------------------------------------


def placed(array, place):
    """The array where it is wanted: a NumPy array, a device array, or none at all."""
    return {"host": array, "device": cuda.to_device(array), "none": None}[place]


@pytest.mark.parametrize("place_C", ["none", "host", "device"])
@pytest.mark.parametrize(("place_A", "place_B"), list(itertools.product(["host", "device"], repeat=2)))
def test_where_matrices_may_lie(quick, place_A, place_B, place_C):
    """Any mixture works; C is returned as it was passed, and a new C lies where A and B do."""
    A, B, C0 = operands().values()
    beta = 0.0 if place_C == "none" else -0.5
    a, b, c = placed(A, place_A), placed(B, place_B), placed(C0.copy(), place_C)
    result = gemm(a, b, c, beta=beta, rung=quick)

    if place_C != "none":
        assert result is c
    elif place_A == place_B == "host":
        assert type(result) is np.ndarray
    else:
        assert type(result) is type(cuda.to_device(A))
    assert result.shape == (M, N)
    assert result.dtype == np.float32
    np.testing.assert_allclose(contents(result), A @ B + beta * C0, rtol=1e-4, atol=1e-6)
    for array, original in ((a, A), (b, B)):
        assert contents(array).tobytes() == original.tobytes()


def test_a_new_C_at_every_call(quick):
    """Results do not share memory with each other."""
    A, B, _ = operands().values()
    first = gemm(A, B, rung=quick)
    kept = first.copy()
    assert not np.shares_memory(first, gemm(-A, B, rung=quick))
    np.testing.assert_array_equal(first, kept)


def test_read_only_A_and_B(quick):
    """They are only read."""
    A, B, _ = operands().values()
    np.testing.assert_array_equal(gemm(read_only(A), read_only(B), rung=quick), gemm(A, B, rung=quick))


def test_strides_of_single_rows_and_columns_do_not_matter(quick):
    """One row cut out of a matrix is contiguous, whatever its stride says."""
    wide = np.arange(40, dtype=np.float32).reshape(4, 10)
    row, column = wide[1:4:5], np.ones((10, 1), np.float32)
    np.testing.assert_array_equal(gemm(row, column, rung=quick), [[wide[1].sum()]])
    np.testing.assert_array_equal(gemm(column, row, rung=quick), column @ row)


def test_subclasses_of_ndarray(quick):
    """A float32 numpy.matrix is an array of two dimensions like any other."""
    A, B, C = (array.view(np.matrix) for array in operands().values())
    expected = np.asarray(A) @ np.asarray(B)
    np.testing.assert_allclose(gemm(A, B, C, rung=quick), expected, rtol=1e-4, atol=1e-6)
    assert type(gemm(A, B, rung=quick)) is np.ndarray


REAL = {
    "int": 2,
    "bool": True,
    "float32": np.float32(0.1),
    "float64": np.float64(0.1),
    "int64": np.int64(-3),
    "Fraction": fractions.Fraction(1, 3),
    "0-d array": np.array(0.25),
    "largest": float(np.finfo(np.float32).max),
    "smallest": 2.0**-149,
    "infinity": math.inf,
    "NaN": math.nan,
}


@pytest.mark.parametrize("value", REAL.values(), ids=REAL.keys())
def test_real_numbers(quick, value):
    """Every kind of real number serves as alpha and as beta, rounded to float32."""
    one = np.ones((1, 1), np.float32)
    rounded = np.float32(float(value))
    np.testing.assert_array_equal(gemm(one, one, alpha=value, rung=quick), [[rounded]])
    C = gemm(one, 0 * one, one.copy(), beta=value, rung=quick)
    np.testing.assert_array_equal(C, [[rounded]])


def test_scalars_that_round_to_zero_are_zero(quick):
    """What the kernel receives decides what is read: 1e-60 is 0 in float32."""
    A, B, C = operands().values()
    A[:], C[:] = np.nan, np.nan
    assert not gemm(A, B, C, alpha=1e-60, beta=-1e-60, rung=quick).any()


@pytest.mark.parametrize("name", ["naive", "coalesced", "tiled2d", "column", "square", "auto"])
def test_rungs_by_name(name):
    """Every rung has a name; auto is one of them."""
    A, B, _ = operands().values()
    np.testing.assert_allclose(gemm(A, B, rung=name), A @ B, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("place", ["host", "device"])
def test_on_a_stream(quick, place):
    """A NumPy C is complete when the call returns, a device C when the stream is."""
    A, B, C0 = operands().values()
    stream = cuda.stream()
    C = placed(C0.copy(), place)
    gemm(placed(A, place), placed(B, place), C, beta=1, rung=quick, stream=stream, verify=True)
    if place == "device":
        stream.synchronize()
    np.testing.assert_allclose(contents(C), A @ B + C0, rtol=1e-4, atol=1e-6)


def test_several_threads_at_once(quick):
    """Calls from different threads do not disturb each other."""

    def multiply(seed):
        A, B, C0 = random_operands(M + seed, N, K, seed=seed)
        C = gemm(A, B, C0.copy(), beta=1, rung=quick, verify=True)
        return np.abs(C - (A @ B + C0)).max()

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(multiply, range(12))) < 1e-5


# Arrays of other libraries ------------------------------------------------------------------------


@pytest.mark.gpu
def test_cuda_array_interface():
    """Whatever shows its memory in the standard way is used where it is."""
    A, B, C0 = operands().values()
    on_device = [cuda.to_device(array) for array in (A, B, C0)]
    a, b, c = (foreign(array.__cuda_array_interface__) for array in on_device)
    assert gemm(a, b, c, beta=2) is c
    np.testing.assert_allclose(on_device[2].copy_to_host(), A @ B + 2 * C0, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
def test_cuda_array_interface_of_a_single_row():
    """The stride from a row to the next says nothing where there is no next."""
    A, B, _ = operands().values()
    on_device = cuda.to_device(A)
    row = on_device.__cuda_array_interface__ | {"shape": (1, K), "strides": (4096, 4)}
    np.testing.assert_allclose(contents(gemm(foreign(row), B)), A[:1] @ B, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
def test_cuda_array_interface_is_checked():
    """The same refusals as for any other array."""
    A, B, C0 = operands().values()
    C = cuda.to_device(C0)
    interface = dict(C.__cuda_array_interface__)
    address, _ = interface["data"]
    for changes, message in (
        ({"data": (address, True)}, "C is read-only; it should be writable"),
        ({"strides": (4, 4 * M)}, "it should be C-contiguous"),
        ({"shape": (M, N, 1), "strides": None}, "C has 3 dimensions; it should have 2"),
    ):
        with pytest.raises(ValueError, match=message):
            gemm(A, B, foreign(interface | changes))
    with pytest.raises(TypeError, match="C has dtype int32; it should be float32"):
        gemm(A, B, foreign(interface | {"typestr": "<i4"}))
    assert C.copy_to_host().tobytes() == C0.tobytes()


@pytest.mark.gpu
def test_cupy_arrays():
    """CuPy's arrays, on CuPy's current stream."""
    cupy = pytest.importorskip("cupy")
    A, B, C0 = (cupy.asarray(array) for array in operands().values())
    with cupy.cuda.Stream() as stream:
        C = C0 + 0
        assert gemm(A, B, C, alpha=0.5, beta=1) is C
        stream.synchronize()
    cuda.synchronize()
    cupy.testing.assert_allclose(C, 0.5 * A @ B + C0, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"A of shape .* should be C-contiguous"):
        gemm(A.T.copy().T, B)
    with pytest.raises(ValueError, match="C shares memory with A"):
        gemm(A[:1, :1], B[:1, :1], A[:1, :1])


@pytest.mark.gpu
def test_torch_tensors():
    """PyTorch's tensors on the GPU; one on the host is refused by name."""
    torch = pytest.importorskip("torch")
    A, B, C0 = (torch.from_numpy(array).cuda() for array in operands().values())
    C = C0.clone()
    assert gemm(A, B, C, beta=-1) is C
    cuda.synchronize()
    torch.testing.assert_close(C, A.double().matmul(B.double()).float() - C0, rtol=1e-4, atol=1e-6)
    with pytest.raises(TypeError, match=r"^B is a torch\.Tensor; it should be"):
        gemm(A, B.cpu())
    with pytest.raises(TypeError, match="A has dtype float64"):
        gemm(A.double(), B)


@pytest.mark.parametrize("place", ["host", pytest.param("device", marks=pytest.mark.gpu)])
def test_a_dimension_of_one_may_have_any_stride(quick, place):
    """``x[None]`` and ``x[:, None]`` have a stride of 0, which Numba takes for not contiguous."""
    x = np.arange(1, 7, dtype=np.float32)
    row, column = x[None], x[:, None]
    assert 0 in row.strides
    assert 0 in column.strides
    a, b = placed(row, place), placed(column, place)
    np.testing.assert_array_equal(contents(gemm(a, b, rung=quick)), [[91]])
    np.testing.assert_array_equal(contents(gemm(b, a, rung=quick)), np.outer(x, x))
    C = np.ones(6, np.float32)[None]
    gemm(np.ones((1, 1), np.float32), row, C, beta=2, rung=quick)
    np.testing.assert_array_equal(C, row + 2)


def test_what_reaches_a_kernel_is_contiguous_to_numba():
    """The strides are those of a matrix, whatever the caller's dimension of one had."""
    x = np.arange(6, dtype=np.float32)
    for matrix in (x[None], x[:, None], np.broadcast_to(np.float32(3), (1, 1))):
        on_device = check(matrix, np.zeros((matrix.shape[1], 2), np.float32)).A.to_device(0)
        assert on_device.strides == (4 * matrix.shape[1], 4)
        np.testing.assert_array_equal(on_device.copy_to_host(), matrix)


def test_a_device_array_between_two_floats(monkeypatch):
    """A GPU would end the launch: there is no float at an address that is no multiple of four."""
    odd = np.zeros(4 * 6 + 1, np.uint8)[1:].view(np.float32).reshape(2, 3)
    device_array = cuda.to_device(np.zeros((2, 3), np.float32))
    interface = {"shape": (2, 3), "typestr": "<f4", "data": (odd.ctypes.data | 1, False), "version": 3}
    monkeypatch.setattr("numba_gemm.operands._interface", lambda name, array: interface)
    with pytest.raises(ValueError, match=r"A begins at 0x.*, which should be a multiple of 4"):
        check(device_array, device_array, None, 1, 0)
