"""What a change of weights is made of: planted answers are found, random changes say nothing, definitions hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import headspan
from headspan.errors import ArgumentError
from headspan.lenses.compare.parts import edge_changes
from tests.families.test_adapters import base_and_adapter
from tests.families.tiny_models import COMMON, Case
from tests.unit.test_compare import page, planted, wide
from tests.unit.test_drift import noise, noisy

DRAWS = 8


def rank_one(attention: list) -> None:
    """A direction of the size of the largest there is, added to what every layer reads."""
    for layer, module in enumerate(attention):
        weight = module.c_attn.weight
        read, features = noise((48, 1), 50 + layer), noise((1, 144), 60 + layer)
        weight += 1.5 * torch.linalg.matrix_norm(weight, 2) * read @ features / (read.norm() * features.norm())


@pytest.fixture(scope="module")
def base() -> headspan.Heads:
    return wide()


@pytest.fixture(scope="module")
def aimed(base: headspan.Heads) -> headspan.Result:
    return headspan.compare(base, wide(planted), draws=DRAWS)


@pytest.fixture(scope="module")
def random(base: headspan.Heads) -> headspan.Result:
    return headspan.compare(base, wide(noisy), draws=DRAWS)


@pytest.fixture(scope="module")
def intruded(base: headspan.Heads) -> headspan.Result:
    return headspan.compare(base, wide(rank_one))


def test_similarity_is_the_largest_cosine_with_a_direction_before(
    base: headspan.Heads, random: headspan.Result
) -> None:
    first, second = (heads.W_K[2].movedim(0, 1).flatten(1).numpy() for heads in (base, wide(noisy)))
    cosines = np.abs(np.linalg.svd(first)[0].T @ np.linalg.svd(second)[0]).max(0)
    np.testing.assert_allclose(random["change/W_K"].similarity.sel(layer=2), cosines[:10], atol=1e-9)
    shares = np.linalg.svd(second)[1][:10] ** 2 / (second**2).sum()
    np.testing.assert_allclose(random["change/W_K"].direction_share.sel(layer=2), shares)


def test_a_planted_direction_is_an_intruder_and_the_first(intruded: headspan.Result) -> None:
    rows = intruded.table("directions")
    found = rows[(rows["similarity"] < 0.5) & (rows["similarity_q"] < 0.05)]
    assert len(found) >= 3
    assert (found["direction"] == 0).all()
    assert set(found["matrix"]) <= {"W_Q", "W_K", "W_V"}
    (finding,) = [one for one in intruded.findings if "intruder dimensions" in one.statement]
    assert finding.value == len(found)
    assert "diamond" in {trace.marker.symbol for trace in intruded.figures[finding.figure].data}


def test_a_random_change_has_no_intruder(random: headspan.Result) -> None:
    rows = random.table("directions")
    assert (rows["similarity"] < 0.5).any()  # a direction is new here, and the null knows why
    assert random.table("changes")["n_intruders"].sum() == 0
    assert not [one for one in random.findings if "intruder" in one.statement]


def test_the_rank_of_a_change_counts_its_directions(intruded: headspan.Result, random: headspan.Result) -> None:
    planted_rows, random_rows = intruded.table("changes"), random.table("changes")
    changed = planted_rows["matrix"].isin(["W_Q", "W_K", "W_V"])
    np.testing.assert_allclose(planted_rows[changed]["change_rank"], 1.0, rtol=1e-6)
    assert planted_rows[~changed]["change_rank"].isna().all()
    known = random_rows[random_rows["change_rank"].notna()]
    np.testing.assert_allclose(known["change_rank"], known["change_rank_null"], rtol=0.1)
    assert [one for one in intruded.findings if "changed along few directions" in one.statement]
    assert not [one for one in random.findings if "changed along few directions" in one.statement]


def test_shares_are_energies_inside_the_partners_space(base: headspan.Heads, aimed: headspan.Result) -> None:
    change = (wide(planted).W_K - base.W_K)[2, 1].double()
    written = torch.linalg.qr(base.W_O[0, 3].mT.double()).Q
    share = float((written.mT @ change).square().sum() / change.square().sum())
    node = aimed["wiring/OK"].sel(src="L0H3", dst="L2H1")
    assert float(node.read_share) == pytest.approx(share)
    assert float(node.read_share_null) == pytest.approx(12 / 48)
    read = torch.linalg.qr(base.W_K[2, 1].double()).Q
    wrote = (wide(planted).W_O - base.W_O)[0, 3].mT.double()
    assert float(node.write_share) == pytest.approx(float((read.mT @ wrote).square().sum() / wrote.square().sum()))


def test_a_change_planted_in_what_a_head_writes_is_found_and_it_alone(aimed: headspan.Result) -> None:
    rows = edge_changes(aimed)
    found = rows[rows["read_share_q"] < 0.05]
    assert list(zip(found["pairing"], found["src"], found["dst"], strict=True)) == [("OK", "L0H3", "L2H1")]
    (finding,) = [one for one in aimed.findings if one.statement.startswith("The change of W_K of L2H1 lies most in")]
    assert "what L0H3 writes" in finding.statement


def test_a_random_change_lies_nowhere_in_particular(random: headspan.Result) -> None:
    rows = edge_changes(random)
    for share in ("read_share", "write_share"):
        assert (rows[f"{share}_q"] > 0.01).all()
        assert stats.kstest(rows[f"{share}_p"], "uniform").pvalue > 1e-4
    assert not [one for one in random.findings if "lies most in" in one.statement]


def model_with_tables(write: float = 0.0, seed: int = 3) -> headspan.Heads:
    """A GPT-2 whose last MLP may write one token's logit, beside a little noise on all MLPs."""
    shape = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 16, "vocab_size": 300}
    model = Case("gpt2", "gpt2", {**COMMON, **shape}).model(head=True)
    if write:
        with torch.no_grad():
            for layer, block in enumerate(model.transformer.h):
                weight = block.mlp.c_proj.weight
                weight += 0.05 * weight.std() * noise(weight.shape, seed + layer)
            table = model.get_output_embeddings().weight
            table[7] *= 8  # a token that its own direction tells from all others
            weight += write * noise((weight.shape[0], 1), seed) @ table[7][None] / table[7].norm()
    return headspan.open(model).heads()


@pytest.mark.slow
def test_tokens_along_a_change_name_the_planted_one() -> None:
    result = headspan.compare(model_with_tables(1e-9), model_with_tables(1.0), draws=3)
    rows = result.table("tokens")
    row = rows[(rows["matrix"] == "W_out") & (rows["layer"] == 1) & (rows["direction"] == 0)].iloc[0]
    assert "#7" in (row["highest"].split(", ")[0], row["lowest"].split(", ")[0])
    assert row["top_mass_q"] < 0.05
    assert [
        one for one in result.findings if one.statement.startswith("The change of W_out of layer 1 writes tokens: ")
    ]
    assert "Tokens along the change" in page(result)


def test_tokens_along_a_random_change_are_not_concentrated(random: headspan.Result) -> None:
    rows = random.table("tokens")
    assert (rows["top_mass_q"] > 0.01).all()
    assert not [one for one in random.findings if " tokens: " in one.statement]


@pytest.mark.slow
def test_an_adapter_changes_what_it_targets_along_its_rank(tmp_path: Path) -> None:
    folder, _ = base_and_adapter(tmp_path, target_modules=["q_proj", "o_proj"])
    result = headspan.compare(tmp_path / "base", folder, draws=3)
    rows = result.table("changes").set_index("matrix")
    assert (rows.loc[["W_Q", "W_O"], "change_rank"] <= 3 + 1e-9).all()
    assert (rows.loc[["W_K", "W_V", "W_in", "W_out"], "relative_change"] == 0).all()
    tokens = result.table("tokens")
    assert set(tokens["matrix"]) == {"W_Q", "W_O"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": 0.0}, "similarity=0.0: needed is a cosine above 0"),
        ({"sequences": 1}, "sequences = 1 of length = 64 are too few"),
        ({"text": "a"}, "a text is what both models run on: ask for the run too"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.compare("demo", "demo", **options)


def channel_planted(attention: list) -> None:
    """Noise everywhere, and one direction that L0H3 writes made the one that the keys of L2H1 read."""
    noisy(attention)
    written, fused = attention[0].c_proj.weight[3 * 12 :], attention[2].c_attn.weight
    along = torch.linalg.svd(written).Vh[:1]
    fused[:, 48 + 12 : 48 + 24] += 40 * fused.std() * along.mT @ noise((1, 12)) / 12**0.5


@pytest.fixture(scope="module")
def channeled(base: headspan.Heads) -> headspan.Result:
    return headspan.compare(base, wide(channel_planted), draws=DRAWS)


def test_a_planted_channel_is_gained_and_it_alone(channeled: headspan.Result) -> None:
    rows = channeled.table("channel_changes")
    found = rows[rows["gained"].astype(bool)]
    assert list(zip(found["pairing"], found["src"], found["dst"], strict=True)) == [("OK", "L0H3", "L2H1")]
    assert not rows["lost"].any()
    (finding,) = [one for one in channeled.findings if one.statement.startswith("L0H3 → L2H1: the leading K-comp")]
    assert "channel was gained" in finding.statement
    assert len(channeled.figures[finding.figure].data) == 6
    assert "L0H3" in page(channeled).split("Channels gained and lost")[-1]


def test_what_was_gained_is_lost_on_the_way_back(base: headspan.Heads) -> None:
    result = headspan.compare(wide(channel_planted), base, draws=DRAWS)
    rows = result.table("channel_changes")
    lost = rows[rows["lost"].astype(bool)]
    assert list(zip(lost["pairing"], lost["src"], lost["dst"], strict=True)) == [("OK", "L0H3", "L2H1")]
    assert not rows["gained"].any()
    assert [one for one in result.findings if "channel was lost: coupling" in one.statement]


def test_gains_are_those_of_the_composed_matrices(base: headspan.Heads, channeled: headspan.Result) -> None:
    def composed(heads: headspan.Heads) -> torch.Tensor:
        W_Q, W_K, W_V, W_O = (heads.whole(role).double() for role in "QKVO")
        M, N = W_V[0, 3] @ W_O[0, 3], W_K[2, 1] @ W_Q[2, 1].mT
        return M @ N / (M.norm() * N.norm())

    before, after = composed(base), composed(wide(channel_planted))
    U, s, Vh = torch.linalg.svd(after)
    node = channeled["channels/OK"].sel(src="L0H3", dst="L2H1")
    assert float(node.coupling_after) == pytest.approx(float(s[0]), rel=1e-6)
    assert float(node.gain) == pytest.approx(float(s[0] - U[:, 0] @ before @ Vh[0]), rel=1e-6)


def test_a_random_change_gains_and_loses_no_channel(random: headspan.Result) -> None:
    assert not random.table("channel_changes")[["gained", "lost"]].to_numpy().any()
    assert [one for one in random.findings if one.statement == "No channel between heads was gained or lost."]


@pytest.mark.slow
def test_a_trained_adapter_is_told_by_its_rank_and_by_where_it_lies(tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base_and_adapter(tmp_path, target_modules=["q_proj"])  # for its base
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    torch.manual_seed(0)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    half = torch.randint(3, model.config.vocab_size, (16, 6))
    tokens, losses = torch.cat([half, half], 1), []
    optimizer = torch.optim.Adam([each for each in adapted.parameters() if each.requires_grad], lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(adapted(tokens, labels=tokens).loss)
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    adapted.save_pretrained(tmp_path / "trained")
    result = headspan.compare(tmp_path / "base", tmp_path / "trained", draws=3)
    rows = result.table("changes").set_index("matrix")
    attention = rows.loc[["W_Q", "W_K", "W_V", "W_O"]]
    assert (attention["relative_change"] > 0).all()
    assert (attention["change_rank"] <= 2 + 1e-6).all()
    assert (rows.loc[["W_in", "W_out"], "relative_change"] == 0).all()
    shares = result["wiring/OK"]
    assert 0 < float(shares.read_share_mean) < 1
    assert {"gain", "loss", "gained", "lost"} <= set(result["channels/OK"])
