"""What the thesis saw in Mistral-7B (7.2.2, chapter 8, appendix A), tried on that model where it is given.

Claims about attention at work can also be tried on stories260K, a far smaller model of the same build, which stands in
for it; without either, only baselines are tried.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headspan.distributions import attention_pattern
from headspan.ledger.claim import check
from headspan.ledger.running import cosine_correlations, few_shot_maps, written_likelihoods
from headspan.ledger.trial import Draws, Evidence, Trial, at_least, at_most, equals, evidence, same
from headspan.statistics import mp_quantile
from headspan.subspaces import singular_values

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


@check("8.1")
def configuration(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    stack, config = checkpoint.stack().stack, checkpoint.config
    return evidence(
        equals("blocks", stack.n_layers, 32, 0),
        equals("heads", stack.n_heads, 32, 0),
        equals("tokens", float(config.get("vocab_size") or 0), 32000, 0),
        equals("width", stack.d_model, 4096, 0),
        equals("kv heads", stack.n_kv_heads, 8, 0),
        equals("sliding window, tokens (0 for none)", float(config.get("sliding_window") or 0), 0, 0),
        equals("a gated MLP", stack.mlp is not None and len(stack.mlp.reads) > 1, 1, 0),
        equals("SiLU as its activation", config.get("hidden_act") in ("silu", None), 1, 0),
        equals("norms with a bias, as LayerNorm has", bool(stack.norm.bias), 0, 0),
    )


@check("A.20-A.21")
def matrix_shapes(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    stack = checkpoint.stack().stack
    queries, keys = stack.n_heads * stack.d_head, stack.n_kv_heads * stack.d_head
    mlp = stack.mlp.width if stack.mlp is not None else 0
    return evidence(
        equals("rows of W_Q", queries, 4096, 0),
        equals("rows of W_K and W_V", keys, 1024, 0),
        equals("width of the MLP", mlp, 14336, 0),
        printed=[equals("rows of W_Q", queries, 1024, 0), equals("width of the MLP", mlp, 14096, 0)],
    )


def _whole(checkpoint: Checkpoint, layer: int) -> dict[str, Tensor]:
    """W_Q, W_K and W_V of a layer, all heads side by side, [d_model, heads d_head] in double precision."""
    block = checkpoint.heads(layers=[layer])
    stacks = {"Q": block.W_Q, "K": block.W_K, "V": block.W_V}
    return {role: W[0].double().transpose(0, 1).flatten(1) for role, W in stacks.items()}


@check("7.2.2a")
def trained_spectra(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    n_layers, n = checkpoint.stack().stack.n_layers, checkpoint.heads().d_model
    chosen = range(0, n_layers, max(1, n_layers // 4))
    spectra: dict[str, list[Tensor]] = {"Q": [], "K": [], "V": []}
    for layer in chosen:
        for role, W in _whole(checkpoint, layer).items():
            spectra[role].append(singular_values(W))
    ranges = {"Q": (0.05, 0.1, 3.0, 4.0), "K": (0.05, 0.1, 3.0, 4.0), "V": (0.9, 1.2, 2.0, 3.0)}
    trials: list[Trial] = []
    figures = {"layers decomposed": float(len(chosen))}
    for role, (low, high, least, most) in ranges.items():
        values = torch.stack(spectra[role])
        readings = [float(values.square().sum(-1).mean()) / size for size in {n, values.shape[-1]}]
        share = min(readings, key=lambda x: abs(math.log(x / math.sqrt(low * high))))
        random = mp_quantile(torch.tensor(0.9, dtype=torch.float64), n, values.shape[-1], 1 / math.sqrt(n))
        decile = torch.quantile(values, 0.9, dim=-1).mean() / random
        trials += _between(f"sum s^2 / n of W_{role}", share, low, high)
        trials += _between(f"largest s of W_{role}", float(values[:, 0].mean()), least, most)
        figures[f"ninth decile of W_{role} over that of random entries"] = float(decile)
        if role != "Q":  # of a square matrix the sum would then be a quarter of n or more: both cannot be
            trials.append(at_least(f"ninth decile of W_{role}", decile, 1.0))
    return evidence(*trials, figures=figures)


def _between(name: str, value: float, low: float, high: float) -> list[Trial]:
    return [at_least(name, value, low), at_most(name, value, high)]


@check("A.22")
def base_alignment(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    stack = checkpoint.stack().stack
    group = stack.n_heads // stack.n_kv_heads
    traces, deviations = [], []
    for layer in range(stack.n_layers):
        heads = checkpoint.heads(layers=[layer])
        W_Q, W_K = heads.W_Q[0].double(), heads.W_K[0].double().repeat_interleave(group, 0)
        traces.append(float((W_Q * W_K).sum()))
        # Under Haar rotations of both sides of either matrix.
        size = torch.linalg.vector_norm(W_Q) * torch.linalg.vector_norm(W_K)
        deviations.append(float(size) / math.sqrt(W_Q.numel()))
    inside = np.abs(traces) <= 2
    return evidence(
        at_least("share of layers with a trace within 2 of 0", inside.mean(), 0.5),
        figures={"largest trace, in size": np.abs(traces).max(), "mean deviation under rotations": np.mean(deviations)},
    )


@check("8.2b")
def course_of_maps(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    if checkpoint is None:
        return _causal_baseline(draws)
    maps = few_shot_maps(checkpoint)
    middle = slice(len(maps["spread"]) // 4, -(len(maps["spread"]) // 4) or None)
    spread, diagonal = maps["spread"], maps["diagonal"]
    return evidence(
        at_least("share of scores up to 0.1, least over layers", maps["low"].min(), 0.99),
        at_least("attention within a shot beyond moved boundaries, mean", maps["within"].mean(), 0.0),
        at_least("attention to oneself, first layer less the middle", diagonal[0] - diagonal[middle].mean(), 0.0),
        at_least("relative entropy, the middle less the last layer", spread[middle].mean() - spread[-1], 0.0),
        figures={"largest score": maps["top"].max()},
    )


def _causal_baseline(draws: Draws) -> Evidence:
    """The first row of a causal head, and rows of uniform attention."""
    zero, n = torch.zeros(4, 4, dtype=torch.float64), 12
    flat = attention_pattern(draws.normal(n, 4), zero, zero, causal=True)
    some = attention_pattern(draws.normal(n, 4), draws.normal(4, 4), draws.normal(4, 4), causal=True)
    uniform = torch.ones(n, n, dtype=torch.float64).tril() / torch.arange(1, n + 1).double()[:, None]
    return evidence(
        same("uniform attention", flat, uniform, 1e-12), equals("first row of any head", some[0, 0], 1.0, 1e-12)
    )


@check("8.3")
def cosine_and_attention(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    untied, tied = _random_correlations(draws)
    baseline = (
        at_most("mean correlation of untied random weights, in size", untied.mean().abs(), 0.1),
        at_least("mean correlation of tied random weights", tied.mean(), 0.8),
    )
    if checkpoint is None:
        return evidence(*baseline, figures={"standard deviation, untied": untied.std()})
    found = cosine_correlations(checkpoint)
    return evidence(
        at_most("mean correlation over heads, in size", abs(found.mean()), 0.1),
        at_most("nine of ten heads, in size", np.quantile(np.abs(found), 0.9), 0.3),
        *baseline,
        figures={"lowest": found.min(), "highest": found.max()},
    )


def _random_correlations(draws: Draws) -> tuple[Tensor, Tensor]:
    """Correlation of logits with cosines in 200 draws of random weights: W_Q and W_K independent, and equal."""
    n, d, rank, runs = 24, 64, 8, 200
    x = torch.nn.functional.normalize(draws.normal(runs, n, rank) @ draws.normal(runs, rank, d), dim=-1) * math.sqrt(d)
    queries, keys = (x @ draws.normal(runs, d, d, sd=1 / math.sqrt(d)) for _ in range(2))
    off = ~torch.eye(n, dtype=torch.bool)
    cosines = (x @ x.mT / d)[:, off]

    def correlation(logits: Tensor) -> Tensor:
        pairs = torch.stack([cosines, logits[:, off]], 1)
        pairs = pairs - pairs.mean(-1, keepdim=True)
        pairs = pairs / pairs.norm(dim=-1, keepdim=True)
        products: Tensor = pairs[:, 0] * pairs[:, 1]
        return products.sum(-1)

    return correlation(queries @ keys.mT), correlation(queries @ queries.mT)


@check("8.5d")
def written_text(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found = written_likelihoods(checkpoint)
    return evidence(
        at_least(
            "likelihood of what is written at alpha = 2, less that at 1/2", found["alpha 2"] - found["alpha 0.5"], 0.0
        ),
        at_most("likelihood at alpha = 1/2 less the unmodified", found["alpha 0.5"] - found["unmodified"], 0.0),
        figures=found,
    )
