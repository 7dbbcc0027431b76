"""``window``: a matrix seen from one of its elements on.

A thread that reads ``As[row + 40, k]`` in one place and ``As[row + 48, k]`` in another pays for both
addresses, if the optimizer does not see that they differ by a constant.  Seen from ``As[row, 0]`` they
are constants themselves, and part of the load instruction::

    mine = window(As, row, 0)
    for i in range(TM):
        a[i] = mine[i * 8, k]
"""

from __future__ import annotations

from numba_gemm.target import TARGET

__all__ = ["window"]

if TARGET.is_simulator:

    def window(matrix, row, col):
        return matrix[row:, col:]

else:
    from numba.cuda import cgutils
    from numba.cuda.extending import intrinsic

    from .vectors import pointer_at, require_integers, require_matrix

    @intrinsic
    def window(typing_context, matrix, row, col):
        """*matrix* seen from (row, col) on: element (i, j) of it is ``matrix[row + i, col + j]``.

        Only for subscripts: its shape is that of *matrix*.
        """
        require_matrix("window", matrix)
        require_integers("window", row, col)

        def generate(context, builder, signature, arguments):
            matrix = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
            matrix.data = pointer_at(context, builder, signature, arguments, 0)
            return matrix._getvalue()

        return matrix(matrix, row, col), generate
