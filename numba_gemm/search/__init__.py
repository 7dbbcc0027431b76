"""The search for tile parameters: what may be tried, how it is tried, and what was found.

:mod:`.space` lists the legal tiles of a rung, :mod:`.predict` says what the models expect of them,
:mod:`.halving` races them, :mod:`.lab` and :mod:`.workers` compile and time in processes of their own,
:mod:`.journal` keeps what a race has measured so far and :mod:`.found` what it found.  :mod:`.orders`
are races for the order of a thread's columns, :mod:`.portfolio` is the few kernels that ``gemm``
chooses among, :mod:`.suite` the shapes to choose for, :mod:`.plot` a picture, and :mod:`.tune` the
command ``numba-gemm tune``.

Nothing is imported here: the processes that compile decide where kernels run only after they start.
"""
