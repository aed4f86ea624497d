"""Laws of random matrices: against numerical integration, sampling, and published values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import torch

from headspan.errors import ArgumentError
from headspan.statistics import (
    TW_MEAN,
    TW_SD,
    mp_cdf,
    mp_density,
    mp_edges,
    mp_quantile,
    mp_typical,
    product_edge,
    random_product_singular_values,
    random_singular_values,
    tw_center_scale,
    tw_log_upper_tail,
    tw_upper_tail,
)

SHAPES = [(6, 6), (64, 768), (768, 64), (1, 50), (1024, 768)]


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_the_distribution_is_the_integral_of_the_density(m: int, n: int) -> None:
    low, high = mp_edges(m, n, 0.3)
    for share in (0.1, 0.5, 0.9, 1.0):
        end = low + share * (high - low)
        density = lambda s: float(mp_density(numbers(s), m, n, 0.3))  # noqa: E731
        area, _ = scipy.integrate.quad(density, low, end, limit=200)
        assert float(mp_cdf(numbers(end), m, n, 0.3)) == pytest.approx(area, abs=1e-6)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_squared_singular_values_have_the_density_of_the_textbook(m: int, n: int) -> None:
    N, c = max(m, n), min(m, n) / max(m, n)
    a, b = (1 - math.sqrt(c)) ** 2, (1 + math.sqrt(c)) ** 2
    x = np.linspace(a, b, 12)[1:-1]
    textbook = np.sqrt((b - x) * (x - a)) / (2 * math.pi * c * x)
    s = np.sqrt(N * x)
    np.testing.assert_allclose(mp_density(torch.tensor(s), m, n).numpy(), textbook * 2 * s / N, rtol=1e-10)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_quantiles_invert_the_distribution(m: int, n: int) -> None:
    shares = torch.linspace(0, 1, 41, dtype=torch.float64)
    np.testing.assert_allclose(mp_cdf(mp_quantile(shares, m, n), m, n), shares, atol=1e-10)
    assert mp_quantile(numbers(0, 1), m, n).tolist() == pytest.approx(mp_edges(m, n), abs=1e-6)


@pytest.mark.parametrize(("m", "n"), [*SHAPES, (99, 100), (9999, 10_000)])
def test_many_points_are_read_from_a_table_as_exact_as_one_by_one(m: int, n: int) -> None:
    """Quantiles against bisection and the distribution against its formula, out to 1e-30 of both edges."""
    tail = torch.logspace(-30, -1, 20_000, dtype=torch.float64)
    shares = torch.cat([tail, 1 - tail, torch.linspace(0, 1, 30_001, dtype=torch.float64)])
    low, high = mp_edges(m, n, 0.3)
    points = low + (high - low) * shares
    for law, x, scale in ((mp_quantile, shares, high), (mp_cdf, points, 1.0)):
        few = torch.cat([law(part, m, n, 0.3) for part in x.split(30_000)])
        many = law(x, m, n, 0.3)
        assert float((many - few).abs().max()) < 1e-10 * scale
    outside = torch.full((70_000,), -1.0, dtype=torch.float64)
    outside[1:4] = numbers(2 * high, math.nan, high)
    assert mp_cdf(outside, m, n, 0.3)[:4].tolist() == pytest.approx([0, 1, math.nan, 1], abs=1e-10, nan_ok=True)


def test_a_square_matrix_follows_the_quarter_circle() -> None:
    """At Xavier scale: density sqrt(4 - s^2) / pi on [0, 2], mean 8 / (3 pi)."""
    n = 500
    s = torch.linspace(0.05, 1.95, 20, dtype=torch.float64)
    np.testing.assert_allclose(mp_density(s, n, n, 1 / math.sqrt(n)), (4 - s**2).sqrt() / math.pi, rtol=1e-10)
    assert float(mp_typical(n, n, 1 / math.sqrt(n)).mean()) == pytest.approx(8 / (3 * math.pi), abs=1e-4)
    assert float(mp_cdf(numbers(2.0), n, n, 1 / math.sqrt(n))) == 1.0


def test_outside_the_edges_there_is_nothing() -> None:
    assert mp_density(numbers(0.0, 1.0, 100.0), 10, 40).tolist() == [0.0, 0.0, 0.0]
    assert mp_cdf(numbers(0.0, 3.0, 100.0), 10, 40).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(("m", "n"), [(120, 120), (120, 360)])
def test_singular_values_of_normal_matrices_follow_the_law(m: int, n: int) -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.linalg.svdvals(torch.randn(16, m, n, generator=generator, dtype=torch.float64))
    share = np.sort(mp_cdf(values.flatten(), m, n).numpy())
    steps = (np.arange(len(share)) + 0.5) / len(share)
    assert np.abs(share - steps).max() < 0.01
    expected = mp_typical(m, n).square().sum()
    assert float(values.square().sum(-1).mean()) == pytest.approx(float(expected), rel=0.01)


def test_draws_have_the_moments_of_explicit_matrices() -> None:
    draws, generator = 4000, torch.Generator().manual_seed(5)
    explicit = torch.linalg.svdvals(torch.randn(draws, 5, 9, generator=generator, dtype=torch.float64))
    found = random_singular_values(9, 5, draws, seed=1)
    error = ((explicit.var(0) + found.var(0)) / draws).sqrt()
    assert ((explicit.mean(0) - found.mean(0)).abs() < 4 * error).all()
    assert ((explicit.std(0) / found.std(0) - 1).abs() < 0.06).all()


@pytest.mark.parametrize(("m", "n", "r"), [(20, 30, 6), (5, 30, 9)])
def test_draws_of_products_have_the_moments_of_explicit_products(m: int, n: int, r: int) -> None:
    draws, generator = 3000, torch.Generator().manual_seed(6)
    A = torch.randn(draws, m, r, generator=generator, dtype=torch.float64)
    B = torch.randn(draws, n, r, generator=generator, dtype=torch.float64)
    explicit = torch.linalg.svdvals(A @ B.mT)[:, : min(m, n, r)]
    found = random_product_singular_values(m, n, r, draws, seed=1)
    error = ((explicit.var(0) + found.var(0)) / draws).sqrt()
    assert found.shape == explicit.shape
    assert ((explicit.mean(0) - found.mean(0)).abs() < 4 * error).all()
    assert float(found.square().sum(-1).mean()) == pytest.approx(m * n * r, rel=0.05)


def test_the_same_seed_gives_the_same_draws() -> None:
    assert torch.equal(random_singular_values(6, 7, 3, 1), random_singular_values(6, 7, 3, 1))
    assert not torch.equal(random_singular_values(6, 7, 3, 1), random_singular_values(6, 7, 3, 2))


def test_tracy_widom_has_its_published_quantiles_and_moments() -> None:
    """Tracy and Widom (1996), Johnstone (2001): 90, 95 and 99 % points 0.4501, 0.9793, 2.0234."""
    np.testing.assert_allclose(tw_upper_tail(numbers(0.4501, 0.9793, 2.0234)), [0.1, 0.05, 0.01], rtol=2e-4)
    grid = torch.arange(-8, 12, 0.002, dtype=torch.float64)
    mass, middle = -tw_upper_tail(grid).diff(), (grid[1:] + grid[:-1]) / 2
    mean = float((mass * middle).sum())
    sd = float((mass * (middle - mean) ** 2).sum()) ** 0.5
    assert (mean, sd) == pytest.approx((-1.2065, 1.2680), abs=2e-4)
    assert (mean, sd) == pytest.approx((TW_MEAN, TW_SD), abs=1e-4)


def test_the_tail_of_tracy_widom_goes_on_where_floats_end() -> None:
    far = tw_log_upper_tail(numbers(7.9999, 8.0001, 20.0, 1000.0))
    assert float(far[0] - far[1]) == pytest.approx(0.0002 * math.sqrt(8.0), abs=2e-4)  # the seam
    series = -2 / 3 * 1000**1.5 - math.log(4 * math.sqrt(math.pi)) - 0.75 * math.log(1000)
    assert far[2:].tolist() == pytest.approx([-63.843, series], rel=1e-5)
    steps = tw_log_upper_tail(torch.linspace(-8, 40, 400, dtype=torch.float64)).diff()
    assert (steps <= 1e-12).all()
    assert tw_log_upper_tail(numbers(math.nan)).isnan().all()
    assert float(tw_upper_tail(numbers(-50.0))) == pytest.approx(1.0)


@pytest.mark.parametrize(("m", "n"), [(64, 768), (100, 100)])
def test_the_largest_singular_value_has_uniform_p_values_by_chance(m: int, n: int) -> None:
    draws = 1500
    centre, scale = tw_center_scale(m, n)
    p = tw_upper_tail((random_singular_values(m, n, draws, seed=2)[:, 0] ** 2 - centre) / scale)
    assert float(p.mean()) == pytest.approx(0.5, abs=4 / math.sqrt(12 * draws) + 0.01)
    assert abs(int((p < 0.05).sum()) - 0.05 * draws) < 4 * math.sqrt(0.05 * draws)


def test_the_edge_of_a_product_is_that_of_the_free_product() -> None:
    """For square matrices sqrt(27/4), not the product 4 of the two edges."""
    assert product_edge(300, 300, 300) / 300 == pytest.approx(math.sqrt(27 / 4))
    drawn = random_product_singular_values(400, 300, 200, 8, seed=0)
    assert float(drawn[:, 0].mean()) == pytest.approx(product_edge(400, 300, 200), rel=0.02)
    wide = random_product_singular_values(60, 80, 200, 16, seed=0)
    assert float(wide[:, 0].mean()) == pytest.approx(product_edge(60, 80, 200), rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mp_edges(0, 3), "at least one row and one column, found 0 x 3"),
        (lambda: mp_quantile(numbers(1.5), 3, 3), r"shares in \[0, 1\]"),
        (lambda: tw_center_scale(3, 0), "at least one row and one column, found 3 x 0"),
        (lambda: product_edge(3, 3, 0), "sides of at least 1, found m=3, n=3, r=0"),
        (lambda: random_singular_values(3, 3, 0, 0), "need to be at least 1, found 0 draws"),
        (lambda: random_product_singular_values(3, 3, 0, 1, 0), "need to be at least 1"),
    ],
)
def test_empty_shapes_are_refused(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
