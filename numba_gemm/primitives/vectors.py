"""Four floats in one instruction: ``load4`` and ``store4``.

A load or a store moves four bytes or sixteen with one instruction, and the instruction is what the
memory pipes count.  Numba has no type of four floats to cast a pointer to, so these two build the load
and the store themselves::

    store4(Bs, k, n, load4(B, k0 + k, col0 + n))  # LDG.E.128 and STS.128
    b[j], b[j + 1], b[j + 2], b[j + 3] = load4(Bs, k, n)  # LDS.128

The hardware wants the address of the first float to be a multiple of 16 bytes.  Where every row of a
matrix begins at such an address, which ``rows_are_aligned`` says, that holds for columns that are
multiples of four.  A shared array begins at one if it is made with ``alignment=ALIGNMENT``, which
is 16; in the simulator it is None, as its arrays lie so by themselves and it takes no other value.

On the GPU a wrong address ends the launch.  The simulator raises ValueError, and says which it was.
"""

from __future__ import annotations

from numba_gemm.target import TARGET

__all__ = ["ALIGNMENT", "load4", "rows_are_aligned", "store4"]

VECTOR_BYTES = 16
ALIGNMENT = None if TARGET.is_simulator else VECTOR_BYTES

if TARGET.is_simulator:
    import numpy as np

    def _address(array) -> int:
        """Where the first element of an array of a simulated kernel lies in memory."""
        return int(array.ctypes.data)

    def rows_are_aligned(matrix):
        row_bytes = matrix.shape[1] * matrix.itemsize
        return _address(matrix) % VECTOR_BYTES == 0 and row_bytes % VECTOR_BYTES == 0

    def check_alignment(array, row, col, nbytes):
        """Raise ValueError unless the element at (row, col) lies at a multiple of *nbytes*."""
        offset = row * array.strides[0] + col * array.strides[1]  # a window's rows keep their distance
        if (_address(array) + offset) % nbytes:
            raise ValueError(
                f"the element at ({row}, {col}) of an array of shape {array.shape} does not lie at a "
                f"multiple of {nbytes} bytes"
            )

    def check_bounds(array, row, col, count):
        """Raise IndexError unless *count* elements from (row, col) on lie in that row."""
        if not (0 <= row < array.shape[0] and 0 <= col <= array.shape[1] - count):
            raise IndexError(f"{count} elements from ({row}, {col}) on are not in {array.shape}")

    def load4(array, row, col):
        check_bounds(array, row, col, 4)
        check_alignment(array, row, col, VECTOR_BYTES)
        return tuple(array[row, col + lane] for lane in range(4))

    def store4(array, row, col, values):
        check_bounds(array, row, col, 4)
        check_alignment(array, row, col, VECTOR_BYTES)
        for lane in range(4):
            array[row, col + lane] = np.float32(values[lane])

else:
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.core.errors import TypingError
    from numba.cuda.extending import intrinsic

    from .index import INDEX, INDEX_PAIR, IndexType, element_pointer

    LANES = types.UniTuple(types.float32, 4)
    FOUR_FLOATS = ir.VectorType(ir.FloatType(), 4).as_pointer()

    def require_matrix(caller: str, array) -> None:
        """Refuse, when a kernel is compiled, an array that is no contiguous float32 matrix."""
        if not (
            isinstance(array, types.Array)
            and (array.dtype, array.ndim, array.layout) == (types.float32, 2, "C")
        ):
            raise TypingError(
                f"{caller}: {array} should be a C-contiguous, two-dimensional float32 array"
            )

    def require_integers(caller: str, *values) -> None:
        """Refuse, when a kernel is compiled, a subscript or count that is no integer."""
        for value in values:
            if not isinstance(value, (types.Integer, IndexType)):
                raise TypingError(f"{caller}: {value} should be an integer")

    def pointer_at(context, builder, signature, arguments, first):
        """A pointer to the element at argument *first* + 1 and + 2 of the array at *first*."""
        array, row, col = arguments[first : first + 3]
        array_type, *types_of_subscript = signature.args[first : first + 3]
        subscript = [
            context.cast(builder, value, of_type, INDEX)
            for value, of_type in zip((row, col), types_of_subscript, strict=True)
        ]
        pair = context.make_tuple(builder, INDEX_PAIR, subscript)
        return element_pointer(context, builder, array_type, array, pair)

    @intrinsic
    def load4(typing_context, array, row, col):
        """The four floats of *array* from (row, col) on, as a tuple, in one load of 16 bytes.

        *array* is a C-contiguous, two-dimensional float32 array in global or shared memory.
        """
        require_matrix("load4", array)
        require_integers("load4", row, col)

        def generate(context, builder, signature, arguments):
            pointer = pointer_at(context, builder, signature, arguments, 0)
            lanes = builder.load(builder.bitcast(pointer, FOUR_FLOATS), align=VECTOR_BYTES)
            floats = [builder.extract_element(lanes, ir.IntType(32)(lane)) for lane in range(4)]
            return context.make_tuple(builder, signature.return_type, floats)

        return LANES(array, row, col), generate

    @intrinsic
    def store4(typing_context, array, row, col, values):
        """Store the tuple *values* at (row, col) and the three columns after it, in one store."""
        require_matrix("store4", array)
        require_integers("store4", row, col)
        if not (isinstance(values, types.BaseTuple) and len(values) == 4):
            raise TypingError(f"store4: {values} should be a tuple of four floats")

        def generate(context, builder, signature, arguments):
            pointer = pointer_at(context, builder, signature, arguments, 0)
            floats = context.cast(builder, arguments[3], signature.args[3], LANES)
            lanes = ir.VectorType(ir.FloatType(), 4)(ir.Undefined)
            for lane, value in enumerate(cgutils.unpack_tuple(builder, floats)):
                lanes = builder.insert_element(lanes, value, ir.IntType(32)(lane))
            builder.store(lanes, builder.bitcast(pointer, FOUR_FLOATS), align=VECTOR_BYTES)
            return context.get_dummy_value()

        return types.none(array, row, col, values), generate

    @intrinsic
    def rows_are_aligned(typing_context, matrix):
        """Whether every row of *matrix* begins at a multiple of 16 bytes."""
        require_matrix("rows_are_aligned", matrix)

        def generate(context, builder, signature, arguments):
            matrix = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
            _, columns = cgutils.unpack_tuple(builder, matrix.shape)
            address = builder.ptrtoint(matrix.data, columns.type)
            row_bytes = builder.mul(columns, matrix.itemsize)
            odd_bytes = builder.and_(builder.or_(address, row_bytes), columns.type(VECTOR_BYTES - 1))
            return builder.icmp_unsigned("==", odd_bytes, columns.type(0))

        return types.boolean(matrix), generate
