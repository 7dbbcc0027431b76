"""The models can be used anywhere: they need neither a GPU nor Numba."""

import subprocess
import sys

import pytest

MODULES = (
    "banks",
    "devices",
    "hierarchy",
    "occupancy",
    "prediction",
    "quantization",
    "roofline",
    "traffic",
)


@pytest.mark.parametrize("also", ["", "numba_gemm.Problem, numba_gemm.Tile; devices.current();"])
def test_no_numba_is_imported(also):
    """Neither by the models themselves, nor by asking the driver, nor by what they take."""
    program = (
        f"import sys, numba_gemm, numba_gemm.model; from numba_gemm.model import {', '.join(MODULES)}; "
        f"{also} assert not [name for name in sys.modules if name.split('.')[0] == 'numba']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
