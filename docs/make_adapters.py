"""Adapters trained on a real model beside two controls: what `headspan compare` says of where their changes land.

    python -m docs.make_adapters MODEL [SEEDS]

Of every seed a LoRA adapter of rank 4 on Q, K, V and O, trained to predict the second half of repeated random tokens;
one trained as long on sequences whose second half is unrelated to the first; and a random adapter of that rank whose
change has the same norm in every matrix as the first. Printed are means over seeds with the range.
"""

from __future__ import annotations

import copy
import sys

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.func import functional_call

import headspan

RANK, STEPS, RATE, BATCH, HALF = 4, 400, 1e-2, 16, 24
KINDS = ("trained to copy", "trained, nothing to copy", "random")
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj")
Changes = dict[str, Tensor]


def tokens_of(model: torch.nn.Module, generator: torch.Generator, copied: bool) -> Tensor:
    """Two equal halves of random tokens, or two unrelated ones."""
    halves = torch.randint(3, model.config.vocab_size, (2, BATCH, HALF), generator=generator)
    return torch.cat([halves[0], halves[0] if copied else halves[1]], dim=1)


def second_half_loss(model: torch.nn.Module, parameters: dict[str, Tensor], tokens: Tensor) -> Tensor:
    logits = functional_call(model, parameters, (tokens,)).logits[:, HALF - 1 : -1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, HALF:].flatten())


def trained(model: torch.nn.Module, seed: int, copied: bool) -> Changes:
    """The change of every attention matrix after training its low-rank factors."""
    generator = torch.Generator().manual_seed(seed)
    frozen = {name: each.detach() for name, each in model.named_parameters()}
    factors = {
        name: (
            torch.zeros(len(W), RANK).requires_grad_(),
            (torch.randn(RANK, W.shape[1], generator=generator) * W.shape[1] ** -0.5).requires_grad_(),
        )
        for name, W in frozen.items()
        if name.split(".")[-2] in MATRICES
    }
    optimizer = torch.optim.AdamW([leaf for pair in factors.values() for leaf in pair], lr=RATE, weight_decay=0.0)
    for _ in range(STEPS):
        changed = {name: frozen[name] + B @ A for name, (B, A) in factors.items()}
        loss = second_half_loss(model, frozen | changed, tokens_of(model, generator, copied))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: (B @ A).detach() for name, (B, A) in factors.items()}


def random_like(changes: Changes, seed: int) -> Changes:
    """A random change of the same rank and norm for every matrix."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    found = {}
    for name, change in changes.items():
        drawn = torch.randn(len(change), RANK, generator=generator) @ torch.randn(
            RANK, change.shape[1], generator=generator
        )
        found[name] = drawn * change.norm() / drawn.norm()
    return found


@torch.no_grad()
def numbers(model: torch.nn.Module, changes: Changes) -> dict[str, float]:
    """Loss of repeated tokens, and what compare says of the change."""
    merged = copy.deepcopy(model)
    for name, change in changes.items():
        merged.get_parameter(name).add_(change)
    tokens = tokens_of(model, torch.Generator().manual_seed(99), copied=True)
    found = {"loss": float(second_half_loss(merged, dict(merged.named_parameters()), tokens))}
    result = headspan.compare(model, merged, progress=False)
    for pairing in ("OQ", "OK", "OV"):
        node = result[f"wiring/{pairing}"]
        for share in ("read_share", "write_share"):
            what = f"{pairing} {share.removesuffix('_share')}"
            found |= {
                what: float(node[f"{share}_mean"]),
                f"{what}, reverse order": float(node[f"{share}_reverse"]),
                f"{what}, p of the order": float(node[f"{share}_order_p"]),
                f"{what}, pairs with q < 0.05": float((node[f"{share}_q"] < 0.05).sum()),
            }
    changed = result.table("changes")
    found |= {"rank": float(changed["change_rank"].median()), "intruders": float(changed["n_intruders"].sum())}
    return found


def main(path: str, seeds: int = 4) -> None:
    """Print every number of every kind of adapter."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for seed in range(seeds):
        own = trained(model, seed, copied=True)
        for kind, changes in zip(KINDS, (own, trained(model, seed, copied=False), random_like(own, seed)), strict=True):
            rows[kind].append(numbers(model, changes))
            sys.stdout.write(
                f"{seed} {kind} " + str({name: round(value, 4) for name, value in rows[kind][-1].items()}) + "\n"
            )
    for name in rows[KINDS[0]][0]:
        told = [np.array([row[name] for row in rows[kind]]) for kind in KINDS]
        cells = [f"{each.mean():.3g} ({each.min():.3g} to {each.max():.3g})" for each in told]
        sys.stdout.write(" | ".join([name, *cells]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
