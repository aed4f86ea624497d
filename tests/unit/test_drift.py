"""What moved between two checkpoints: against the definition, against chance, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import torch
import xarray as xr
from scipy import stats

import headspan
from headspan.dims import ROLES, Role, head_axis
from headspan.errors import FoldError, ShapeError
from headspan.lenses import drift
from headspan.lenses.drift.motion import spectrum_ks
from tests.families.tiny_models import CASES, COMMON, Case

D, HEADS, WIDTH = 24, 3, 8


def gpt2(change: Callable | None = None, **settings) -> headspan.Heads:
    """A random GPT-2, the same each time, with its attention weights changed in place before it is opened."""
    shape = {"n_embd": D, "n_head": HEADS, "n_layer": 2, "n_positions": 16, **settings}
    model = Case("gpt2", "gpt2", {**COMMON, **shape}).model()
    if change is not None:
        with torch.no_grad():
            change([block.attn for block in model.h])
    return headspan.open(model).heads()


def noise(shape: torch.Size, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noisy(attention: list) -> None:
    for layer, module in enumerate(attention):
        for place, weight in enumerate((module.c_attn.weight, module.c_proj.weight)):
            weight += 0.3 * weight.std() * noise(weight.shape, 10 * layer + place)


def one_head(attention: list) -> None:
    """Adds noise to the queries of L1H2, nothing else."""
    weight = attention[1].c_attn.weight
    weight[:, 2 * WIDTH : 3 * WIDTH] += 0.1 * noise((D, WIDTH))


@pytest.fixture(scope="module")
def before() -> headspan.Heads:
    return gpt2()


@pytest.fixture(scope="module")
def after() -> headspan.Heads:
    return gpt2(noisy)


@pytest.fixture(scope="module")
def result(before: headspan.Heads, after: headspan.Heads) -> xr.Dataset:
    return drift.compute(before, after)


def tall(heads: headspan.Heads, role: Role) -> np.ndarray:
    W = heads.whole(role).double().numpy()
    return np.swapaxes(W, -1, -2) if role == "O" else W


@pytest.mark.parametrize("role", ROLES)
def test_angles_and_distances_are_scipys(
    role: Role, before: headspan.Heads, after: headspan.Heads, result: xr.Dataset
) -> None:
    first, second, view = tall(before, role), tall(after, role), drift.role_view(result, role)
    for layer in range(2):
        for head in range(HEADS):
            here = view.isel({"layer": layer, head_axis(role): head})
            A, B = first[layer, head], second[layer, head]
            theta = np.sort(scipy.linalg.subspace_angles(A, B))
            np.testing.assert_allclose(here["angles"], theta, atol=1e-12)
            assert float(here["grassmann"]) == pytest.approx(np.sqrt((theta**2).sum()))
            assert float(here["chordal"]) == pytest.approx(np.sqrt((np.sin(theta) ** 2).sum()))
            assert float(here["projection_kernel"]) == pytest.approx((np.cos(theta) ** 2).sum())
            assert float(here["relative_change"]) == pytest.approx(np.linalg.norm(B - A) / np.linalg.norm(A))
            np.testing.assert_allclose(here["singular_value_after"], np.linalg.svd(B)[1], rtol=1e-8)
            ks = stats.ks_2samp(np.linalg.svd(A)[1], np.linalg.svd(B)[1]).statistic
            assert float(here["spectrum_ks"]) == pytest.approx(ks)
            residual = (B - A) - A @ np.linalg.lstsq(A, B - A)[0]
            assert float(here["outside_share"]) == pytest.approx((residual**2).sum() / ((B - A) ** 2).sum())


def test_random_changes_are_as_chance_says() -> None:
    shape = {"n_embd": 64, "n_head": 8, "n_layer": 4}
    rows = drift.table(drift.compute(gpt2(**shape), gpt2(noisy, **shape)))
    assert stats.kstest(rows["p_value"], "uniform").pvalue > 1e-3
    assert stats.kstest(rows["outside_share_p_value"], "uniform").pvalue > 1e-3
    assert (rows["q_value"] > 0.01).all()
    assert abs(rows["grassmann_z"].mean()) < 4 / np.sqrt(len(rows))
    np.testing.assert_allclose(rows["chordal_expected"], rows["chordal_chance"], rtol=0.05)
    np.testing.assert_allclose(rows["spectrum_ks"].mean(), rows["spectrum_ks_chance"].mean(), rtol=0.1)


def test_equal_weights_give_zeros_and_are_flagged(before: headspan.Heads) -> None:
    result = drift.compute(before, gpt2())
    assert result.attrs["identical"] == 1
    rows = drift.table(result)
    assert rows["unchanged"].all()
    for name in ("grassmann", "grassmann_chance", "chordal", "relative_change", "spectrum_ks", "largest_angle"):
        assert (rows[name] == 0).all(), name
    assert (rows["projection_kernel"] == WIDTH).all()
    assert rows[["grassmann_z", "p_value", "q_value", "outside_share"]].isna().all(axis=None)


def test_only_the_head_that_was_changed_is_flagged(before: headspan.Heads) -> None:
    result = drift.compute(before, gpt2(one_head))
    rows = drift.table(result)
    changed = rows[~rows["unchanged"]]
    assert list(changed["label"] + changed["role"]) == ["L1H2Q"]
    assert list(rows.index[rows["grassmann"] > 0]) == list(changed.index)
    assert result.attrs["identical"] == 0


def test_a_change_inside_the_span_moves_nothing_and_is_less_than_chance(before: headspan.Heads) -> None:
    def inside(attention: list) -> None:
        weight = attention[0].c_attn.weight
        weight[:, :WIDTH] = weight[:, :WIDTH] @ (torch.eye(WIDTH) + 0.1 * noise((WIDTH, WIDTH)))

    row = drift.table(drift.compute(before, gpt2(inside))).iloc[0]
    assert row["grassmann"] < 1e-12
    assert row["relative_change"] > 0.1
    assert row["outside_share"] < 1e-20
    assert row["grassmann_z"] < -5
    assert row["p_value"] < 1e-4
    assert row["outside_share_p_value"] < 1e-20


def test_a_change_that_leaves_the_span_is_more_than_chance(before: headspan.Heads) -> None:
    def outwards(attention: list) -> None:
        weight = attention[0].c_attn.weight
        W, E = weight[:, :WIDTH], noise((D, WIDTH))
        Q = torch.linalg.qr(W).Q
        weight[:, :WIDTH] = W + 0.05 * (E - Q @ (Q.mT @ E)) @ torch.linalg.pinv(W) @ W

    row = drift.table(drift.compute(before, gpt2(outwards))).iloc[0]
    assert row["outside_share"] == pytest.approx(1)
    assert row["outside_share_p_value"] < 1e-10
    assert row["grassmann_z"] > 1


def test_heads_that_lack_directions_work_and_are_flagged(before: headspan.Heads) -> None:
    def pruned(attention: list) -> None:
        weight = attention[0].c_attn.weight
        weight[:, 0] = 0
        weight[:, WIDTH : 2 * WIDTH] = 0

    rows = drift.table(drift.compute(before, gpt2(pruned)))
    lost, none, kept = rows.iloc[0], rows.iloc[1], rows.iloc[2]
    assert (lost["rank_before"], lost["rank_after"], lost["deficient"]) == (WIDTH, WIDTH - 1, True)
    assert lost["grassmann"] < 1e-7
    assert np.isfinite(lost["grassmann_chance"])
    assert (none["rank_after"], none["deficient"]) == (0, True)
    assert np.isnan(none["grassmann"])
    assert np.isnan(none["grassmann_chance"])
    assert not kept["deficient"]
    back = drift.table(drift.compute(gpt2(pruned), before)).iloc[0]
    assert (back["rank_before"], back["rank_after"]) == (WIDTH - 1, WIDTH)
    assert back["grassmann"] < 1e-7


def test_heads_as_wide_as_the_stream_are_followed_by_their_leading_directions() -> None:
    shape = {"n_head": 1}
    result = drift.compute(gpt2(**shape), gpt2(noisy, **shape))
    assert result.attrs["leading"] == D // 4
    assert result["angles_Q"].sizes["angle"] == D // 4
    assert result["singular_value_after_Q"].sizes["rank"] == D
    assert (result["grassmann_Q"] > 0.1).all()
    assert abs(drift.table(result)["grassmann_z"].mean()) < 3
    assert result["chordal_expected_Q"].isnull().all()


def test_leading_directions_are_those_of_the_singular_vectors(before: headspan.Heads, after: headspan.Heads) -> None:
    result = drift.compute(before, after, leading=3)
    first, second = (np.linalg.svd(tall(heads, "O")[1, 2])[0][:, :3] for heads in (before, after))
    expected = np.sort(scipy.linalg.subspace_angles(first, second))
    np.testing.assert_allclose(result["angles_O"].values[1, 2], expected, atol=1e-10)


def test_kv_heads_are_counted_once() -> None:
    heads = headspan.open(next(case for case in CASES if case.name == "llama").model()).heads()
    result = drift.compute(heads, heads)
    assert result["grassmann_K"].sizes == {"layer": heads.n_layers, "kv_head": heads.n_kv_heads}
    assert result["grassmann_Q"].sizes == {"layer": heads.n_layers, "head": heads.n_heads}
    rows = drift.table(result)
    assert rows.query("role == 'K'")["label"].iloc[0] == "L0K0"
    assert rows.query("role == 'O'")["label"].iloc[0] == "L0H0"


def test_the_seed_fixes_the_draws_of_each_layer_by_itself(before: headspan.Heads, after: headspan.Heads) -> None:
    result = drift.compute(before, after, seed=4)
    xr.testing.assert_identical(result, drift.compute(before, after, seed=4))
    assert (drift.compute(before, after, seed=5)["grassmann_chance_Q"] != result["grassmann_chance_Q"]).all()
    one = drift.compute(before.checkpoint.heads(layers=[1]), after.checkpoint.heads(layers=[1]), seed=4)
    xr.testing.assert_equal(one["grassmann_chance_Q"], result["grassmann_chance_Q"].sel(layer=[1]))


def test_provenance_names_both_checkpoints(result: xr.Dataset) -> None:
    assert result.attrs["lens"] == "drift"
    assert result.attrs["file_hash"] != result.attrs["before_file_hash"]
    assert drift.as_json(result)["schema"] == "headspan.drift/1"


def test_equal_spectra_are_0_apart_and_separate_ones_1() -> None:
    s = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    assert float(spectrum_ks(s, s)) == 0
    assert float(spectrum_ks(s, s + 3)) == 1
    assert float(spectrum_ks(s, s + 1e-9)) == pytest.approx(1 / 3)


REFUSED = {
    "one family, found gpt2 and llama": lambda: headspan.open(CASES_BY_NAME["llama"].model()).heads(),
    "the same layers of both, found 2 layers .0 to 1. before and 3 layers": lambda: gpt2(n_layer=3),
    r"found W_Q \[layer, head, rows, columns\] as \[2, 3, 24, 8\] before and \[2, 3, 48, 16\]": lambda: gpt2(n_embd=48),
    "as .* before and .2, 6, 24, 4. after": lambda: gpt2(n_head=6),
}
CASES_BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("message", REFUSED)
def test_checkpoints_that_do_not_match_are_refused_in_one_line(message: str, before: headspan.Heads) -> None:
    with pytest.raises(ShapeError, match=message) as refusal:
        drift.compute(before, REFUSED[message]())
    assert "\n" not in str(refusal.value)


def test_different_fold_states_are_refused(before: headspan.Heads) -> None:
    with pytest.raises(FoldError, match="'none' before and 'layernorm' after"):
        drift.compute(before, before.refolded("layernorm"))


def test_options_out_of_range_are_refused(before: headspan.Heads) -> None:
    with pytest.raises(ShapeError, match=r"leading needs to be in 1\.\.8"):
        drift.compute(before, before, leading=9)
    with pytest.raises(ShapeError, match="draws needs to be at least 3"):
        drift.compute(before, before, draws=2)
