"""Channels: the naive decomposition, invariance, the null, planted answers, and a running model without them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from safetensors import safe_open

import headspan
from docs.calibration.models import generator_of, gpt2, normal
from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, MemoryBudgetError, UnsupportedModel
from headspan.heads.channels import SIDES, pair_channels
from headspan.heads.logits import bilinear_factors
from headspan.lenses.channels.use import copying
from headspan.result import Result
from headspan.runtime import RunnableModel, forward, open_runnable
from headspan.runtime.detectors import repeated_tokens
from headspan.runtime.interventions import WithoutChannel, intervened
from headspan.runtime.interventions.messages import NormedStream, WithoutMessage, arriving_message
from headspan.subspaces.rotated_norms import haar_corners, largest_value_null, rotated_singular_values
from tests.families.tiny_models import CASES, TOKENS
from tests.runtime.test_forward import runnable

INDUCTION = "L1H0,L1H1,L1H3,L1H4,L1H5,L1H6"
BY_NAME = {case.name: case for case in CASES}
PAIR = HeadLabel(0, 1), HeadLabel(1, 1)


def naive(heads: headspan.Heads, src: HeadLabel, dst: HeadLabel, pairing: str, delta: int) -> np.ndarray:
    """M N as a d_model x d_model matrix."""
    group = heads.n_heads // heads.n_kv_heads
    before, after = heads.layer(src.layer), heads.layer(dst.layer)
    M = before.W_V[0, src.head // group] @ before.W_O[0, src.head]
    A, B = bilinear_factors(heads, after, delta)
    W_QK = A[0, dst.head] @ B[0, dst.head // group].mT
    W_OV = after.W_V[0, dst.head // group] @ after.W_O[0, dst.head]
    N = {"OQ": W_QK, "OK": W_QK.mT, "OV": W_OV}[pairing]
    return (M @ N).numpy()


@pytest.mark.parametrize("pairing", ["OQ", "OK", "OV"])
@pytest.mark.parametrize(("model", "delta"), [("demo", 0), ("synthetic:tiny?seed=3", 0), ("synthetic:tiny?seed=3", 5)])
def test_channels_are_the_naive_decomposition(model: str, delta: int, pairing: str) -> None:
    heads = headspan.open(model).heads(dtype=torch.float64).folded()
    src, dst = HeadLabel(0, 3), HeadLabel(1, 6)
    found, product = pair_channels(heads, src, dst, pairing, delta), naive(heads, src, dst, pairing, delta)
    k = len(found.strength)
    np.testing.assert_allclose(found.strength, np.linalg.svd(product, compute_uv=False)[:k], rtol=1e-9, atol=1e-12)
    rebuilt = (found.source.mT * found.strength) @ found.target
    np.testing.assert_allclose(rebuilt, product, atol=1e-12 * found.norm)
    meeting = found.sent @ found.received.mT
    np.testing.assert_allclose(meeting, torch.diag(found.strength), atol=1e-10 * found.norm)


def test_the_table_of_all_pairs_holds_the_leading_channel_of_each(tmp_path: Path) -> None:
    heads = headspan.open("synthetic:tiny?seed=4&layers=3").heads(dtype=torch.float64)
    result = headspan.channels(heads, pairings="OK,OV", vocabulary=False)
    for pairing, src, dst in (("OK", "L0H5", "L2H3"), ("OV", "L1H0", "L2H7")):
        one = pair_channels(heads.folded(), HeadLabel.parse(src), HeadLabel.parse(dst), pairing)
        energy, row = one.strength.square(), result[pairing].to_dataset().sel(src=src, dst=dst)
        assert float(row.strength) == pytest.approx(float(one.strength[0]), rel=1e-9)
        assert float(row.coupling) == pytest.approx(float(one.strength[0]) / one.norm, rel=1e-9)
        assert float(row.share) == pytest.approx(float(energy[0] / energy.sum()), rel=1e-9)
        assert float(row.participation) == pytest.approx(float(energy.sum() ** 2 / energy.square().sum()), rel=1e-9)
        assert int(row.carrying) == 1 + int((energy.cumsum(0) < 0.9 * energy.sum()).sum())
    assert np.isnan(result["OK"].coupling.sel(src="L2H0", dst="L1H0"))
    small = headspan.channels(heads, pairings="OK,OV", vocabulary=False, memory="7MB")
    np.testing.assert_allclose(small["OV"].strength, result["OV"].strength, rtol=1e-12)
    result.save(tmp_path / "channels.nc")
    assert headspan.load(tmp_path / "channels.nc").top(3).equals(result.top(3))


def test_very_many_pairs_are_multiplied_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = headspan.open("synthetic:tiny?seed=4&layers=3").heads()
    double = headspan.channels(heads, vocabulary=False)
    monkeypatch.setattr("headspan.heads.precision.FLOAT64_OPERATIONS", 0)
    single = headspan.channels(heads, vocabulary=False)
    assert (double.attrs["dtype"], single.attrs["dtype"]) == ("float64", "float32")
    for pairing in ("OQ", "OK", "OV"):
        np.testing.assert_allclose(single[pairing].strength, double[pairing].strength, rtol=1e-5)
        np.testing.assert_array_equal(single[pairing].carrying, double[pairing].carrying)
        assert not np.array_equal(single[pairing].strength, double[pairing].strength, equal_nan=True)
        assert list(single[f"top/{pairing}"].src.values) == list(double[f"top/{pairing}"].src.values)


def test_channels_do_not_see_the_basis_inside_a_head() -> None:
    store = headspan.open("demo").checkpoint.store
    state = store.read(list(store.infos))
    config = json.loads((Path(headspan.__file__).parent / "demo" / "checkpoint" / "config.json").read_text())
    changed = {name: tensor.double().clone() for name, tensor in state.items()}
    mixing = torch.randn(16, 16, dtype=torch.float64)
    v, o = (next(name for name in changed if f"layers.0.self_attn.{role}_proj" in name) for role in "vo")
    rows = slice(48, 64)  # head 3
    changed[v][rows] = mixing.mT @ changed[v][rows]
    changed[o][:, rows] = torch.linalg.solve(mixing, changed[o][:, rows].mT).mT
    ours, theirs = (
        pair_channels(headspan.open(model).heads(dtype=torch.float64).folded(), HeadLabel(0, 3), HeadLabel(1, 6), "OK")
        for model in ((changed, config), "demo")
    )
    np.testing.assert_allclose(ours.strength, theirs.strength, atol=1e-9)
    cosines = (ours.directions()[:6] * theirs.directions()[:6]).sum(-1)
    np.testing.assert_allclose(cosines, 1, atol=1e-8)


def test_corners_are_those_of_random_rotations() -> None:
    corners = haar_corners(4000, 3, 4, 9, seed=0)
    np.testing.assert_allclose(corners.square().mean((0, 1, 2)), 1 / 9, rtol=0.05)
    # Fourth moment of an entry of a Haar matrix: 3 / (d (d + 2)), not the 3 / d^2 of a normal one.
    np.testing.assert_allclose(float((corners**4).mean()), 3 / 99, rtol=0.05)
    assert float(torch.linalg.svdvals(corners).max()) <= 1 + 1e-12
    frame = haar_corners(10, 6, 4, 6, seed=1)
    np.testing.assert_allclose(frame.mT @ frame, torch.eye(4).expand(10, 4, 4), atol=1e-12)


@pytest.mark.parametrize("decay", [(0.0, 0.3), (0.3, 2.0)])
def test_p_values_of_the_leading_channel_are_uniform_under_rotation(decay: tuple[float, float]) -> None:
    generator = np.random.default_rng(0)
    spectra = np.arange(1, 17)[None] ** -generator.uniform(*decay, (24, 1))
    s, t = (torch.from_numpy(spectra[part]) for part in (slice(0, 12), slice(12, 24)))
    null = largest_value_null(s, t, 128)
    p = []
    for i, j in np.ndindex(12, 12):
        drawn = rotated_singular_values(s[i] / s[i].norm(), t[j] / t[j].norm(), 128, 30, seed=100 + 12 * i + j)
        values = np.full((12, 12), np.nan)
        for each in drawn[:, 0].tolist():
            values[i, j] = each
            p.append(null.p_values(values)[i, j])
    found = np.array(p)
    for level in (0.5, 0.05, 0.01):
        assert abs((found < level).mean() - level) < 4 * np.sqrt(level / len(found)) + 0.25 * level, level
    assert (found < 1e-4).sum() <= 3


def _circuit_spectra(random: np.random.Generator) -> torch.Tensor:
    """Singular values of products W_V W_O of random matrices."""
    W_V, W_O = (torch.from_numpy(random.normal(size=(12, *shape))) for shape in ((63, 8), (8, 63)))
    return torch.linalg.svdvals(torch.linalg.qr(W_V).R @ W_O)


def test_p_values_of_leading_channels_keep_their_level_in_narrow_heads() -> None:
    random, p = np.random.default_rng(0), []
    for seed in range(12):
        s, t = (_circuit_spectra(random) for _ in range(2))
        corners = haar_corners(12 * 12 * 8, 8, 8, 63, seed=100 + seed).view(8, 12, 12, 8, 8)
        cores = (s / s.norm(dim=1, keepdim=True))[:, None, :, None] * corners
        largest = torch.linalg.svdvals(cores * (t / t.norm(dim=1, keepdim=True))[:, None, :])[..., 0]
        p.append(largest_value_null(s, t, 63, seed).p_values(largest.numpy()).ravel())
    found = np.concatenate(p)
    for level in (0.05, 0.01):
        assert 0.8 * level < (found <= level).mean() < 1.15 * level, level


def test_centered_heads_are_rotated_in_the_space_without_the_mean() -> None:
    model = headspan.open(gpt2(normal(generator_of(3)), 6, 8))
    folded = model.heads().folded()
    assert (folded.center, folded.d_stream, model.heads().d_stream) == (True, 63, 64)
    result = headspan.channels(model, vocabulary=False, null="haar", progress=False)
    z = np.concatenate([result[name]["coupling_z"].values.ravel() for name in ("OQ", "OK", "OV")])
    assert abs(np.nanmean(z)) < 0.07  # 2,880 pairs; rotated in all 64 dimensions it is 0.13
    scores = headspan.affinity(folded, pairings="OK", null="haar", progress=False)["OK"]
    assert float(scores.projection_kernel_null.sel(null="haar", src="L0H0", dst="L1H0")) == pytest.approx(64 / 63)


@pytest.mark.parametrize("seed", range(3))
def test_untrained_models_have_no_channel(seed: int) -> None:
    result = headspan.channels(f"synthetic:tiny?seed={seed}", vocabulary=False, null="haar")
    p = np.concatenate([node["coupling_p"].values.ravel() for node in (result[name] for name in ("OQ", "OK", "OV"))])
    p = p[~np.isnan(p)]
    assert 0.03 < (p < 0.05).mean() < 0.075
    assert sum(int(result[name].n_significant[0]) for name in ("OQ", "OK", "OV")) <= 1
    assert "stands out" in " ".join(finding.statement for finding in result.findings)


def test_planted_channels_are_found() -> None:
    planted = ["L0H1-L2H2:OQ:6", "L1H4-L3H5:OK:6", "L0H6-L1H0:OV:6"]
    result = headspan.channels(headspan.synthetic("tiny", planted=planted, seed=2), vocabulary=False, null="haar")
    for pairing, src, dst in (("OQ", "L0H1", "L2H2"), ("OK", "L1H4", "L3H5"), ("OV", "L0H6", "L1H0")):
        best = result.top(2, pairing, by="z")
        # Both heads that read a planted kv head have its channel.
        strongest = best if pairing != "OQ" else best[:1]
        assert set(strongest["src"]) == {src}
        assert dst in set(strongest["dst"]), pairing
        assert best["q"].iloc[0] < 1e-6
        assert int(result[pairing].n_significant[0]) <= 4


@pytest.fixture(scope="module")
def demo() -> Result:
    return headspan.channels("demo")


def test_the_strongest_channels_of_the_demo_lead_from_its_previous_token_head_to_its_induction_heads(
    demo: Result,
) -> None:
    strongest = demo.table().nlargest(6, "strength")
    assert set(strongest["src"]) == {"L0H3"}
    assert set(strongest["pairing"]) == {"OK"}
    assert sorted(strongest["dst"]) == INDUCTION.split(",")
    assert (demo["OK"].coupling_q.sel(src="L0H3", dst=INDUCTION.split(",")) < 1e-6).all()
    said = " ".join(finding.statement for finding in demo.findings)
    assert "The six strongest channels all lead from L0H3, by K-composition" in said


def test_a_channel_of_the_induction_circuit_excites_and_reads_the_same_tokens_at_both_ends() -> None:
    result = headspan.channels("demo", "L0H3", "L1H6", pairings="OK", draws=200)
    top = result["top/OK"].to_dataset()
    assert list(top["sign"].values[:3]) == ["excites"] * 3
    ends = [set(str(top["tokens"].values[0, side]).split("|")[0].split()[1:]) for side in (0, 3)]
    assert len(ends[0] & ends[1]) >= 2
    assert "A query that holds what the source reads is attended to more" in result.findings[0].statement
    spectrum = result["pair/OK"].to_dataset()
    assert (spectrum["singular_value_p"][:5] < 0.01).all()


@pytest.mark.slow
def test_it_takes_several_channels_to_carry_the_copying_of_the_demo() -> None:
    """One channel of sixteen does not matter more than random directions of equal read energy; eight carry it all."""
    result = headspan.channels("demo", "L0H3", "L1H6", pairings="OK", used=INDUCTION, vocabulary=False, draws=50)
    rows = result.table("use")
    copied = rows.groupby(["untrained", "removed", "channels"])["copied"].mean()
    trained, untrained = copied[0], copied[1]
    assert trained["nothing", 0] > 0.98
    assert trained["leading channels", 1] > 0.95
    assert trained["leading channels", 8] == pytest.approx(trained["whole message", 16], abs=0.05)
    assert trained["leading channels", 8] < 0.5
    assert trained["rest of the message", 8] > 0.97
    assert trained["random directions of the message", 8] > trained["leading channels", 8] + 0.15
    assert trained["random directions that are read", 8] > 0.85
    assert (untrained < 0.1).all()
    # The one direction that most reaches all six by: more than their own leading channels, and still little.
    loss = rows[(rows["untrained"] == 0) & (rows["channels"] == 1)].groupby("removed")["loss"]
    assert loss.mean()["leading shared directions"] > 2 * loss.mean()["leading channels"]
    assert loss.mean()["leading shared directions"] > loss.max()["random directions that are read"]
    assert loss.mean()["leading shared directions"] < loss.max()["random shared directions"]
    assert 0.9 < trained["leading shared directions", 1] < 0.97
    equal = rows[(rows["untrained"] == 0) & (rows["channels"] == 4)].groupby("removed")["read_energy"].mean()
    assert equal["random shared directions"] == pytest.approx(equal["leading shared directions"])
    matched = rows[rows["channels"] == 8].groupby("removed")["read_energy"].mean()
    assert matched["random directions that are read"] == pytest.approx(matched["leading channels"])
    assert result["activity"].activity.sum() == pytest.approx(1)
    assert "It takes 8 channels" in result.findings[0].statement
    assert set(result.figures) == {"Spectrum of the pair", "Without the channels"}


def test_copying_survives_without_one_channel_and_not_without_eight() -> None:
    model = open_runnable("demo")
    tokens = repeated_tokens(model, 24, 16, seed=0)
    first = {}
    for numbers in ((0,), tuple(range(8)), tuple(range(8, 12))):
        cut = [WithoutChannel(HeadLabel(0, 3), HeadLabel.parse(dst), "OK", numbers) for dst in INDUCTION.split(",")]
        with intervened(model, *cut):
            first[len(numbers)] = copying(forward(model, tokens), 24)[1]
    assert first[1] > 0.95
    assert first[8] < 0.5
    assert first[4] > 0.97


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "qwen3", "gemma", "opt"])
@pytest.mark.parametrize("pairing", ["OQ", "OK", "OV"])
def test_all_channels_together_are_the_message(name: str, pairing: str) -> None:
    """Without any channel a destination reads as without the message; afterwards all is as before, bit for bit."""
    model = runnable(BY_NAME[name])
    plain = forward(model, TOKENS)
    role = {"OQ": "Q", "OK": "K", "OV": "V"}[pairing]
    group = model.n_heads // model.stack.n_kv_heads
    target = HeadLabel(1, 1 // group, kv=True) if role != "Q" and group > 1 else PAIR[1]
    message = arriving_message(plain, NormedStream.of(plain, 1), PAIR[0])
    rank = pair_channels(model.heads().folded(), *PAIR, pairing).rank
    with intervened(model, WithoutChannel(*PAIR, pairing, tuple(range(rank)))):
        ours = forward(model, TOKENS)
    with intervened(model, WithoutMessage(target, role, message)):
        theirs = forward(model, TOKENS)
    assert ours.logits is not None
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours.logits, plain.logits, rtol=1e-6, atol=1e-7)
    assert torch.equal(forward(model, TOKENS).logits, plain.logits)


def test_removing_one_channel_takes_one_rank_from_what_arrives() -> None:
    model: RunnableModel = open_runnable("demo")
    found = pair_channels(model.heads().folded(), HeadLabel(0, 3), HeadLabel(1, 6), "OK")
    seen: list[torch.Tensor] = []
    tokens = torch.randint(2, 60, (2, 12))
    runs = []
    for changes in ((), (WithoutChannel(HeadLabel(0, 3), HeadLabel(1, 6), "OK", (2,)),)):
        with intervened(model, *changes):
            hook = model.linear("K", 1).register_forward_hook(lambda module, args, out: seen.append(out[..., 96:112]))
            runs.append(forward(model, tokens))
            hook.remove()
    difference = (seen[0] - seen[1]).double().flatten(0, 1)
    values = torch.linalg.svdvals(difference)
    assert values[1] < 1e-5 * values[0]
    write = runs[0].head_writes(0)[:, :, 3].double().flatten(0, 1)
    amounts = write @ found.received[2] / found.strength[2]
    assert abs(float(torch.corrcoef(torch.stack([amounts, difference @ difference[0]]))[0, 1])) > 0.5


def test_channels_can_be_removed_by_name(tmp_path: Path) -> None:
    result = headspan.intervene("demo", "abcabcabc", channel=["L0H3:L1H6:OK:0", "L0H3:L1H1:OK:0-7"], length=2)
    assert result["setting"].values.tolist() == [
        "unmodified",
        "without L0H3:L1H6:OK:0",
        "without L0H3:L1H1:OK:0-7",
    ]
    jsd = result["jsd"].sel(setting="without L0H3:L1H1:OK:0-7")
    assert float(jsd.sel(head="L1H1")) > 0.01
    assert float(jsd.sel(head="L1H3")) < 1e-12
    with pytest.raises(ArgumentError, match="is no channel; write it like L0H3:L1H6:OK:0"):
        headspan.intervene("demo", channel="L0H3:L1H6:QQ:0")
    with pytest.raises(ArgumentError, match="do not compose: the source must be in an earlier layer"):
        headspan.intervene("demo", channel="L1H3:L0H6:OK:0")
    with pytest.raises(ArgumentError, match="has channels 0 to"):
        headspan.intervene("demo", channel="L0H3:L1H6:OK:99")
    changes = intervened(runnable(BY_NAME["bert"]), WithoutChannel(*PAIR, "OK"))
    with pytest.raises(UnsupportedModel, match="cannot be told apart as it runs"), changes:
        pass


def test_directions_and_graph_are_written_for_other_programs(demo: Result, tmp_path: Path) -> None:
    demo.save(tmp_path / "channels.safetensors")
    with safe_open(tmp_path / "channels.safetensors", "pt") as file:
        labels = json.loads(file.metadata()["OK.channels"])
        assert file.metadata()["fold"] == "layernorm"
        for place, side in enumerate(SIDES):
            rows = file.get_tensor(f"OK.{side}")
            assert rows.shape == (20, 128)
            np.testing.assert_allclose(rows, demo["top/OK"].direction.values[:, place], atol=1e-6)
    assert labels == demo["top/OK"].channel.values.tolist()
    demo.save(tmp_path / "channels.graphml")
    assert "L0H3" in (tmp_path / "channels.graphml").read_text()
    assert set(demo.figures) == {"Channels of all pairs", "Graph of the strongest channels"}


def test_large_models_get_the_channels_of_candidates() -> None:
    planted = headspan.synthetic("tiny", planted=["L1H4-L3H5:OK:6"], seed=2)
    result = headspan.channels(planted, pairings="OK", algorithm="candidates", top=3, vocabulary=False)
    assert "OK" not in result
    assert result.attrs["algorithm"] == "candidates"
    whole = headspan.channels(planted, pairings="OK", null="haar", vocabulary=False)
    best, same = result.top(1), whole.top(1, by="z")
    assert best["channel"].tolist() == same["channel"].tolist()
    assert best["score"][0] == pytest.approx(same["score"][0])
    assert best["q"][0] < 1e-6


def test_candidates_of_all_pairings_are_those_of_each_by_itself() -> None:
    planted = headspan.synthetic("tiny", planted=["L1H4-L3H5:OK:6", "L0H2-L2H1:OQ:6"], seed=2)
    every = headspan.channels(planted, algorithm="candidates", top=3, vocabulary=False)
    for pairing, first in (("OK", "L1H4:L3H"), ("OQ", "L0H2:L2H1:OQ:0")):  # keys are read by a group
        alone = headspan.channels(planted, pairings=pairing, algorithm="candidates", top=3, vocabulary=False)
        xr.testing.assert_allclose(every[f"top/{pairing}"].to_dataset(), alone[f"top/{pairing}"].to_dataset())
        assert every[f"top/{pairing}"].channel.values[0].startswith(first)


def test_candidates_that_a_budget_cannot_hold_are_refused_by_their_size() -> None:
    with pytest.raises(MemoryBudgetError, match=r"two layers take [\d,]+ bytes; .* raise it by [\d,]+ bytes or more"):
        headspan.channels("synthetic:tiny", algorithm="candidates", memory="200kB")


def test_wrong_requests_are_refused_before_anything_is_computed() -> None:
    for arguments, options, words in (
        (("L0H3",), {}, "a pair needs a source and a destination"),
        ((), {"pairings": "QQ"}, "QQ has no channels"),
        ((), {"null": "reverse"}, "nulls are two-way, haar"),
        ((), {"used": "L1H0"}, "needs a source and a destination"),
        ((), {"top": 0}, "top >= 1"),
    ):
        with pytest.raises(ArgumentError, match=words):
            headspan.channels("nowhere", *arguments, **options)
    with pytest.raises(ArgumentError, match="are not of one layer"):
        headspan.channels("synthetic:tiny", "L0H3", "L1H6", pairings="OK", used="L1H0,L2H0", vocabulary=False, draws=50)


@pytest.mark.parametrize("lens", [headspan.channels, headspan.vocabulary])
def test_an_offset_is_refused_where_positions_are_not_rotary(lens: Callable[..., Result]) -> None:
    with pytest.raises(ArgumentError, match="delta=3 needs rotary positions, which this model does not have"):
        lens("synthetic:gpt2?layers=2", delta=3)


def test_heads_as_wide_as_a_centered_stream_have_channels() -> None:
    """Sixteen columns in a stream of fifteen dimensions: the last singular value is zero, with the null's."""
    s, t = torch.linspace(2, 1, 15, dtype=torch.float64), torch.linspace(3, 1, 15, dtype=torch.float64)
    padded = [torch.cat([each, torch.zeros(1, dtype=torch.float64)]) for each in (s, t)]
    drawn, same = rotated_singular_values(*padded, 15, 4, 0), rotated_singular_values(s, t, 15, 4, 0)
    assert drawn.shape == (4, 16)
    np.testing.assert_array_equal(drawn[:, :15], same)
    np.testing.assert_allclose(same[:, :15].prod(1), (s * t).prod().expand(4), rtol=1e-9)  # |det R| = 1
    wide, narrow = (largest_value_null(a[None], b[None], 15).mean for a, b in (padded, (s, t)))
    assert wide == narrow
    model = headspan.open(gpt2(normal(generator_of(0)), layers=2, n_heads=1))
    every = headspan.channels(model, pairings="OV", null="haar", vocabulary=False, progress=False)["OV"]
    one = headspan.channels(model, "L0H0", "L1H0", pairings="OV", vocabulary=False, progress=False)["pair/OV"]
    assert 0 < np.nanmax(every["coupling_p"].values) < 1
    last = one.to_dataset().isel(place=-1)
    assert float(last["singular_value"]) == pytest.approx(0, abs=1e-9)
    assert float(last["singular_value_null"]) == 0


def test_labels_of_the_strongest_channels_do_not_lie_on_each_other() -> None:
    figure = headspan.channels("demo").figures["Channels of all pairs"]
    labels: dict[str, list[tuple[float, float]]] = {}
    for each in figure.layout.annotations:
        if "→" in each.text:
            labels.setdefault(each.xref, []).append((each.x, each.y))
    assert max(map(len, labels.values())) > 1
    for axis, places in labels.items():
        dots = [trace for trace in figure.data if (trace.xaxis or "x") == axis and trace.mode == "markers"]
        wide, tall = (
            np.ptp(np.log10(np.concatenate([np.asarray(each[way], float) for each in dots]))) for way in ("x", "y")
        )
        for (x, y), (a, b) in itertools.combinations(places, 2):
            assert abs(x - a) > 0.35 * wide or abs(y - b) > 0.05 * tall
