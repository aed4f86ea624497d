"""Curvature by products alone is the curvature of the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headspan.errors import ArgumentError, ShapeError
from headspan.lab.ablation import Site
from headspan.lab.architecture import Architecture
from headspan.lab.curvature import LossSurface, group_shares, hutchinson_trace, lanczos_extremes, sharpness_row
from headspan.lab.geometry import group_of, groups
from headspan.lab.landscape import group_sensitivity, loss_along, plateau_at, subspace_sensitivity
from headspan.lab.model import LabModel
from headspan.lab.sequences import copying_sequences
from headspan.lab.spectral_density import spectral_quadrature
from headspan.lab.task import Task

TASK = Task(vocabulary=5, length=8, shortest=2, longest=3, ood_block=3)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def surface() -> LossSurface:
    model = LabModel(Architecture(vocabulary=5, length=8, d_model=4, dropout=0.0), seed=2)
    return LossSurface.of(model, copying_sequences(TASK, 6, seeded()))


def symmetric(n: int, seed: int = 0) -> torch.Tensor:
    X = torch.randn(n, n, generator=seeded(seed), dtype=torch.float64)
    return X + X.T


def test_lanczos_finds_both_ends_of_a_matrix() -> None:
    A = symmetric(60)
    values, vectors = torch.linalg.eigh(A)
    found = lanczos_extremes(lambda v: A @ v, 60, 60, seeded())
    assert found.top == pytest.approx(float(values[-1]), rel=1e-9)
    assert found.bottom == pytest.approx(float(values[0]), rel=1e-9)
    assert float((found.top_vector @ vectors[:, -1]).abs()) == pytest.approx(1.0, abs=1e-8)
    assert float((found.bottom_vector @ vectors[:, 0]).abs()) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("steps", [4, 8, 16])
def test_an_eigenvalue_lies_within_the_stated_error(steps: int) -> None:
    A = symmetric(60)
    values = torch.linalg.eigvalsh(A)
    found = lanczos_extremes(lambda v: A @ v, 60, steps, seeded(3))
    assert float((values - found.top).abs().min()) <= found.top_error
    assert float((values - found.bottom).abs().min()) <= found.bottom_error
    assert float(values[0]) <= found.bottom <= found.top <= float(values[-1])


def test_lanczos_is_not_misled_by_a_large_negative_eigenvalue() -> None:
    D = torch.cat((torch.tensor([-50.0], dtype=torch.float64), torch.linspace(0, 3, 40, dtype=torch.float64)))
    found = lanczos_extremes(lambda v: D * v, 41, 30, seeded())
    assert found.top == pytest.approx(3.0, rel=1e-3)
    assert found.bottom == pytest.approx(-50.0)


def test_lanczos_stops_when_the_space_is_exhausted() -> None:
    found = lanczos_extremes(lambda v: 2.0 * v, 30, 10, seeded())
    assert (found.top, found.bottom) == (pytest.approx(2.0), pytest.approx(2.0))
    with pytest.raises(ArgumentError, match="dimension and steps need to be at least 1, found 3 and 0"):
        lanczos_extremes(lambda v: v, 3, 0, seeded())


def test_the_trace_is_exact_for_a_diagonal_and_within_its_error_otherwise() -> None:
    D = torch.arange(20, dtype=torch.float64)
    assert hutchinson_trace(lambda v: D * v, 20, 2, seeded()) == (pytest.approx(190.0), pytest.approx(0.0, abs=1e-12))
    A = symmetric(40)
    mean, error = hutchinson_trace(lambda v: A @ v, 40, 400, seeded())
    assert abs(mean - float(A.trace())) < 4 * error
    offdiagonal = A - torch.diag(A.diagonal())
    assert error == pytest.approx(float((2 * offdiagonal.square().sum()).sqrt()) / 400**0.5, rel=0.2)
    with pytest.raises(ArgumentError, match="draws needs to be at least 2, found 1"):
        hutchinson_trace(lambda v: v, 3, 1, seeded())


def test_hessian_products_are_those_of_the_whole_hessian() -> None:
    at = surface()
    H = torch.autograd.functional.hessian(at.loss, at.point)
    product = at.hessian_product()
    v = torch.randn(len(at.point), generator=seeded(), dtype=torch.float64)
    torch.testing.assert_close(product(v), H @ v)
    row = sharpness_row(at.model, at.sequences, seed=0)
    values = torch.linalg.eigvalsh(H)
    assert float((values - float(row["hessian_top"])).abs().min()) <= float(row["hessian_top_error"]) + 1e-12
    assert float(row["hessian_top"]) == pytest.approx(float(values[-1]), rel=0.05)
    assert float(row["surface_gradient_norm"]) == pytest.approx(float(at.gradient().norm()))
    assert float(row["sharpness_share"].sum()) == pytest.approx(1.0)


def test_the_gradient_is_that_of_training() -> None:
    at = surface()
    loss = at.loss(at.point)
    model = at.model
    from headspan.lab.scores import next_token_loss

    again = next_token_loss(model(at.sequences.tokens), at.sequences)
    assert float(loss) == pytest.approx(again.item(), rel=1e-12)
    gradients = torch.autograd.grad(again, list(model.parameters()))
    torch.testing.assert_close(at.gradient(), torch.cat([g.reshape(-1) for g in gradients]))


def test_groups_hold_every_parameter_once() -> None:
    model = LabModel(Architecture(d_model=8, positions="learned", mlp=6))
    found = groups(model)
    assert sorted(name for names in found.values() for name in names) == sorted(n for n, _ in model.named_parameters())
    assert {"W_E", "W_pos", "W_U", "L0 Q", "L1 O", "L0 norm", "L1 MLP"} <= set(found)
    assert group_of("layers.1.self_attn.k_proj.bias") == "L1 K"


def test_shares_of_a_vector_are_squared_norms_by_group() -> None:
    at = surface()
    vector = torch.zeros(len(at.point), dtype=torch.float64)
    vector[: at.model.embed_tokens.weight.numel()] = 1.0
    shares = dict(zip(groups(at.model), group_shares(at, vector), strict=True))
    assert shares["W_E"] == 1.0
    assert sum(shares.values()) == pytest.approx(1.0)


def test_small_moves_rise_by_half_the_mean_curvature_of_their_group() -> None:
    at, norm = surface(), 1e-3
    H = torch.autograd.functional.hessian(at.loss, at.point)
    rises = group_sensitivity(at, draws=60, norm=norm)
    start = 0
    for name, parameter in at.model.named_parameters():
        if name == "lm_head.weight":
            block = H[start : start + parameter.numel(), start : start + parameter.numel()]
            expected = float(block.trace()) / (2 * parameter.numel())
            mean, error = rises["W_U"]
            assert abs(mean - expected) < 5 * error
            assert error < 0.1 * abs(expected)
        start += parameter.numel()


def test_a_move_that_softmax_cannot_see_raises_nothing() -> None:
    at = surface()
    ones = torch.ones(4, 1, dtype=torch.float64) / 2
    inside, _ = subspace_sensitivity(at, Site("Q", 0), ones, norm=1.0)
    whole, _ = subspace_sensitivity(at, Site("Q", 0), torch.eye(4, dtype=torch.float64), norm=1.0)
    # Behind a LayerNorm whose gains are still one, the constant direction of the stream is never there to be read.
    assert abs(inside) < 1e-12
    assert abs(whole) > 1e-6
    with pytest.raises(ShapeError, match=r"a basis of R\^3 does not fit L0 Q, which sees 4 dimensions"):
        subspace_sensitivity(at, Site("Q", 0), torch.eye(3, dtype=torch.float64))


def test_the_loss_along_a_direction_passes_through_the_present_loss() -> None:
    at = surface()
    direction = torch.randn(len(at.point), generator=seeded(), dtype=torch.float64)
    losses = loss_along(at, direction, (-0.1, 0.0, 0.1))
    assert losses[1] == pytest.approx(float(at.loss(at.point)))
    slope = (losses[2] - losses[0]) / 0.2
    assert slope == pytest.approx(float(at.gradient() @ direction / direction.norm()), rel=0.05, abs=1e-3)


def test_a_point_with_negative_curvature_is_called_a_saddle() -> None:
    at = surface()
    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(at.loss, at.point))
    found = plateau_at(at, steps=40)
    assert found.saddle == (float(values[0]) < -0.01 * float(values[-1]))
    assert found.curvature == pytest.approx(float(values[0]), rel=0.02)
    assert found.fall >= 0
    assert np.isfinite(found.gradient_norm)


def test_the_density_of_a_tiny_models_hessian_is_that_of_its_eigenvalues() -> None:
    here = surface()
    product, n = here.hessian_product(), len(here.point)
    exact = torch.linalg.eigvalsh(torch.stack([product(row) for row in torch.eye(n, dtype=torch.float64)]))
    found, top = spectral_quadrature(product, n, seeded(), probes=24, steps=60), float(exact[-1])
    for count in (torch.square, lambda x: (x > 0.1 * top).double(), lambda x: (x < -0.01 * top).double()):
        mean, error = found.mean(count(found.nodes))
        assert mean == pytest.approx(float(count(exact).mean()), abs=4 * error)
    assert float(found.nodes.max()) == pytest.approx(float(exact[-1]), rel=1e-6)
    assert float(found.nodes.min()) == pytest.approx(float(exact[0]), rel=1e-6)


def test_a_density_is_a_density_and_knows_a_diagonal_exactly() -> None:
    diagonal = torch.tensor([-1.0, 0.0, 0.0, 2.0], dtype=torch.float64)
    found = spectral_quadrature(lambda v: diagonal * v, 4, torch.Generator().manual_seed(1), probes=400, steps=4)
    assert sorted(set(found.nodes.round(decimals=6).flatten().tolist())) == [-1.0, 0.0, 2.0]
    grid = torch.linspace(-3, 4, 701, dtype=torch.float64)
    assert float(torch.trapezoid(found.density(grid, 0.1), grid)) == pytest.approx(1.0, abs=1e-6)
    share, error = found.mean((found.nodes < -0.5).double())
    assert share == pytest.approx(0.25, abs=4 * error)
    with pytest.raises(ArgumentError, match="probes needs to be at least 2"):
        spectral_quadrature(lambda v: v, 4, torch.Generator(), probes=1)
