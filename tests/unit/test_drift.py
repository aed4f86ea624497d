"""What moved between two checkpoints: against the definition, against the null, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import torch
import xarray as xr
from scipy import stats

import headspan
from headspan.dims import ROLES, Role, head_axis
from headspan.errors import ArgumentError, FoldError, HeadspanError, ShapeError
from headspan.subspaces import spectrum_ks
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
def result(before: headspan.Heads, after: headspan.Heads) -> headspan.Result:
    return headspan.drift(before, after)


def rows_of(result: headspan.Result) -> pd.DataFrame:
    """One row per head and role, with the label of the head or kv head."""
    rows = result.table()
    return rows.assign(label=rows["head"].where(rows["head"].notna(), rows["kv_head"]))


def tall(heads: headspan.Heads, role: Role) -> np.ndarray:
    W = heads.whole(role).double().numpy()
    return np.swapaxes(W, -1, -2) if role == "O" else W


@pytest.mark.parametrize("role", ROLES)
def test_angles_and_distances_are_scipys(
    role: Role, before: headspan.Heads, after: headspan.Heads, result: headspan.Result
) -> None:
    first, second, view = tall(before, role), tall(after, role), result.grid(role)
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


def test_random_changes_are_as_the_null_says() -> None:
    shape = {"n_embd": 64, "n_head": 8, "n_layer": 4}
    rows = rows_of(headspan.drift(gpt2(**shape), gpt2(noisy, **shape)))
    assert stats.kstest(rows["grassmann_p"], "uniform").pvalue > 1e-3
    assert stats.kstest(rows["outside_share_p"], "uniform").pvalue > 1e-3
    assert (rows["grassmann_q"] > 0.01).all()
    assert abs(rows["grassmann_z"].mean()) < 4 / np.sqrt(len(rows))
    np.testing.assert_allclose(rows["chordal_expected"], rows["chordal_null"], rtol=0.05)
    np.testing.assert_allclose(rows["spectrum_ks"].mean(), rows["spectrum_ks_null"].mean(), rtol=0.1)


def test_equal_weights_give_zeros_and_are_flagged(before: headspan.Heads) -> None:
    result = headspan.drift(before, gpt2())
    assert result.attrs["identical"] == 1
    rows = rows_of(result)
    assert rows["unchanged"].all()
    for name in ("grassmann", "grassmann_null", "chordal", "relative_change", "spectrum_ks", "largest_angle"):
        assert (rows[name] == 0).all(), name
    assert (rows["projection_kernel"] == WIDTH).all()
    assert rows[["grassmann_z", "grassmann_p", "grassmann_q", "outside_share"]].isna().all(axis=None)


def test_only_the_head_that_was_changed_is_flagged(before: headspan.Heads) -> None:
    result = headspan.drift(before, gpt2(one_head))
    rows = rows_of(result)
    changed = rows[~rows["unchanged"]]
    assert list(changed["label"] + changed["role"]) == ["L1H2Q"]
    assert list(rows.index[rows["grassmann"] > 0]) == list(changed.index)
    assert result.attrs["identical"] == 0


def test_a_change_inside_the_span_moves_nothing_and_is_less_than_a_random_change(before: headspan.Heads) -> None:
    def inside(attention: list) -> None:
        weight = attention[0].c_attn.weight
        weight[:, :WIDTH] = weight[:, :WIDTH] @ (torch.eye(WIDTH) + 0.1 * noise((WIDTH, WIDTH)))

    row = rows_of(headspan.drift(before, gpt2(inside))).iloc[0]
    assert row["grassmann"] < 1e-12
    assert row["relative_change"] > 0.1
    assert row["outside_share"] < 1e-20
    assert row["grassmann_z"] < -5
    assert row["grassmann_p"] < 1e-4
    assert row["outside_share_p"] < 1e-20


def test_a_change_that_leaves_the_span_is_more_than_a_random_change(before: headspan.Heads) -> None:
    def outwards(attention: list) -> None:
        weight = attention[0].c_attn.weight
        W, E = weight[:, :WIDTH], noise((D, WIDTH))
        Q = torch.linalg.qr(W).Q
        weight[:, :WIDTH] = W + 0.05 * (E - Q @ (Q.mT @ E)) @ torch.linalg.pinv(W) @ W

    row = rows_of(headspan.drift(before, gpt2(outwards))).iloc[0]
    assert row["outside_share"] == pytest.approx(1)
    assert row["outside_share_p"] < 1e-10
    assert row["grassmann_z"] > 1


def test_heads_that_lack_directions_work_and_are_flagged(before: headspan.Heads) -> None:
    def pruned(attention: list) -> None:
        weight = attention[0].c_attn.weight
        weight[:, 0] = 0
        weight[:, WIDTH : 2 * WIDTH] = 0

    rows = rows_of(headspan.drift(before, gpt2(pruned)))
    lost, none, kept = rows.iloc[0], rows.iloc[1], rows.iloc[2]
    assert (lost["rank_before"], lost["rank_after"], lost["deficient"]) == (WIDTH, WIDTH - 1, True)
    assert lost["grassmann"] < 1e-7
    assert np.isfinite(lost["grassmann_null"])
    assert (none["rank_after"], none["deficient"]) == (0, True)
    assert np.isnan(none["grassmann"])
    assert np.isnan(none["grassmann_null"])
    assert not kept["deficient"]
    back = rows_of(headspan.drift(gpt2(pruned), before)).iloc[0]
    assert (back["rank_before"], back["rank_after"]) == (WIDTH - 1, WIDTH)
    assert back["grassmann"] < 1e-7


def test_heads_as_wide_as_the_stream_are_followed_by_their_leading_directions() -> None:
    shape = {"n_head": 1}
    result = headspan.drift(gpt2(**shape), gpt2(noisy, **shape))
    assert result.attrs["leading"] == D // 4
    assert result["Q"].angles.sizes["angle"] == D // 4
    assert result["Q"].singular_value_after.sizes["rank"] == D
    assert (result["Q"].grassmann > 0.1).all()
    assert abs(rows_of(result)["grassmann_z"].mean()) < 3
    assert result["Q"].chordal_expected.isnull().all()


def test_leading_directions_are_those_of_the_singular_vectors(before: headspan.Heads, after: headspan.Heads) -> None:
    result = headspan.drift(before, after, leading=3)
    first, second = (np.linalg.svd(tall(heads, "O")[1, 2])[0][:, :3] for heads in (before, after))
    expected = np.sort(scipy.linalg.subspace_angles(first, second))
    np.testing.assert_allclose(result["O"].angles.sel(head="L1H2"), expected, atol=1e-10)


def test_kv_heads_are_counted_once() -> None:
    heads = headspan.open(next(case for case in CASES if case.name == "llama").model()).heads()
    result = headspan.drift(heads, heads)
    assert result["K"].grassmann.sizes == {"kv_head": heads.n_layers * heads.n_kv_heads}
    assert result["Q"].grassmann.sizes == {"head": heads.n_layers * heads.n_heads}
    assert result["K"].grassmann.sel(kv_head="L1K1") == 0
    rows = rows_of(result)
    assert rows.query("role == 'K'")["label"].iloc[0] == "L0K0"
    assert rows.query("role == 'O'")["label"].iloc[0] == "L0H0"


def test_the_seed_fixes_the_draws_of_each_layer_by_itself(before: headspan.Heads, after: headspan.Heads) -> None:
    result = headspan.drift(before, after, seed=4)
    xr.testing.assert_identical(result.data, headspan.drift(before, after, seed=4).data)
    null = result["Q"].grassmann_null
    assert (headspan.drift(before, after, seed=5)["Q"].grassmann_null != null).all()
    one = headspan.drift(before.checkpoint.heads(layers=[1]), after.checkpoint.heads(layers=[1]), seed=4)
    xr.testing.assert_equal(one["Q"].grassmann_null, null.sel(head=["L1H0", "L1H1", "L1H2"]))


def test_provenance_names_both_checkpoints(result: headspan.Result) -> None:
    assert result.attrs["lens"] == "drift"
    assert result.attrs["file_hash"] != result.attrs["before_file_hash"]
    document = result.to_json()
    assert document["schema"] == "headspan.drift/2"
    assert [row["role"] for row in document["heads"]] == [role for role in ROLES for _ in range(2 * HEADS)]


def test_equal_spectra_are_0_apart_and_separate_ones_1() -> None:
    s = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    assert float(spectrum_ks(s, s)) == 0
    assert float(spectrum_ks(s, s + 3)) == 1
    assert float(spectrum_ks(s, s + 1e-9)) == pytest.approx(1 / 3)


REFUSED = {
    "two checkpoints of one family are needed, found gpt2 and llama": lambda: headspan.open(
        CASES_BY_NAME["llama"].model()
    ).heads(),
    "the same layers of both are needed, found 2 layers .0 to 1. before and 3 layers": lambda: gpt2(n_layer=3),
    r"found W_Q \[layer, head, rows, columns\] as \[2, 3, 24, 8\] before and \[2, 3, 48, 16\]": lambda: gpt2(n_embd=48),
    "as .* before and .2, 6, 24, 4. after": lambda: gpt2(n_head=6),
}
CASES_BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("message", REFUSED)
def test_checkpoints_that_do_not_match_are_refused_in_one_line(message: str, before: headspan.Heads) -> None:
    with pytest.raises(HeadspanError, match=message) as refusal:
        headspan.drift(before, REFUSED[message]())
    assert type(refusal.value) is (ArgumentError if "family" in message else ShapeError)
    assert "\n" not in str(refusal.value)


def test_different_fold_states_are_refused(before: headspan.Heads) -> None:
    with pytest.raises(FoldError, match="'none' before and 'layernorm' after"):
        headspan.drift(before, before.refolded("layernorm"))


def test_options_out_of_range_are_refused(before: headspan.Heads) -> None:
    with pytest.raises(ArgumentError, match=r"leading=9: needed is a number in 1\.\.8"):
        headspan.drift(before, before, leading=9)
    with pytest.raises(ArgumentError, match="draws=2: needed are at least 3"):
        headspan.drift(before, before, draws=2)


def test_the_heads_that_moved_furthest_are_ranked(result: headspan.Result) -> None:
    ranked = result.top(3, pairing="K")
    assert list(ranked.columns[-5:]) == ["score", "expected", "z", "p", "q"]
    assert ranked["score"].iloc[0] == result["K"].grassmann.max()


def test_files_of_version_1_are_read_under_todays_names(tmp_path: Path, result: headspan.Result) -> None:
    old = {"grassmann_p": "p_value", "grassmann_q": "q_value", "outside_share_p": "outside_share_p_value"}
    nodes = []
    for role in ROLES:
        node = result.grid(role).drop_vars(["smallest_angle", "largest_angle"])
        names = {name: old.get(name, name.replace("_null_sd", "_sd").replace("_null", "_chance")) for name in node}
        nodes.append(node.rename({name: f"{then}_{role}" for name, then in names.items()}))
    flat = xr.merge(nodes).assign_attrs({**result.attrs, "schema": "headspan.drift/1"})
    flat.to_netcdf(tmp_path / "old.nc", engine="netcdf4")
    read = headspan.load(tmp_path / "old.nc")
    for role in ROLES:
        xr.testing.assert_allclose(read.dataset(role), result.dataset(role))
    assert [finding.statement for finding in read.findings] == [finding.statement for finding in result.findings]
    assert list(read.figures) == list(result.figures)
