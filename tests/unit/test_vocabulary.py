"""The vocabulary lens: directions, copying, relations, neurons and projections; definitions, nulls, planted answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError, HeadspanError, UnsupportedModel
from headspan.lenses.token_reading import TokenTable
from headspan.lenses.vocabulary.copying import circuit_eigenvalues, copying_scores, positivity
from headspan.lenses.vocabulary.relations import beyond_tables, listed_relations, relation_scores

D, N_HEADS, N_TOKENS = 64, 8, 400


def tensors(seed=0, n_layers=2, n_kv=N_HEADS, d=D):
    """A random Llama: grouped heads, gated MLP, untied tables, gains that are not one."""
    draw = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    d_kv = d // N_HEADS * n_kv
    found = {"model.embed_tokens.weight": random(N_TOKENS, d), "lm_head.weight": random(N_TOKENS, d)}
    found["model.norm.weight"] = 1 + 0.3 * random(d)
    for layer in range(n_layers):
        at = f"model.layers.{layer}."
        for role, rows in (("q", d), ("k", d_kv), ("v", d_kv), ("o", d)):
            found[f"{at}self_attn.{role}_proj.weight"] = random(rows, d) / d**0.5
        found |= {f"{at}mlp.{name}_proj.weight": random(96, d) / d**0.5 for name in ("gate", "up")}
        found[f"{at}mlp.down_proj.weight"] = random(d, 96) / d**0.5
        found |= {f"{at}{name}_layernorm.weight": 1 + 0.3 * random(d) for name in ("input", "post_attention")}
    return found


def config(n_layers=2, n_kv=N_HEADS, d=D):
    return {
        "model_type": "llama",
        "hidden_size": d,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": n_kv,
        "num_hidden_layers": n_layers,
        "vocab_size": N_TOKENS,
        "intermediate_size": 96,
    }


@pytest.fixture(scope="module")
def grouped():
    return headspan.open((tensors(n_kv=4), config(n_kv=4)))


@pytest.fixture(scope="module")
def found(grouped):
    return headspan.vocabulary(grouped, leading=3, count=4, draws=200, neurons="L1N5", dtype="float64")


def circuits(model, layer, head, fold="layernorm", delta=0):
    heads = model.heads(fold=fold, dtype=torch.float64)
    kv = head // 2
    return (
        heads.W_V[layer, kv] @ heads.W_O[layer, head],
        heads.W_Q[layer, head] @ heads.W_K[layer, kv].T,
        heads.W_E,
        heads.W_U,
    )


def test_directions_are_those_of_the_dense_circuit_of_every_query_head(grouped, found):
    W_OV, W_QK, W_E, W_U = circuits(grouped, 1, 5)
    for kind, matrix, tables in (("OV", W_OV, (W_E, W_U.T)), ("QK", W_QK, (W_E, W_E))):
        U, S, Vh = torch.linalg.svd(matrix)
        node = found[kind].sel(head="L1H5")
        np.testing.assert_allclose(node.singular_value, S[:3], rtol=1e-9)
        np.testing.assert_allclose(node.energy, S[:3] ** 2 / (S**2).sum(), rtol=1e-9)
        for place in range(3):
            sides = (U[:, place], Vh[place])
            z = []
            for table, vector in zip(tables, sides, strict=True):
                scores = (table - table.mean(0)) @ vector
                z.append((scores / scores.square().mean().sqrt()).numpy())
            flat = np.concatenate(z)
            sign = np.sign(flat[np.abs(flat).argmax()])  # the strongest token of both sides is at the high end
            for side, values in enumerate(z):
                order = np.argsort(-sign * values)
                np.testing.assert_array_equal(node.token.values[place, side, 0], order[:4])
                np.testing.assert_array_equal(node.token.values[place, side, 1], order[::-1][:4])


def test_rotary_circuits_are_taken_at_an_offset(grouped):
    at = headspan.vocabulary(grouped, matrices="QK", head="L0H1", delta=3, draws=50, dtype="float64")
    expected = headspan.spectra(grouped, matrices="W_QK", delta=3, fold="layernorm")["W_QK"]
    np.testing.assert_allclose(at["QK"].singular_value[0], expected.singular_value.sel(head="L0H1")[:8], rtol=1e-6)


def test_mlp_directions_and_neurons_read_the_folded_weights(grouped, found):
    heads = grouped.heads(fold="layernorm", dtype=torch.float64)
    mlp = heads.mlp(1)
    U, S, _ = torch.linalg.svd(mlp.W_in[1], full_matrices=False)
    node = found["MLP"].sel(layer=1, side="W_in")
    np.testing.assert_allclose(node.singular_value, S[:3], rtol=1e-9)
    scores = ((heads.W_E - heads.W_E.mean(0)) @ U[:, 0]).numpy()
    assert node.token.values[0, 0, 0] == np.abs(scores).argmax()
    neuron = found["neurons"].sel(neuron="L1N5")
    written = heads.W_U.T - heads.W_U.T.mean(0)
    assert neuron.token.sel(side="W_out").values[0, 0] == int((written @ mlp.W_out[5]).argmax())
    activating = (heads.W_E - heads.W_E.mean(0)) @ mlp.W_in[0][:, 5]
    assert neuron.token.sel(side="W_gate").values[0, 0] == int(activating.argmax())
    np.testing.assert_allclose(neuron.norm.sel(side="W_out"), mlp.W_out[5].norm(), rtol=1e-6)


def test_directions_of_the_unembedding_are_its_singular_vectors(grouped, found):
    W_U = grouped.heads(fold="layernorm", dtype=torch.float64).W_U.T
    U, S, _Vh = torch.linalg.svd(W_U - W_U.mean(0), full_matrices=False)
    np.testing.assert_allclose(found["W_U"].energy, S[:3] ** 2 / (S**2).sum(), rtol=1e-8)
    assert found["W_U"].token.values[0, 0, 0, 0] == int(U[:, 0].abs().argmax())


def test_copying_is_the_positivity_of_the_whole_circuit_over_tokens(grouped, found):
    W_OV, W_QK, W_E, W_U = circuits(grouped, 1, 5)
    E, U = W_E - W_E.mean(0), W_U - W_U.mean(1, keepdim=True)
    for name, whole in (("copying", W_E @ W_OV @ U), ("matching", E @ W_QK @ E.T)):
        values = torch.linalg.eigvals(whole)
        largest = values[values.abs().argsort(descending=True)][:8]
        np.testing.assert_allclose(found["copying"][name].sel(head="L1H5"), positivity(largest), rtol=1e-8)
        node = found["copying"].sel(head="L1H5")
        sizes = np.hypot(node[f"{name}_eigenvalue_real"], node[f"{name}_eigenvalue_imag"])
        np.testing.assert_allclose(sizes, largest.abs() / N_TOKENS, rtol=1e-8)


def test_a_head_that_copies_is_found_and_one_that_removes():
    weights = tensors()
    E, U = (weights[name] for name in ("model.embed_tokens.weight", "lm_head.weight"))
    gains = weights["model.layers.1.input_layernorm.weight"], weights["model.norm.weight"]
    # W_V reads some directions; W_O writes where the unembedding of the token that is read lies.
    reads = torch.linalg.qr(torch.randn(D, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)).Q
    for head, sign in ((2, 1.0), (5, -1.0)):
        rows = slice(head * 8, head * 8 + 8)
        W_V = reads[:, :8] if head == 2 else reads[:, 8:]
        weights["model.layers.1.self_attn.v_proj.weight"][rows] = (W_V / gains[0][:, None]).T
        written = sign * (W_V.T @ E.T @ U) / gains[1]
        weights["model.layers.1.self_attn.o_proj.weight"][:, rows] = written.T
    node = headspan.vocabulary((weights, config()), matrices="OV", draws=50)["copying"]
    assert float(node.copying.sel(head="L1H2")) > 0.95
    assert float(node.copying.sel(head="L1H5")) < -0.95
    assert set(node.head.values[node.copying_q.values < 0.01]) == {"L1H2", "L1H5"}


def test_rotation_leaves_no_copying_and_the_spread_it_says():
    draw = torch.Generator().manual_seed(8)
    A, B = (torch.randn(400, 48, 6, generator=draw, dtype=torch.float64) for _ in range(2))
    C = torch.randn(48, 48, generator=draw, dtype=torch.float64)
    C = C @ torch.diag(torch.linspace(3, 0.1, 48, dtype=torch.float64))
    found = copying_scores(A, B, C, seed=0)
    z = found["score"] / found["null_sd"]
    assert abs(z.mean()) < 4 / 20
    assert 0.85 < z.std() < 1.15
    # Of a circuit of rank one the only eigenvalue is real: the score is +1 or -1, and means nothing.
    one = copying_scores(A[:20, :, :1], B[:20, :, :1], C, seed=0)
    assert np.allclose(np.abs(one["score"]), 1)
    assert np.allclose(one["null_sd"], 1)
    zero = copying_scores(0 * A[:2], B[:2], C, seed=0)
    assert np.isnan(zero["score"]).all()


def test_eigenvalues_do_not_see_the_basis_inside_a_head():
    draw = torch.Generator().manual_seed(9)
    A, B = (torch.randn(2, 20, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    C, G = torch.randn(20, 20, generator=draw).double(), torch.randn(4, 4, generator=draw).double()
    changed = circuit_eigenvalues(A @ G, B @ torch.linalg.inv(G).T, C)
    np.testing.assert_allclose(changed.abs(), circuit_eigenvalues(A, B, C).abs(), rtol=1e-8)


def test_untrained_weights_read_as_nothing_beyond_the_false_discovery_rate():
    families, significant, total = 0, 0, 0
    for seed in range(4):
        result = headspan.vocabulary((tensors(seed + 20), config()), draws=300, seed=seed)
        for kind in ("OV", "QK", "MLP", "W_U"):
            p, q = result[kind].top_mass_p.values, result[kind].top_mass_q.values
            families += bool((q < 0.05).any())
            significant, total = significant + int((p < 0.05).sum()), total + p.size
        for name in ("copying", "matching"):
            families += bool((result["copying"][f"{name}_q"].values < 0.05).any())
    # 24 families of tests at a false-discovery rate of 5 %: five or more with a discovery have probability 0.6 %.
    assert families < 5
    assert significant / total < 0.09


def relation_model(seed=0):
    """Head L1H3 maps token i to token i + 100, for i in 0..29."""
    weights = tensors(seed)
    gains = weights["model.layers.1.input_layernorm.weight"], weights["model.norm.weight"]
    E, U = weights["model.embed_tokens.weight"][:30], weights["lm_head.weight"][100:130]
    left, _, right = torch.linalg.svd((torch.linalg.pinv(E) @ U), full_matrices=False)
    weights["model.layers.1.self_attn.v_proj.weight"][24:32] = (left[:, :8] / gains[0][:, None]).T
    weights["model.layers.1.self_attn.o_proj.weight"][:, 24:32] = (3 * right[:8] / gains[1]).T
    return weights


def pairs_file(folder: Path, shift=100) -> Path:
    rows = [f"shift,#{token},#{token + shift}" for token in range(30)]
    file = folder / "pairs.csv"
    file.write_text("relation,left,right\n" + "\n".join(rows) + "\n")
    return file


def test_a_planted_relation_is_found_in_its_head_and_in_no_other(tmp_path):
    model = headspan.open((relation_model(), config()))
    node = headspan.vocabulary(model, matrices="OV", relations=pairs_file(tmp_path), draws=50)["relations"]
    assert list(node.head.values[(node.relation_score_q < 0.05).values[0]]) == ["L1H3"]
    assert float(node.relation_score_z.sel(head="L1H3")[0]) > 6
    assert float(node.hits.sel(head="L1H3")[0]) > 5 * float(node.hits_null[0])
    assert list(node.head.values[(node.beyond_q < 0.05).values[0]]) == ["L1H3"]
    other = headspan.vocabulary(model, matrices="OV", relations=pairs_file(tmp_path, 200), draws=50)["relations"]
    assert not (other.relation_score_q < 0.05).any()
    assert int(other.pairs[0]) == 30


def test_beyond_is_the_mean_difference_of_pairs_and_a_head_that_copies_is_not_beyond_the_tables():
    draw = torch.Generator().manual_seed(5)
    left, more = (torch.randn(20, 32, generator=draw, dtype=torch.float64) for _ in range(2))
    right, parts = left + more, torch.randn(40, 32, 8, generator=draw, dtype=torch.float64)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (500, 20))
    table = left @ right.mT
    copying = (left @ parts) @ (right @ parts).mT
    found = beyond_tables(copying, table[None], signs)
    assert (found["beyond_p"] > 0.01).all()
    both = [each - each.mean(1, keepdim=True) - each.mean(0) + each.mean() for each in (copying[0], table)]
    naive = [each.diagonal() / each.square().mean().sqrt() for each in both]
    np.testing.assert_allclose(found["beyond"][0], float((naive[0] - naive[1]).mean()))
    mapped = left @ torch.linalg.pinv(left) @ right @ right.mT  # the relation itself, not the similarity
    assert beyond_tables(mapped[None], table[None], signs)["beyond_p"][0] < 0.01
    assert np.isnan(beyond_tables(3 * table[None], table[None], signs)["beyond_p"][0])


def test_relation_scores_have_the_mean_and_spread_of_permutations():
    S = torch.randn(300, 12, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    S += 5 * torch.randn(12, 1, dtype=torch.float64) + 5 * torch.randn(1, 12, dtype=torch.float64)
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(12), (500, 1)), axis=1)
    found = relation_scores(S, orders)
    naive = S[0] - S[0].mean(1, keepdim=True) - S[0].mean(0) + S[0].mean()
    np.testing.assert_allclose(found["score"][0], naive.diagonal().mean() / naive.square().mean().sqrt())
    z = found["score"] * np.sqrt(11)
    assert abs(z.mean()) < 4 / np.sqrt(300)
    assert 0.85 < z.std() < 1.15
    assert abs((found["p"] < 0.1).mean() - 0.1) < 0.06
    assert np.isnan(relation_scores(S[:, :5, :5], orders)["score"]).all()


def test_own_lists_hold_distinct_pairs():
    lists = listed_relations(None)
    assert {"capital", "antonym", "plural", "copying", "translation to French"} <= set(lists)
    assert all(len(pairs) >= 20 for pairs in lists.values())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "needs the columns relation, left, right"),
        ("", "needs the columns relation, left, right and rows; found no row"),
        ("relation,left,right\nx,y\n", "line 2 of .* lacks right"),
        ("relation,left,right\nx,y,z\n", "no list has 6 pairs whose words are single tokens"),
        ('relation,left,right\nx,"y,z\n', "is not a CSV file"),
        ("relation,left,right\n" + "x,y,z\n" * 20_001, "has 20,001 rows; relations may have 20,000"),
    ],
)
def test_bad_lists_of_relations_are_refused_in_one_line(tmp_path, content, message, grouped):
    file = tmp_path / "pairs.csv"
    file.write_text(content)
    with pytest.raises(ArgumentError, match=message):
        headspan.vocabulary(grouped, head="L0H0", matrices="OV", relations=file)
    with pytest.raises(HeadspanError, match="cannot be read"):
        headspan.vocabulary(grouped, head="L0H0", matrices="OV", relations=tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matrices": "OV,XY"}, "matrices: 'XY' is unknown; they are OV, QK, MLP, W_U"),
        ({"neurons": "L3H4"}, "'L3H4' is not a neuron; write it like L3N1024"),
        ({"neurons": "L0N96"}, "L0N96 does not exist: neurons are L0N0 to L1N95"),
        ({"head": "L0H8"}, "L0H8 does not exist: heads are L0H0 to L1H7"),
        ({"head": "L0K1"}, "head=L0K1: directions belong to query heads"),
        ({"leading": 0}, "leading = 0 is out of range; directions are 1 to 10,000"),
        ({"draws": 3}, "draws = 3 is out of range; random directions are 50 to 10,000"),
        ({"table": "W_E"}, "table goes with projection"),
        ({"projection": "Q"}, "a projection needs the head to look at"),
    ],
)
def test_bad_choices_are_refused_in_one_line(grouped, options, message):
    with pytest.raises(ArgumentError, match=message):
        headspan.vocabulary(grouped, **options)


def test_a_zero_head_is_undefined_and_says_so():
    weights = tensors()
    weights["model.layers.0.self_attn.v_proj.weight"][:8] = 0
    result = headspan.vocabulary((weights, config()), matrices="OV", draws=50)
    node = result["OV"].sel(head="L0H0")
    assert node.top_mass.isnull().all()
    assert (node.token == -1).all()
    assert np.isnan(result["copying"].copying.sel(head="L0H0"))
    assert np.isfinite(result["copying"].copying.sel(head="L0H1"))


def test_a_token_of_a_small_vocabulary_counts_once():
    weights = tensors()
    tables = {name: weights[name][:12] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    heads = headspan.open(({**weights, **tables}, config() | {"vocab_size": 12})).heads(dtype="float64")
    directions = torch.randn(5, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scores = directions @ (heads.W_E - heads.W_E.mean(0)).mT
    expected = scores.square().topk(10).values.sum(-1) / scores.square().sum(-1)
    reading = TokenTable(heads, "read").read(directions)
    np.testing.assert_allclose(reading.top_mass, expected, rtol=1e-9)


def test_norms_are_folded_by_default_and_heads_that_are_given_keep_their_state(grouped, minilm):
    assert headspan.vocabulary(grouped, head="L0H0", draws=50).attrs["fold"] == "layernorm"
    assert headspan.vocabulary(grouped, head="L0H0", draws=50, fold="none").attrs["fold"] == "none"
    assert headspan.vocabulary(grouped.heads(), head="L0H0", draws=50).attrs["fold"] == "none"
    encoder = headspan.vocabulary(minilm, head="L0H9", matrices="OV", draws=50)
    assert encoder.attrs["fold"] == "none"
    assert encoder.attrs["write_table"] == "W_U"
    node = encoder["OV"].sel(head="L0H9", side="read", direction=5)
    # A direction of pronouns.
    assert {"she", "her", "he", "him"} <= set(str(node.tokens_high.item()).split(" | "))
    assert float(node.top_mass_q) < 1e-3


@pytest.mark.parametrize(("role", "table"), [("Q", "W_E"), ("O", "W_U"), ("K", "W_U")])
def test_projected_shares_are_their_definition(role: str, table: str, stories: Path) -> None:
    heads = headspan.open(stories).heads(dtype="float64")
    result = headspan.vocabulary(heads, head="L2H5", projection=role, table=table, count=512, all_tokens=True)
    found = result.table("projection")
    vectors = heads.table("W_E") if table == "W_E" else heads.table("W_U").T
    vectors = vectors - vectors.mean(0)
    W = {"Q": heads.W_Q[2, 5], "K": heads.W_K[2, 2], "O": heads.W_O[2, 5].T}[role]
    projector = W @ torch.linalg.inv(W.T @ W) @ W.T
    expected = (vectors @ projector).square().sum(-1) / vectors.square().sum(-1)
    by_token = found.set_index("token")["share"].sort_index().to_numpy()
    np.testing.assert_allclose(by_token, expected.numpy(), atol=1e-10)
    assert (found["share"].diff().dropna() <= 0).all()
    assert (found["share_null"] == 8 / 64).all()
    assert found["text"].str.len().min() > 0
    assert result.attrs["head"] == "L2H5"
    assert float(result["projection/share"].sel(token=found["token"][0])) == found["share"][0]


def test_projections_of_a_missing_table_or_head_are_refused(gpt2_attention: Path, stories: Path) -> None:
    with pytest.raises(UnsupportedModel, match="it needs W_E, which this checkpoint does not have"):
        headspan.vocabulary(gpt2_attention, head="L0H0", projection="Q")
    with pytest.raises(ArgumentError, match="L0H12 does not exist: layer 0 has 8 heads for role Q"):
        headspan.vocabulary(stories, head="L0H12", projection="Q", table="W_E")
    with pytest.raises(ArgumentError, match="table='wte' is unknown; it is one of W_E, W_U"):
        headspan.vocabulary("nowhere", head="L0H0", projection="Q", table="wte")
    with pytest.raises(ArgumentError, match="projection='X' is unknown; roles are Q, K, V, O"):
        headspan.vocabulary("nowhere", head="L0H0", projection="X")


def test_the_demo_copies_in_its_second_layer_and_a_file_keeps_everything(tmp_path):
    result = headspan.vocabulary("demo")
    node = result["copying"]
    assert (node.copying.values[8:] > 0.6).all()
    assert (node.copying_q.values[8:] < 0.01).all()
    assert any("8 of 16 heads raise the logit of the token they read" in one.statement for one in result.findings)
    assert set(result.figures) == {
        "Directions that read as tokens",
        "Copying and matching",
        "Eigenvalues of circuits over tokens",
    }
    again = headspan.load(result.save(tmp_path / "demo.nc"))
    assert [one.statement for one in again.findings] == [one.statement for one in result.findings]
    document = json.loads(result.save(tmp_path / "demo.json").read_text())
    assert document["schema"] == "headspan.vocabulary/1"
    assert "tokens_high" in str(document)
