"""What a multiply is allowed to cost: plain Python and numpy, for any GPU, on a machine with none.

:mod:`~numba_gemm.model.devices`
    GPUs and their limits, from a table or from the driver.
:mod:`~numba_gemm.model.roofline`
    FLOPs, bytes, arithmetic intensity, and the ceiling that these put on a kernel.
:mod:`~numba_gemm.model.traffic`
    What a rung asks of global and of shared memory.
:mod:`~numba_gemm.model.quantization`
    Tiles that hang over an edge and waves that do not fill the device.
:mod:`~numba_gemm.model.occupancy`
    Blocks and warps that share a multiprocessor.
:mod:`~numba_gemm.model.banks`
    Lanes that meet in a bank of shared memory.
:mod:`~numba_gemm.model.hierarchy`
    Whether block, warp and thread tiles cover each other, and who owns which entry of C.
:mod:`~numba_gemm.model.prediction`
    All of it for one multiply: the time a tile would take, and the time no kernel can beat.

Each formula of the package lives here, once.  Nothing here imports :mod:`numba`.
"""
