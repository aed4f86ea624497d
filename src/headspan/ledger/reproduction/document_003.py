"""Document 003, the thesis: figures of chapters 2, 5, 8 and of the appendix, and the hypothesis of chapter 7.

What is run takes words and clues of our own in place of the thesis's, and the first language model at hand in place of
Mistral. Its untrained twin, or the same model with random weights, is the control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
import xarray as xr

from headspan.distributions import path_study
from headspan.distributions.bigram_fit import bigram_fit
from headspan.errors import ArgumentError
from headspan.finding import percent
from headspan.ledger.figures import divergence_along_paths
from headspan.ledger.reproduction.exhibit import AtHand, Exhibits, Outcome, Shown, drawing, language, reads
from headspan.lenses.intervene.schema import AVERAGED, UNMODIFIED
from headspan.lenses.model import Model
from headspan.lenses.shots import BUNDLED, PREAMBLE, read_pairs, shot_text, split_pairs
from headspan.result import Result
from headspan.runtime import encoded
from headspan.runtime.untrained import untrained_twin
from headspan.statistics import mp_quantile, q_values
from headspan.theme import BLUE, CHANCE, styled

EXHIBITS = Exhibits("003")
TARGETS = ("river", "mirror", "clock", "candle", "wheel")
SHOTS: dict[str, Any] = {"few_shot": BUNDLED, "shots": 3, "preamble": PREAMBLE}
FEW_SHOT = '--few-shot bundled --preamble "..."'
FLAT = 0.95
"""Relative entropy from which attention counts as uniform."""
SIDE = 1024


Suits = Callable[[Model], str | None]


def _asked(model: Model) -> dict[str, Any]:
    """The few-shot prompt: as shots for a model that writes, as a plain text for one that only reads."""
    if language(model) is None:
        return SHOTS
    shown = split_pairs(read_pairs(BUNDLED), SHOTS["shots"], 0, TARGETS[:1], PREAMBLE).shots
    return {"prompt": shot_text(model.running(), shown, TARGETS[0], preamble=PREAMBLE).text}


def _changed(at_hand: AtHand, suits: Suits = language) -> tuple[Result, Model]:
    """Maps and texts of the few-shot prompt: unmodified, random weights, alpha 2 and 1/2."""
    model = at_hand.first("attention", suits)
    asked = _asked(model)
    more = {"target": TARGETS[0], "length": 16} if asked is SHOTS else {}
    return at_hand.result("intervene", model, **asked, **more, maps=True), model


def _shots(at_hand: AtHand, suits: Suits = language, **options: Any) -> tuple[Result, Model]:
    model = at_hand.first("attention", suits)
    return at_hand.result("attention", model, **_given(model, TARGETS[0], options)), model


def _twin_shots(at_hand: AtHand, suits: Suits = language, **options: Any) -> xr.Dataset:
    """The same on the untrained twin."""
    from headspan.lenses.attention.measurement import measure

    model = at_hand.first("attention", suits)
    given = _given(model, [TARGETS[0]], options)
    found: xr.Dataset = at_hand.once(
        ("twin", id(model), repr(sorted(given.items()))), lambda: measure(untrained_twin(model.running()), **given)
    )
    return found


def _given(model: Model, targets: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    asked = _asked(model)
    more = {"targets": targets, "length": 1} if asked is SHOTS else {}
    return {**asked, **more, "permutations": 0, "level": "word", **options}


EXHIBITS.add(
    "Figures 2.1 to 2.3, 8.1 to 8.3",
    sentence="How a transformer, its attention, grouped queries and the few-shot prompt are built.",
    rule="There is no rule: these are drawings.",
    command="headspan inspect {model}",
)(drawing("These figures draw how a model and a prompt are built."))


@EXHIBITS.add(
    "Figure 2.4",
    sentence="The singular values of a square matrix of independent normal entries lie regularly along one curve.",
    rule="Holds if no singular value of one random matrix of side 1024 is further than 0.02 from the quantile of the "
    "Marchenko-Pastur law, whose values reach from 0 to 2.",
    command="headspan reproduce 003 --only 'Figure 2.4'",
)
def random_spectrum(at_hand: AtHand) -> Shown:
    """One random matrix beside the law."""
    generator = torch.Generator().manual_seed(at_hand.seed)
    matrix = torch.randn(SIDE, SIDE, generator=generator, dtype=torch.float64) / SIDE**0.5
    values = torch.linalg.svdvals(matrix)
    share = 1 - (torch.arange(SIDE, dtype=torch.float64) + 0.5) / SIDE
    law = mp_quantile(share, SIDE, SIDE) / SIDE**0.5
    gap = float((values - law).abs().max())
    dots = go.Scatter(x=np.arange(SIDE), y=values.numpy(), mode="lines", name="a random matrix", line={"color": BLUE})
    line = go.Scatter(x=np.arange(SIDE), y=law.numpy(), mode="lines", name="Marchenko-Pastur law")
    figure = go.Figure([dots, line.update(line={"color": CHANCE, "dash": "dash", "width": 2.5})])
    figure.update_xaxes(title_text="singular value, largest first")
    figure.update_yaxes(title_text="size")
    drawn = {"Singular values": styled(figure, f"Singular values of a random {SIDE} x {SIDE} matrix, and the law", 400)}
    number = f"The largest distance from the law is {gap:.4f}; the largest value {float(values[0]):.3f} (law: 2)."
    return Shown("holds" if gap < 0.02 else "does not hold", number, figures=drawn)


@EXHIBITS.add(
    "Section 4.2.3",
    sentence="Given the token before, the next embedding is a Gaussian of a few likely successors and noise.",
    rule="A bigram Gaussian of five successors is fitted to four fifths of a text, in 16 directions. Holds if on the "
    "rest of the text it gains log-likelihood over the Gaussian of all tokens; in part if it only gains over the same "
    "fit to shuffled tokens, by 4 standard deviations.",
    command="headspan reproduce 003 --only 'Section 4.2.3' --model {model} --text FILE",
    claims=("4.2.3",),
)
def bigrams(at_hand: AtHand) -> Shown:
    """What conditioning on the token before gains on held-out text."""
    model = at_hand.first("attention", language)
    if not at_hand.text:
        raise ArgumentError("a text is needed; give one with --text")
    running = model.running()
    # Line by line: a text may be longer than the context.
    parts = [encoded(running, line, True, special=False).ids for line in at_hand.text.splitlines() if line.strip()]
    ids = torch.tensor([token for part in parts for token in part])
    V = running.module.get_input_embeddings().get_parameter("weight").detach().cpu()
    found = bigram_fit(V, ids, seed=at_hand.seed)
    number = (
        f"On {found.tokens} held-out tokens conditioning changes the log-likelihood by {found.gain:+.2f} nats per "
        f"token; on shuffled tokens by {found.null:+.2f} ± {found.null_sd:.2f}."
    )
    clear = found.gain > found.null + 4 * found.null_sd
    outcome: Outcome = "holds" if found.gain > 0 and clear else "holds in part" if clear else "does not hold"
    return Shown(outcome, number, model.source)


@EXHIBITS.add(
    "Figure 5.1",
    sentence="Along a great circle between two orthogonal unit vectors the KL divergence of softmax is a sinusoid.",
    rule="Of the average over 1,000 pairs of 100 entries: holds if it is within 1 % of c (1 - cos) everywhere; in part "
    "if single pairs are further than 1 % from a cosine of their own.",
    command="headspan paths --size 100 --radius 1 --pairs 1000 -o paths.html",
    claims=("5.17b",),
)
def great_circles(at_hand: AtHand) -> Shown:
    """The average and single pairs, at radius 1 and beyond."""
    studies = [path_study(100, radius, pairs=1000, seed=at_hand.seed) for radius in (0.5, 1.0, 3.0, 10.0)]
    one = studies[1]
    gap = float((one.mean - one.law).abs().max() / one.law.abs().max())
    number = (
        f"At radius 1 the average is {percent(gap, 2)} off the law at most, a single pair "
        f"{percent(one.residual, 2)} off its cosine."
    )
    outcome: Outcome = "does not hold" if gap > 0.01 else "holds" if one.residual <= 0.01 else "holds in part"
    return Shown(outcome, number, figures={"KL along great circles": divergence_along_paths(studies)})


@EXHIBITS.add(
    "Hypothesis of 7.2.3",
    sentence="Attention layers mix tokens until all are alike, unless skip connections keep them apart.",
    rule="Holds if the mean cosine of tokens ends above 0.95 without skips and below it with them; in part if one.",
    command="headspan mixing {model} --sequences 4 --length 32",
)
def mixture(at_hand: AtHand) -> Shown:
    """Mean cosine after all layers, beside random weights."""
    model = at_hand.first("mixing")
    result = at_hand.result("mixing", model, sequences=4, length=32, draws=2)
    last = result.dataset().sel(inverse_temperature=1.0).isel(depth=-1)
    ends = [
        (float(last["cosine"].sel(skip=skip)), float(last["cosine_null"].sel(skip=skip)))
        for skip in last["skip"].values
    ]
    number = (
        f"Mean cosine after {result.dataset().sizes['depth'] - 1} layers: {ends[0][0]:.2f} without skips (random "
        f"weights {ends[0][1]:.2f}), {ends[1][0]:.2f} with skips (random weights {ends[1][1]:.2f})."
    )
    facts = (ends[0][0] > FLAT, ends[1][0] < FLAT)
    outcome: Outcome = "holds" if all(facts) else "holds in part" if any(facts) else "does not hold"
    return Shown(outcome, number, model.source, dict(result.figures))


@EXHIBITS.add(
    "Figures 8.4, 8.5 and A.1 to A.8",
    sentence="Attention is near the diagonal in the first layers, spreads in the middle and contracts in the last.",
    rule="Relative entropy of the mean map, and attention of words to themselves, in thirds of the depth. Holds if "
    "entropy is higher and attention to itself lower in the middle third than in the first and in the last; in part if "
    "on one side. With random weights the thirds must differ by less than 0.02.",
    command=f"headspan intervene {{model}} --maps {FEW_SHOT} --target river --figures DIR",
    claims=("8.2b",),
)
def depth(at_hand: AtHand) -> Shown:
    """Entropy and the diagonal by thirds of the depth."""
    result, model = _changed(at_hand, reads)
    data = result.dataset()
    names = {"own": UNMODIFIED, "random": _setting(data, "random weights")}
    entropy = {key: _thirds(data[AVERAGED].sel(setting=name).values) for key, name in names.items()}
    own = {key: _thirds(data["layer_self_mass"].sel(setting=name).values) for key, name in names.items()}
    sides = [entropy["own"][1] > entropy["own"][side] and own["own"][1] < own["own"][side] for side in (0, 2)]
    quiet = float(np.ptp(entropy["random"])) < 0.02
    number = (
        f"Relative entropy in thirds of the depth {_listed(entropy['own'])} (random weights "
        f"{_listed(entropy['random'])}), attention to itself {_listed(own['own'])} (random weights "
        f"{_listed(own['random'])})."
    )
    outcome: Outcome = "does not hold" if not any(sides) or not quiet else "holds" if all(sides) else "holds in part"
    drawn = {name: figure for name, figure in result.figures.items() if name.startswith("Attention maps")}
    return Shown(outcome, number, model.source, drawn)


def _thirds(values: np.ndarray) -> list[float]:
    return [float(part.mean()) for part in np.array_split(values, 3)]


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _setting(data: xr.Dataset, start: str) -> str:
    return next(str(name) for name in data["setting"].values if str(name).startswith(start))


@EXHIBITS.add(
    "Shots in the maps",
    sentence="Words attend within their own shot and to the word that a clue belongs to, not across shots.",
    rule="Attention within shots against the same boundaries moved along the prompt. Holds if it is above in more than "
    "half of the heads (q < 0.05) and clues attend to their own word more than uniform attention would; in part if "
    "one or if some heads do. The untrained twin must have fewer than 5 % of such heads. (Own words were first "
    "compared with other words only, which nearness alone explains; changed after stories260K had been seen.)",
    command=f"headspan attention {{model}} {FEW_SHOT} --target river",
    claims=("8.2b",),
)
def shots(at_hand: AtHand) -> Shown:
    """Mass within shots, with its null, on the model and on its twin."""
    return _within(at_hand, ("Attention between shots", "Within shots"))


def _within(at_hand: AtHand, names: tuple[str, ...], **options: Any) -> Shown:
    result, model = _shots(at_hand, **options)
    data, twin = result.dataset(), _twin_shots(at_hand, **_lists(options))
    clear, other = (_share_above(one) for one in (data, twin))
    own, rest, uniform = (float(data[name].mean()) for name in ("own_word", "other_word", "own_word_null"))
    number = (
        f"{percent(clear)} of heads attend more within shots than within moved ones (q < 0.05; untrained twin "
        f"{percent(other)}): "
        f"mean {float(data['within'].mean()):.2f}, moved {float(data['within_null'].mean()):.2f}, across "
        f"{float(data['across'].mean()):.2f}. From clues to their word {own:.3f}, to each other word {rest:.3f} "
        f"(uniform {uniform:.3f})."
    )
    facts = (clear > 0.5, own > max(rest, uniform))
    outcome: Outcome = "holds" if all(facts) else "holds in part" if clear > 0.05 or facts[1] else "does not hold"
    if other >= 0.05:
        outcome = "does not hold"
    return Shown(outcome, number, model.source, {name: result.figures[name] for name in names})


def _lists(options: dict[str, Any]) -> dict[str, Any]:
    """Options as the measurement takes them: several targets as a list."""
    return {name: [value] if name == "targets" else value for name, value in options.items()}


def _share_above(data: xr.Dataset) -> float:
    p = data["within_p"].values.ravel()
    return float((q_values(p[np.isfinite(p)]) < 0.05).mean())


@EXHIBITS.add(
    "Figure 8.6",
    sentence="Attention has little to do with the cosine of the embeddings.",
    rule="Rank correlation of every head's attention with the cosine of embeddings beyond position (null: states moved "
    "along the sequence). Holds if the mean is within 0.1 of 0 and nine of ten heads are within 0.3; in part if the "
    "mean is. The share of heads with q < 0.05 is told beside it.",
    command="headspan attention {model} --permutations 199",
    claims=("8.3",),
)
def cosines(at_hand: AtHand) -> Shown:
    """Correlations of heads, beside those of the untrained twin."""
    result, model = _shots(at_hand, reads, permutations=199)
    rho, p = (result.dataset()[f"embedding_correlation{end}"].values for end in ("", "_p"))
    twin = _twin_shots(at_hand, reads, permutations=19)["embedding_correlation"].values.ravel()
    known = np.isfinite(rho)
    within, clear = np.mean(np.abs(rho[known]) < 0.3), np.mean(q_values(p[known]) < 0.05)
    number = (
        f"Mean rank correlation {np.nanmean(rho):+.3f} (untrained twin {np.nanmean(twin):+.3f}), {percent(within)} of "
        f"heads within 0.3; {percent(clear)} of heads have q < 0.05."
    )
    near = abs(float(np.nanmean(rho))) < 0.1
    outcome: Outcome = "holds" if near and within >= 0.9 else "holds in part" if near else "does not hold"
    drawn = {name: result.figures[name] for name in ("Cosines and attention by layer", "Attention beside cosines")}
    return Shown(outcome, number, model.source, drawn)


@EXHIBITS.add(
    "Figure 8.7",
    sentence="With random weights attention becomes uniform.",
    rule="Holds if the relative entropy of single heads is at least 0.95 on average; in part if only that of the mean.",
    command=f"headspan intervene {{model}} --randomize --maps {FEW_SHOT}",
    claims=("8.4",),
)
def randomized(at_hand: AtHand) -> Shown:
    """Entropy of heads and of their mean under random weights."""
    result, model = _changed(at_hand)
    data = result.dataset()
    own, random = (data.sel(setting=name) for name in (UNMODIFIED, _setting(data, "random weights")))
    heads, mean = float(random["mean_relative_entropy"]), float(random[f"mean_{AVERAGED}"])
    number = (
        f"Relative entropy of heads {heads:.3f} (unmodified {float(own['mean_relative_entropy']):.3f}, uniform 1), of "
        f"their mean {mean:.3f}. Written: {_quoted(random)}."
    )
    outcome: Outcome = "holds" if heads >= FLAT else "holds in part" if mean >= FLAT else "does not hold"
    return Shown(outcome, number, model.source, {"Entropy by layer": result.figures["Entropy by layer"]})


def _quoted(setting: xr.Dataset) -> str:
    return f"“{str(setting['continuation'].values).strip()[:60]}”"


@EXHIBITS.add(
    "Figure 8.8",
    sentence="With spectra scaled by 2, tokens attend mostly to themselves, and the text stays English.",
    rule="Holds if attention to itself rises at least half as much as attention to each row's largest entry; in part "
    "if only the latter rises. The text is shown and not judged.",
    command=f"headspan intervene {{model}} --scale-qk 2 --maps {FEW_SHOT}",
    claims=("8.5b", "8.5c", "8.5d"),
)
def sharpened(at_hand: AtHand) -> Shown:
    """Where attention goes when logits are multiplied by four."""
    result, model = _changed(at_hand)
    own, other = (result.dataset().sel(setting=name) for name in (UNMODIFIED, "alpha 2"))
    (to_itself, to_largest) = (float(other[name] - own[name]) for name in ("mean_self_mass", "mean_argmax_mass"))
    number = (
        f"Attention to the largest entry changes by {to_largest:+.2f}, to itself by {to_itself:+.2f}. Written: "
        f"{_quoted(other)}; unmodified: {_quoted(own)}."
    )
    outcome: Outcome = (
        "does not hold" if to_largest <= 0 else "holds" if to_itself > 0.5 * to_largest else "holds in part"
    )
    return Shown(outcome, number, model.source, _alpha(result))


def _alpha(result: Result) -> dict[str, go.Figure]:
    return {"Against alpha": result.figures["Against alpha"]}


@EXHIBITS.add(
    "Figure 8.9",
    sentence="With spectra scaled by 1/2 attention flattens, and the text loses its meaning.",
    rule="Holds if relative entropy rises towards 1 by at least half of the way; in part if it rises. The text is "
    "shown and not judged.",
    command=f"headspan intervene {{model}} --scale-qk 0.5 --maps {FEW_SHOT}",
    claims=("8.5b", "8.5d"),
)
def flattened(at_hand: AtHand) -> Shown:
    """Entropy when logits are divided by four."""
    result, model = _changed(at_hand)
    own, other = (result.dataset().sel(setting=name) for name in (UNMODIFIED, "alpha 0.5"))
    before, after = (float(one["mean_relative_entropy"]) for one in (own, other))
    texts = f"Written: {_quoted(other)}; unmodified: {_quoted(own)}."
    number = f"Relative entropy {before:.2f} to {after:.2f} (uniform 1). {texts}"
    outcome: Outcome = (
        "does not hold" if after <= before else "holds" if after - before >= (1 - before) / 2 else "holds in part"
    )
    return Shown(outcome, number, model.source, _alpha(result))


@EXHIBITS.add(
    "Tables 8.1 and A.1 to A.3",
    sentence="Clues get better with more shots.",
    rule="Log-likelihood per token of held-out clues of ours. Holds if it is higher after all shots than after none by "
    "two standard errors; in part if higher. Clues that the model writes are shown and not judged.",
    command=f"headspan attention {{model}} {FEW_SHOT} --shots 3 --targets river,mirror,clock --every-count",
)
def clues(at_hand: AtHand) -> Shown:
    """Clues written after 0 to 3 shots, and the likelihood of held-out ones."""
    result, model = _shots(at_hand, targets=",".join(TARGETS), every_count=True, length=16)
    data = result.dataset()
    value, error = (data[name].values for name in ("log_likelihood", "log_likelihood_se"))
    gain, spread = value[-1] - value[0], float(np.hypot(error[0], error[-1]))
    number = (
        f"Log-likelihood per token {value[0]:.2f} without shots, {value[-1]:.2f} after {len(value) - 1} (change "
        f"{gain:+.2f}, standard error {spread:.2f}; uniform guess {-np.log(model.running().n_tokens):.2f})."
    )
    outcome: Outcome = "does not hold" if gain <= 0 else "holds" if gain > 2 * spread else "holds in part"
    rows = [
        (str(word), *map(str, row))
        for word, row in zip(data["target_word"].values, data["clue_after"].values, strict=True)
    ]
    header = ("word", *(f"{int(count)} shots" for count in data["shots"].values))
    return Shown(outcome, number, model.source, {"Held-out clues": result.figures["Held-out clues"]}, [header, *rows])


@EXHIBITS.add(
    "Figures A.9 to A.18",
    sentence="The maps look the same for other words and for five shots.",
    rule="As for shots in the maps, with another word and five shots.",
    command=f"headspan attention {{model}} {FEW_SHOT} --shots 5 --target mirror --level word --figures DIR",
)
def other_words(at_hand: AtHand) -> Shown:
    """Five shots and another word."""
    return _within(at_hand, ("Attention in every layer", "Attention between shots"), shots=5, targets=TARGETS[1])


@EXHIBITS.add(
    "Figures A.19 to A.21",
    sentence="Training presses the spectra of queries and keys down to a tenth of their energy while the largest "
    "values grow; values keep their energy.",
    rule="Energy over that at initialization, mean over layers. Holds if it is below 0.5 for W_Q and W_K and between "
    "0.5 and 2 for W_V, and the largest value of W_Q and W_K is above the edge at initialization in most layers; in "
    "part if some of the four.",
    command="headspan spectra {model} --figures DIR",
    claims=("A.19",),
)
def learned_spectra(at_hand: AtHand) -> Shown:
    """Energies and largest values over those of random matrices."""
    model = at_hand.first("spectra")
    result = at_hand.result("spectra", model)
    nodes = {kind: result.dataset(kind) for kind in ("W_Q", "W_K", "W_V")}
    energy = {kind: float(node["energy_ratio"].mean()) for kind, node in nodes.items()}
    grown = {
        kind: float((node["singular_value"].isel(rank=0) > node["edge_init"]).mean()) for kind, node in nodes.items()
    }
    facts = [energy["W_Q"] < 0.5, energy["W_K"] < 0.5, 0.5 < energy["W_V"] < 2, min(grown["W_Q"], grown["W_K"]) > 0.5]
    told = ", ".join(f"{kind} {energy[kind]:.2f} ({percent(grown[kind])} of layers above the edge)" for kind in nodes)
    outcome: Outcome = "holds" if all(facts) else "holds in part" if any(facts) else "does not hold"
    number = f"Energy over that at initialization ({result.attrs['init']}): {told}."
    names = ("Squared singular values of all layers", "Spectra by layer")
    return Shown(outcome, number, model.source, {name: result.figures[name] for name in names})


@EXHIBITS.add(
    "Figure A.22",
    sentence="The trace of W_Q^T W_K is like that of independent random matrices in most layers.",
    rule="Holds if the z-score of a layer's trace is within 2 of 0 in at least half of the layers.",
    command="headspan spectra {model} --matrices W_Q,W_K,W_QK --figures DIR",
    claims=("A.22",),
)
def alignment(at_hand: AtHand) -> Shown:
    """Traces of whole layers, and of heads."""
    model = at_hand.first("spectra")
    result = at_hand.result("spectra", model)
    z = result.dataset("layer")["trace_z"].values
    heads = result.dataset("alignment")["trace_z"].sel(null="factors").values
    near = float(np.mean(np.abs(z) < 2))
    number = (
        f"{percent(near)} of layers have |z| < 2 (95 % expected), from {np.nanmin(z):+.1f} to {np.nanmax(z):+.1f}; "
        f"{percent(np.mean(np.abs(heads[np.isfinite(heads)]) < 2))} of heads."
    )
    drawn = {name: result.figures[name] for name in ("Base alignment", "Symmetric part of W_QK")}
    return Shown("holds" if near >= 0.5 else "does not hold", number, model.source, drawn)
