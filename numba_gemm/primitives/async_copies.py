"""Copies from global to shared memory that go on while the thread computes (cp.async).

An ordinary copy is a load into a register and a store from it, and the thread that wants to compute
meanwhile keeps the register.  ``copy_async`` asks the memory system to do both; the value passes through
no register::

    copy_async(Bs, k, n, B, k0 + k, col0 + n, 4, 4)  # four floats, LDGSTS.E.128
    commit_copies()  # the copies since the last commit are a group
    ...
    wait_for_copies(1)  # all groups of this thread but the latest one are there
    cuda.syncthreads()  # and now those of all threads

Compute capability 8.0 and up.  In the simulator nothing arrives before it is waited for, and NaN stands
where it will arrive: a kernel that forgets to wait computes NaN there, where on a GPU it would be right
on a good day.

Source: CUDA PTX ISA, "cp.async".
"""

from __future__ import annotations

from numba_gemm.target import TARGET

__all__ = ["commit_copies", "copy_async", "wait_for_copies"]

if TARGET.is_simulator:
    import threading
    from collections import deque

    import numpy as np

    from .vectors import check_alignment, check_bounds

    class _Copies(threading.local):
        """The copies of one simulated thread that have not arrived: committed groups, and the next."""

        def __init__(self) -> None:
            self.groups: deque[list] = deque()
            self.next_group: list = []

    _copies = _Copies()

    def copy_async(target, i, j, source, row, col, count, valid):
        if count not in (1, 2, 4):
            raise ValueError(f"count is {count}; it should be 1, 2 or 4 floats")
        if not 0 <= valid <= count:
            raise ValueError(f"valid is {valid}; it should be from 0 to {count}")
        check_bounds(target, i, j, count)
        check_alignment(target, i, j, 4 * count)
        if valid:
            check_bounds(source, row, col, valid)
            check_alignment(source, row, col, 4 * count)
        for lane in range(count):
            target[i, j + lane] = np.nan
        _copies.next_group.append((target, i, j, source, row, col, count, valid))

    def commit_copies():
        _copies.groups.append(_copies.next_group)
        _copies.next_group = []

    def wait_for_copies(pending):
        if pending < 0:
            raise ValueError(f"pending is {pending}; it should be 0 or more")
        while len(_copies.groups) > pending:
            for target, i, j, source, row, col, count, valid in _copies.groups.popleft():
                for lane in range(count):
                    target[i, j + lane] = source[row, col + lane] if lane < valid else 0

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.core.errors import TypingError
    from numba.cuda.extending import intrinsic

    from .vectors import pointer_at, require_integers, require_matrix

    WORD = ir.IntType(32)
    SHARED = 3  # the number of shared memory among LLVM's address spaces

    def _emit(builder, instruction: str, constraints: str = "", operands=()) -> None:
        """Emit one PTX instruction that may not be moved across other uses of memory."""
        kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
        clobbers = ",".join(filter(None, [constraints, "~{memory}"]))
        builder.call(ir.InlineAsm(kind, instruction, clobbers, side_effect=True), list(operands))

    @intrinsic
    def copy_async(typing_context, target, i, j, source, row, col, count, valid):
        """Begin to copy *count* floats from ``source[row, col]`` on to ``target[i, j]`` on.

        *count* is a constant 1, 2 or 4; both addresses are multiples of 4 * count bytes.  Only the
        first *valid* floats are read, and zeros arrive for the others: beyond the edge of a matrix,
        *valid* = 0 reads nothing, but the address has to be one inside.  *target* is a shared array.
        """
        require_matrix("copy_async", target)
        require_matrix("copy_async", source)
        require_integers("copy_async", i, j, row, col, valid)
        floats = getattr(count, "literal_value", None)
        if floats not in (1, 2, 4):
            raise TypingError(f"copy_async: count is {count}; it should be a constant 1, 2 or 4")
        # Only copies of 16 bytes can leave out L1, where a tile that a block reads once is of no use.
        cache = "cg" if floats == 4 else "ca"
        instruction = f"cp.async.{cache}.shared.global [$0], [$1], {4 * floats}"

        def generate(context, builder, signature, arguments):
            to = pointer_at(context, builder, signature, arguments, 0)
            to = builder.addrspacecast(to, ir.PointerType(to.type.pointee, SHARED))
            to = builder.ptrtoint(to, WORD)
            from_ = pointer_at(context, builder, signature, arguments, 3)
            from_ = builder.ptrtoint(from_, ir.IntType(64))
            if getattr(valid, "literal_value", None) == floats:
                _emit(builder, f"{instruction};", "r,l", (to, from_))
            else:
                valid_floats = context.cast(builder, arguments[7], signature.args[7], types.uint32)
                valid_bytes = builder.mul(valid_floats, WORD(4))
                _emit(builder, f"{instruction}, $2;", "r,l,r", (to, from_, valid_bytes))
            return context.get_dummy_value()

        return types.none(target, i, j, source, row, col, count, valid), generate

    @intrinsic
    def commit_copies(typing_context):
        """Make a group of the copies that this thread has begun since the last commit."""

        def generate(context, builder, signature, arguments):
            _emit(builder, "cp.async.commit_group;")
            return context.get_dummy_value()

        return types.none(), generate

    @intrinsic
    def wait_for_copies(typing_context, pending):
        """Wait until at most *pending*, a constant, of this thread's latest groups are under way."""
        groups = getattr(pending, "literal_value", None)
        if type(groups) is not int or groups < 0:  # the hardware takes -1 for 63
            raise TypingError(
                f"wait_for_copies: pending is {pending}; it should be a constant, 0 or more"
            )

        def generate(context, builder, signature, arguments):
            _emit(builder, f"cp.async.wait_group {groups};")
            return context.get_dummy_value()

        return types.none(pending), generate
