"""The search for tile parameters: what may be tried, how it is tried, and what was found.

:mod:`.space` lists the legal tiles of a rung, :mod:`.halving` races them, :mod:`.lab` compiles and times
what races in processes of their own, :mod:`.journal` keeps what a race has measured so far, and
:mod:`.found` what it found.  :mod:`.tune` is the command line's ``numba-gemm tune``.

Nothing is imported here: the processes that compile decide where kernels run only after they start.
"""
