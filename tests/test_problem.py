"""The arithmetic of one multiply: FLOPs and the bytes it cannot do without."""

import pytest

from numba_gemm import Problem


def test_the_published_figures_at_4092():
    """The reference's example: 137 GFLOP over 268 MB, about 511 FLOP a byte."""
    problem = Problem(4092, 4092, 4092, alpha=0.5, beta=3.0)
    assert problem.flops == pytest.approx(137e9, rel=0.01)
    assert problem.compulsory_bytes == pytest.approx(268e6, rel=0.01)
    assert problem.intensity == pytest.approx(511, abs=1)


@pytest.mark.parametrize(("tile", "gigabytes"), [((1, 1), 550), ((32, 32), 17)])
def test_the_published_traffic_at_4096(tile, gigabytes):
    """Without reuse 550 GB are asked for; tiles of 32 x 32 make it 17."""
    requested = Problem(4096, 4096, 4096).requested_bytes(*tile)
    assert requested == pytest.approx(gigabytes * 1e9, rel=0.02)


def test_every_term_is_counted_once():
    """Each size has its own prime, so that no two terms can be mistaken for each other."""
    M, N, K = 3, 5, 7
    assert Problem(M, N, K).product_flops == 2 * 3 * 5 * 7
    assert Problem(M, N, K).flops == 2 * 3 * 5 * 7 + 2 * 3 * 5
    assert Problem(M, N, K).compulsory_bytes == 4 * (3 * 7 + 7 * 5 + 3 * 5)
    assert Problem(M, N, K, beta=1).compulsory_bytes == 4 * (3 * 7 + 7 * 5 + 2 * 3 * 5)
    assert Problem(M, N, K).requested_bytes(1, 1) == 4 * (2 * 3 * 5 * 7 + 3 * 5)


@pytest.mark.parametrize("changes", [{"alpha": 0}, {"K": 0}, {"K": 0, "alpha": 0}])
@pytest.mark.parametrize(("beta", "passes_over_C"), [(0, 1), (0.5, 2)])
def test_unread_operands_cost_no_bytes(changes, beta, passes_over_C):
    """With alpha = 0 or K = 0 only C moves: written, and read where beta is not 0."""
    problem = Problem(**{"M": 3, "N": 5, "K": 7, "beta": beta} | changes)
    assert not problem.reads_operands
    assert problem.compulsory_bytes == 4 * 3 * 5 * passes_over_C
    assert problem.requested_bytes(1, 1) == problem.compulsory_bytes


def test_tiles_at_the_edge_count_whole():
    """A tile that hangs over the edge reads its rows or columns once more."""
    # 5 rows and 9 columns in tiles of 4 x 4: two rows of tiles, three columns.
    assert Problem(5, 9, 2).requested_bytes(4, 4) == 4 * (5 * 2 * 3 + 2 * 9 * 2 + 5 * 9)


def test_one_tile_asks_for_what_is_compulsory():
    """When all of C shares its reads, nothing is read twice."""
    problem = Problem(30, 20, 10, beta=1.0)
    assert problem.requested_bytes(30, 20) == problem.compulsory_bytes


@pytest.mark.parametrize("sizes", [(0, 5, 7), (3, 0, 7), (0, 0, 0)])
def test_an_empty_C_has_no_arithmetic(sizes):
    """Empty problems are legal and need no special case at the caller's."""
    assert Problem(*sizes).flops == 0


def test_the_empty_problem_has_intensity_zero():
    """No division by zero bytes."""
    assert Problem(0, 0, 0).intensity == 0


@pytest.mark.parametrize("name", ["M", "N", "K"])
def test_negative_sizes_are_refused(name):
    """The message names the size, what it was and what it should be."""
    with pytest.raises(ValueError, match=rf"^{name} is -1; it should be at least 0$"):
        Problem(**{"M": 1, "N": 1, "K": 1, name: -1})


def test_sizes_beyond_32_bits():
    """Bytes and FLOPs are exact integers, however large."""
    assert Problem(2**20, 2**20, 2**20).product_flops == 2**61
