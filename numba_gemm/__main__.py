"""``python -m numba_gemm``: the same as ``numba-gemm``."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
