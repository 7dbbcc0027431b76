"""``index``: an integer that subscripts an array without Numba's index tax.

Numba gives a subscript Python's meaning: ``A[-1]`` is the last element.  Every access with a signed
integer therefore pays a comparison, a selection and an addition, and in the loops of a matrix multiply
that costs more than the multiply (figures in ``bench/notes.md``).  NumPy's unsigned integers have no
such wrap-around, but Numba makes a float64 of ``uint64 + int`` and an int64 of ``uint32 + int``, so
that every literal would need a cast.

``index(x)`` is the integer that a C programmer has in mind: never negative, never overflowing.  It
mixes freely with plain integers, and what it touches becomes an index::

    row = index(cuda.blockIdx.y) * 32 + cuda.threadIdx.y
    for k in range(index(A.shape[1])):
        total += A[row, k] * B[k, col]

In the simulator it is ``int``.  On the GPU it has 32 bits, as the assembler likes its counters, and
promises the optimizer not to wrap, which is what lets it turn ``row * K + k`` into a pointer that
advances by four bytes.  Offsets into arrays have 64 bits.

An index below 0, a difference below 0 or anything above 2^31 - 1 is undefined.
"""

from __future__ import annotations

from numba_gemm.target import TARGET

__all__ = ["index"]

if TARGET.is_simulator:
    index = int
else:
    import operator

    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.cudadecl import registry as typing_registry
    from numba.cuda.cudaimpl import registry as lowering_registry
    from numba.cuda.extending import core_models, intrinsic, register_model
    from numba.cuda.typing import signature
    from numba.cuda.typing.templates import AbstractTemplate

    class IndexType(types.Number):
        """The type of an index.

        It is deliberately no ``types.Integer``: Numba would convert it to one of its own integers and
        subscript with that.
        """

        def __init__(self) -> None:
            super().__init__("index")

    INDEX = IndexType()
    LLVM_INDEX = ir.IntType(32)
    NO_WRAP = ("nuw", "nsw")

    @register_model(IndexType)
    class IndexModel(core_models.PrimitiveModel):
        """An index is 32 bits wherever it is kept."""

        def __init__(self, manager, index_type) -> None:
            super().__init__(manager, index_type, LLVM_INDEX)

    def has_index(arguments) -> bool:
        """Whether these are integers, at least one of them an index."""
        return all(isinstance(a, (types.Integer, IndexType)) for a in arguments) and any(
            isinstance(a, IndexType) for a in arguments
        )

    # Conversions.  A value that is not negative has a zero sign bit, so that it may be widened as an
    # unsigned one whatever its type says.

    @lowering_registry.lower_cast(types.Integer, IndexType)
    def integer_to_index(context, builder, from_type, to_type, value):
        if value.type.width > LLVM_INDEX.width:
            return builder.trunc(value, LLVM_INDEX)
        if value.type.width < LLVM_INDEX.width:
            return builder.zext(value, LLVM_INDEX)
        return value

    @lowering_registry.lower_cast(IndexType, types.Integer)
    @lowering_registry.lower_cast(IndexType, types.Float)
    def index_to_number(context, builder, from_type, to_type, value):
        return context.cast(builder, value, types.uint32, to_type)

    @intrinsic
    def index(typing_context, value):
        """Make an index of any integer that is not negative."""
        if not isinstance(value, (types.Integer, IndexType)):
            return None

        def generate(context, builder, signature, arguments):
            return context.cast(builder, arguments[0], signature.args[0], INDEX)

        return INDEX(value), generate

    # Arithmetic and comparisons.

    def _define(operators, result, instruction) -> None:
        """Give *operators* a meaning for an index and an integer, in either order."""

        def resolve(self, arguments, keywords):
            if len(arguments) == 2 and has_index(arguments):
                return signature(result, INDEX, INDEX)
            return None

        def lower(context, builder, signature, arguments):
            return instruction(builder, *arguments)

        for symbol in operators:
            template = type(
                f"Index_{symbol.__name__}", (AbstractTemplate,), {"key": symbol, "generic": resolve}
            )
            typing_registry.register_global(symbol)(template)
            lowering_registry.lower(symbol, IndexType, IndexType)(lower)

    def _define_arithmetic(operators, instruction, flags=()) -> None:
        _define(operators, INDEX, lambda b, left, right: instruction(b, left, right, "", flags))

    def _define_comparison(comparison, symbol: str) -> None:
        _define([comparison], types.boolean, lambda b, left, right: b.icmp_unsigned(symbol, left, right))

    _define_arithmetic([operator.add, operator.iadd], ir.IRBuilder.add, NO_WRAP)
    _define_arithmetic([operator.sub, operator.isub], ir.IRBuilder.sub, NO_WRAP)
    _define_arithmetic([operator.mul, operator.imul], ir.IRBuilder.mul, NO_WRAP)
    _define_arithmetic([operator.floordiv, operator.ifloordiv], ir.IRBuilder.udiv)
    _define_arithmetic([operator.mod, operator.imod], ir.IRBuilder.urem)
    _define_comparison(operator.lt, "<")
    _define_comparison(operator.le, "<=")
    _define_comparison(operator.gt, ">")
    _define_comparison(operator.ge, ">=")
    _define_comparison(operator.eq, "==")
    _define_comparison(operator.ne, "!=")

    # Subscripts of contiguous arrays of one or two dimensions.  Numba keeps a shape in 64 bits; a
    # dimension fits in an index all the same, and multiplies two of them in one instruction.

    INDEX_PAIR = types.UniTuple(INDEX, 2)

    def _subscript_type(array, subscript):
        """The type that *subscript* is converted to, or None where it is not ours."""
        if not isinstance(array, types.Array) or array.layout != "C" or array.ndim > 2:
            return None
        parts = tuple(subscript) if isinstance(subscript, types.BaseTuple) else (subscript,)
        if len(parts) != array.ndim or not has_index(parts):
            return None
        return INDEX if array.ndim == 1 else INDEX_PAIR

    @typing_registry.register_global(operator.getitem)
    class GetItem(AbstractTemplate):
        """``array[subscript]`` where an index takes part."""

        key = operator.getitem

        def generic(self, arguments, keywords):
            array, subscript = arguments
            converted = _subscript_type(array, subscript)
            return signature(array.dtype, array, converted) if converted else None

    @typing_registry.register_global(operator.setitem)
    class SetItem(AbstractTemplate):
        """``array[subscript] = value`` where an index takes part."""

        key = operator.setitem

        def generic(self, arguments, keywords):
            array, subscript, _ = arguments
            converted = _subscript_type(array, subscript)
            return signature(types.none, array, converted, array.dtype) if converted else None

    def element_pointer(context, builder, array_type, array, subscript):
        """A pointer to ``array[subscript]``."""
        array = cgutils.create_struct_proxy(array_type)(context, builder, value=array)
        sizes = cgutils.unpack_tuple(builder, array.shape)
        parts = [subscript] if array_type.ndim == 1 else cgutils.unpack_tuple(builder, subscript)
        wide = sizes[0].type
        offset = builder.zext(parts[0], wide)
        for size, part in zip(sizes[1:], parts[1:], strict=True):
            narrow_size = builder.zext(builder.trunc(size, LLVM_INDEX), wide)
            offset = builder.mul(offset, narrow_size, "", NO_WRAP)
            offset = builder.add(offset, builder.zext(part, wide), "", NO_WRAP)
        return builder.gep(array.data, [offset], inbounds=True)

    def lower_getitem(context, builder, signature, arguments):
        array_type = signature.args[0]
        pointer = element_pointer(context, builder, array_type, *arguments)
        return context.unpack_value(builder, array_type.dtype, pointer)

    def lower_setitem(context, builder, signature, arguments):
        array_type = signature.args[0]
        array, subscript, value = arguments
        pointer = element_pointer(context, builder, array_type, array, subscript)
        context.pack_value(builder, array_type.dtype, value, pointer)

    for _subscript in (IndexType, INDEX_PAIR):
        lowering_registry.lower(operator.getitem, types.Array, _subscript)(lower_getitem)
        lowering_registry.lower(operator.setitem, types.Array, _subscript, types.Any)(lower_setitem)
