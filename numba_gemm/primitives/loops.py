"""Loops: ``range`` of indices, and ``unroll`` for a loop that should not remain one.

``for k in range(K)`` where K is an index is the loop that a C compiler would see.  Numba's own keeps a
trip count beside the counter and selects between the counter and zero in every iteration, so that the
optimizer neither unrolls it nor turns its subscripts into pointers that advance.

``for k in unroll(BK)`` asks the optimizer to write the body BK times, as ``#pragma unroll`` does in
CUDA C++.  BK has to be a constant.  The optimizer unrolls short loops by itself; the hint is for a
body too long for its own rules, such as the TM x TN multiply-adds of one k.

Steps are positive: an index never counts down.  In the simulator both are the ``range`` of Python.
"""

from __future__ import annotations

from numba_gemm.target import TARGET

__all__ = ["unroll"]

if TARGET.is_simulator:
    unroll = range
else:
    from llvmlite.ir.values import MDValue
    from numba.cuda import cgutils, types
    from numba.cuda.core.imputils import RefType, iternext_impl
    from numba.cuda.cudadecl import registry as typing_registry
    from numba.cuda.cudaimpl import registry as lowering_registry
    from numba.cuda.extending import core_models, intrinsic, register_model
    from numba.cuda.target import CUDATargetContext
    from numba.cuda.typing import signature
    from numba.cuda.typing.templates import AbstractTemplate

    from .index import INDEX, LLVM_INDEX, NO_WRAP, IndexType, has_index

    class IndexRangeIterator(types.SimpleIteratorType):
        """Where a loop over indices has got to."""

        def __init__(self, unrolled: bool) -> None:
            self.unrolled = unrolled
            super().__init__(f"index_range_iterator(unrolled={unrolled})", INDEX)

    class IndexRange(types.SimpleIterableType):
        """A range of indices; *unrolled* says what becomes of a loop over it."""

        def __init__(self, unrolled: bool) -> None:
            super().__init__(f"index_range(unrolled={unrolled})", IndexRangeIterator(unrolled))

    @register_model(IndexRange)
    class IndexRangeModel(core_models.StructModel):
        """Start, stop and step."""

        def __init__(self, manager, range_type) -> None:
            members = [("start", INDEX), ("stop", INDEX), ("step", INDEX)]
            super().__init__(manager, range_type, members)

    @register_model(IndexRangeIterator)
    class IndexRangeIteratorModel(core_models.StructModel):
        """A pointer to the next index, stop and step."""

        def __init__(self, manager, iterator_type) -> None:
            members = [
                ("next", types.EphemeralPointer(INDEX)),
                ("stop", INDEX),
                ("step", INDEX),
            ]
            super().__init__(manager, iterator_type, members)

    ROLLED, UNROLLED = IndexRange(unrolled=False), IndexRange(unrolled=True)

    def _make_range(context, builder, range_type, start, stop, step):
        state = cgutils.create_struct_proxy(range_type)(context, builder)
        state.start, state.stop, state.step = start, stop, step
        return state._getvalue()

    @typing_registry.register_global(range)
    class RangeOfIndices(AbstractTemplate):
        """``range`` where one of the arguments is an index."""

        key = range

        def generic(self, arguments, keywords):
            if 1 <= len(arguments) <= 3 and has_index(arguments):
                return signature(ROLLED, *[INDEX] * len(arguments))
            return None

    @lowering_registry.lower(range, IndexType)
    def lower_range_stop(context, builder, signature, arguments):
        return _make_range(context, builder, ROLLED, LLVM_INDEX(0), *arguments, LLVM_INDEX(1))

    @lowering_registry.lower(range, IndexType, IndexType)
    def lower_range_start_stop(context, builder, signature, arguments):
        return _make_range(context, builder, ROLLED, *arguments, LLVM_INDEX(1))

    @lowering_registry.lower(range, IndexType, IndexType, IndexType)
    def lower_range_start_stop_step(context, builder, signature, arguments):
        return _make_range(context, builder, ROLLED, *arguments)

    @intrinsic
    def unroll(typing_context, count):
        """The indices from 0 to *count*, a constant, for a loop that is written out."""
        if not isinstance(count, types.Integer):
            return None

        def generate(context, builder, signature, arguments):
            stop = context.cast(builder, arguments[0], signature.args[0], INDEX)
            return _make_range(context, builder, UNROLLED, LLVM_INDEX(0), stop, LLVM_INDEX(1))

        return UNROLLED(count), generate

    @lowering_registry.lower("getiter", IndexRange)
    def lower_iterator(context, builder, signature, arguments):
        state = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        iterator = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        iterator.next = cgutils.alloca_once_value(builder, state.start)
        iterator.stop, iterator.step = state.stop, state.step
        return iterator._getvalue()

    @lowering_registry.lower("iternext", IndexRangeIterator)
    @iternext_impl(RefType.UNTRACKED)
    def lower_next(context, builder, signature, arguments, result):
        [iterator_type] = signature.args
        iterator = cgutils.create_struct_proxy(iterator_type)(context, builder, arguments[0])
        value = builder.load(iterator.next)
        result.set_valid(builder.icmp_unsigned("<", value, iterator.stop))
        result.yield_(value)
        builder.store(builder.add(value, iterator.step, "", NO_WRAP), iterator.next)
        if iterator_type.unrolled:
            _to_unroll(builder.module).append(builder.block)

    # The hint is metadata on the branch that closes the loop.  While the head of the loop is lowered
    # that branch does not exist yet, so the heads are noted, and the hints are attached when Numba
    # says that the module is complete.

    def _to_unroll(module) -> list:
        """The heads of loops to unroll in *module*."""
        if not hasattr(module, "loops_to_unroll"):
            module.loops_to_unroll = []
        return module.loops_to_unroll

    def _attach_hint(module, head) -> None:
        hint = module.add_metadata(["llvm.loop.unroll.full"])
        loop = MDValue(module, [], name=str(len(module.metadata)))
        loop.operands = (loop, hint)  # a loop's identity is a node that begins with itself
        for block in head.function.blocks:
            if block.terminator is not None and head in block.terminator.operands:
                block.terminator.set_metadata("llvm.loop", loop)

    _numbas_post_lowering = CUDATargetContext.post_lowering

    def _post_lowering(context, module, library):
        for head in _to_unroll(module):
            _attach_hint(module, head)
        return _numbas_post_lowering(context, module, library)

    CUDATargetContext.post_lowering = _post_lowering
