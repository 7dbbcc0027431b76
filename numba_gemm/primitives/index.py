"""``index``: an integer that subscripts an array without Numba's index tax.

Numba gives a subscript Python's meaning: ``A[-1]`` is the last element.  Every access with a signed
integer therefore pays a comparison, a selection and an addition, and ``for k in range(K)`` keeps a
trip count beside the counter.  In the loops of a matrix multiply this costs more than the multiply
(numbers in ``bench/notes.md``).  NumPy's unsigned integers have no such wrap-around, but Numba makes
a float64 of ``uint64 + int`` and an int64 of ``uint32 + int``, so every literal would need a cast.

``index(x)`` is the integer that a C programmer has in mind: never negative, never overflowing.  It
mixes freely with plain integers, and what it touches becomes an index::

    row = index(cuda.blockIdx.y) * 32 + cuda.threadIdx.y
    for k in range(index(K)):
        total += A[row, k] * B[k, col]

In the simulator it is ``int``.  On the GPU it is a 64-bit unsigned integer whose additions,
subtractions and multiplications promise the optimizer not to wrap, which is what lets it turn
``row * K + k`` into a pointer that advances by four bytes.  A negative index, or a difference below
zero, is undefined.
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
    from numba.cuda.core.imputils import RefType, iternext_impl
    from numba.cuda.cudadecl import registry as typing_registry
    from numba.cuda.cudaimpl import registry as lowering_registry
    from numba.cuda.extending import core_models, intrinsic, register_model
    from numba.cuda.typing import signature
    from numba.cuda.typing.templates import AbstractTemplate

    class IndexType(types.Integer):
        """The type of an index: 64 bits, unsigned, so that subscripting does not wrap around."""

        def __init__(self) -> None:
            super().__init__("index", bitwidth=64, signed=False)

    INDEX = IndexType()
    LLVM_INDEX = ir.IntType(64)
    NO_WRAP = ("nuw", "nsw")
    register_model(IndexType)(core_models.IntegerModel)

    @intrinsic
    def index(typing_context, value):
        """Make an index of any integer that is not negative."""
        if not isinstance(value, types.Integer):
            return None

        def generate(context, builder, signature, arguments):
            [value] = arguments
            if value.type.width < LLVM_INDEX.width:
                # Not negative, so its upper half is zero whatever its sign bit was called.
                return builder.zext(value, LLVM_INDEX)
            return value

        return INDEX(value), generate

    def _has_index(arguments) -> bool:
        """Whether these are integers, at least one of them an index."""
        return all(isinstance(argument, types.Integer) for argument in arguments) and any(
            isinstance(argument, IndexType) for argument in arguments
        )

    def _define(operators, result, instruction) -> None:
        """Give *operators* a meaning for an index and an integer, in either order."""

        def resolve(self, arguments, keywords):
            if len(arguments) == 2 and _has_index(arguments):
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

    def _define_comparison(comparison, symbol: str) -> None:
        _define(
            [comparison], types.boolean, lambda b, left, right: b.icmp_unsigned(symbol, left, right)
        )

    _define(
        [operator.add, operator.iadd], INDEX, lambda b, left, right: b.add(left, right, "", NO_WRAP)
    )
    _define(
        [operator.sub, operator.isub], INDEX, lambda b, left, right: b.sub(left, right, "", NO_WRAP)
    )
    _define(
        [operator.mul, operator.imul], INDEX, lambda b, left, right: b.mul(left, right, "", NO_WRAP)
    )
    _define([operator.floordiv, operator.ifloordiv], INDEX, ir.IRBuilder.udiv)
    _define([operator.mod, operator.imod], INDEX, ir.IRBuilder.urem)
    _define_comparison(operator.lt, "<")
    _define_comparison(operator.le, "<=")
    _define_comparison(operator.gt, ">")
    _define_comparison(operator.ge, ">=")
    _define_comparison(operator.eq, "==")
    _define_comparison(operator.ne, "!=")

    # range() of indices.  Numba's own decides in every iteration whether a value was produced and
    # selects it or zero; this one is the loop that a C compiler would see.

    INDEX_RANGE = types.RangeType(INDEX)
    INDEX_RANGE_ITERATOR = INDEX_RANGE.iterator_type
    RangeState = cgutils.create_struct_proxy(INDEX_RANGE)
    RangeIterator = cgutils.create_struct_proxy(INDEX_RANGE_ITERATOR)

    @typing_registry.register_global(range)
    class IndexRange(AbstractTemplate):
        key = range

        def generic(self, arguments, keywords):
            if 1 <= len(arguments) <= 3 and _has_index(arguments):
                return signature(INDEX_RANGE, *[INDEX] * len(arguments))
            return None

    def _range_state(context, builder, start, stop, step):
        state = RangeState(context, builder)
        state.start, state.stop, state.step = start, stop, step
        return state._getvalue()

    @lowering_registry.lower(range, IndexType)
    def lower_range_stop(context, builder, signature, arguments):
        return _range_state(context, builder, LLVM_INDEX(0), arguments[0], LLVM_INDEX(1))

    @lowering_registry.lower(range, IndexType, IndexType)
    def lower_range_start_stop(context, builder, signature, arguments):
        return _range_state(context, builder, *arguments, LLVM_INDEX(1))

    @lowering_registry.lower(range, IndexType, IndexType, IndexType)
    def lower_range_start_stop_step(context, builder, signature, arguments):
        return _range_state(context, builder, *arguments)

    @lowering_registry.lower("getiter", INDEX_RANGE)
    def lower_range_iterator(context, builder, signature, arguments):
        state = RangeState(context, builder, arguments[0])
        iterator = RangeIterator(context, builder)
        iterator.iter = cgutils.alloca_once_value(builder, state.start)
        iterator.count = iterator.iter  # Numba's field for a trip count, which is not needed
        iterator.stop = state.stop
        iterator.step = state.step
        return iterator._getvalue()

    @lowering_registry.lower("iternext", INDEX_RANGE_ITERATOR)
    @iternext_impl(RefType.UNTRACKED)
    def lower_range_next(context, builder, signature, arguments, result):
        iterator = RangeIterator(context, builder, arguments[0])
        value = builder.load(iterator.iter)
        result.set_valid(builder.icmp_unsigned("<", value, iterator.stop))
        result.yield_(value)
        builder.store(builder.add(value, iterator.step, "", NO_WRAP), iterator.iter)
