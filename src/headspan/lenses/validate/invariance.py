"""Is a head blind to the null space of its queries and keys, in the running model?

To what a head's W_Q reads at every position, add a random vector as long as what is there: once from the null space of
W_Q^T (the complement of its column span), once from its span. The same for W_K. The rest of the layer keeps its input.
Compared are the scores that enter the softmax, ||change|| / ||scores|| over the pairs that the mask allows:

- null space: 0 to rounding, by algebra; read space: of order 1.
- One vector common to all keys shifts all scores of a row alike, q_i (w W_K), so that nothing shows after the softmax,
  unless positions turn the keys or a norm follows, and the common vector is no longer common.

Do heads whose attention spaces lie close attend alike? Rank correlation over the pairs of heads of a layer.

1. Behavior: the Jensen-Shannon divergence of two heads' attention rows, averaged over queries and token buffers.
2. Geometry: the Grassmann distance of their attention spaces R_Q + R_K, as the similarity lens measures it.
3. Spearman's correlation of the two over all pairs, with Mantel's test (`headspan.statistics.permutation`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError
from headspan.heads import Heads
from headspan.lenses.similarity import similarity
from headspan.runtime import Forward, RunnableModel, forward
from headspan.runtime.budget import memory_left
from headspan.runtime.forward_pass import AttentionRun, full_logs, js_rows
from headspan.runtime.interventions import Edits, head_space
from headspan.runtime.interventions.edits import head_slice
from headspan.runtime.replay import Replay

Array = npt.NDArray[np.float64]
Part = Literal["null", "read", "common"]
CONDITIONS: tuple[tuple[str, Literal["Q", "K"], Part], ...] = (
    ("query_null", "Q", "null"),
    ("query_read", "Q", "read"),
    ("key_null", "K", "null"),
    ("key_read", "K", "read"),
    ("key_common", "K", "common"),
)


def invariances(
    model: RunnableModel, tokens: Int[Tensor, "batch position"], seed: int, progress: Callable[[str], None]
) -> dict[str, Array]:
    """Relative change of every head's scores under each of CONDITIONS, and `key_common_softmax`: [layer, head].

    `_null` are rounding errors; `_read` are of order 1; `key_common_softmax`, the largest change of any attention
    probability under a common shift of the keys, in [0, 1], is rounding where positions do not turn keys.
    """
    plain = forward(model, tokens)
    replay = Replay.of(plain)
    found = {name: np.full((len(model.layers), model.n_heads), np.nan) for name, _, _ in CONDITIONS}
    found["key_common_softmax"] = found["key_null"].copy()
    generator = torch.Generator().manual_seed(seed)
    for place, layer in enumerate(model.layers):
        progress(f"null spaces of layer {layer}")
        for name, role, part in CONDITIONS:
            added = _added(plain, place, role, part, generator)
            run = _run_with(replay, role, layer, added)
            found[name][place] = _relative_change(run, plain.runs[place]).numpy()
            if part == "common":
                change = (run.pattern - plain.runs[place].pattern).abs().amax((0, 2, 3))
                found["key_common_softmax"][place] = change.double().cpu().numpy()
    return found


def _added(
    plain: Forward, place: int, role: Literal["Q", "K"], part: Part, generator: torch.Generator
) -> list[Float[Tensor, "batch position d_model"]]:
    """For every head of a role, what is added to its input."""
    model, read = plain.model, plain.runs[place].read.double().cpu()
    rows, added = model.stack.projections[role].rows, []
    kv = role == "K" and model.stack.n_kv_heads < model.n_heads
    for head in range(rows.n_heads):
        U = head_space(model, HeadLabel(model.layers[place], head, kv), role).basis.cpu()
        noise = torch.randn(read.shape, generator=generator, dtype=torch.float64)
        length = read.norm(dim=-1, keepdim=True)
        if part == "common":
            noise, length = noise[:1, :1].expand_as(noise), length.mean()
        inside = (noise @ U) @ U.mT
        kept = noise - inside if part == "null" else inside
        added.append(kept / kept.norm(dim=-1, keepdim=True).clamp(min=1e-300) * length)
    return added


def _run_with(replay: Replay, role: Literal["Q", "K"], layer: int, added: list[Tensor]) -> AttentionRun:
    """The attention of a layer, every head of a role reading its input plus what is added for it."""
    model = replay.plain.model
    rows, linear = model.stack.projections[role].rows, model.linear(role, layer)

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        changed = output.clone()
        for head, more in enumerate(added):
            # `forward` itself: calling the module would call this hook again.
            again = module.forward(args[0] + more.to(args[0]))
            head_slice(changed, rows, head).copy_(head_slice(again, rows, head))
        return changed

    edits = Edits(model)
    try:
        edits.hooked(linear.register_forward_hook(hook))
        return replay.run(layer, to_the_end=False)[0]
    finally:
        edits.undo()


def _relative_change(run: AttentionRun, plain: AttentionRun) -> Float[Tensor, " head"]:
    allowed = ~torch.isneginf(full_logs(plain))
    after, before = (torch.where(allowed, _scores(each), 0.0) for each in (run, plain))
    sizes = [value.transpose(0, 1).flatten(1).norm(dim=1) for value in (after - before, before)]
    ratio: Tensor = sizes[0] / sizes[1]
    return ratio.cpu()


def _scores(run: AttentionRun) -> Float[Tensor, "batch head query key"]:
    if run.scores is None:
        raise ArgumentError("invariances need runs that kept their scores")
    return run.scores.double()


def pattern_divergences(run: Forward, place: int) -> Float[Tensor, "head head"]:
    """Jensen-Shannon divergence of every two heads of a layer, in nats, averaged over queries: in [0, log 2]."""
    first = 1 if run.model.causal else 0
    logs = full_logs(run.runs[place])[:, :, first:]
    n = logs.shape[1]
    found = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n - 1):
        others = logs[:, i + 1 :]
        rest = js_rows(logs[:, i : i + 1].expand_as(others), others).mean((0, 2)).cpu()
        found[i, i + 1 :] = found[i + 1 :, i] = rest
    return found


def space_distances(heads: Heads) -> list[Array]:
    """Grassmann distance of the attention spaces of every two heads, layer by layer."""
    found = similarity(heads, distance="grassmann", across_layers=False, maps=False, memory=memory_left("4GB")).grid()[
        "layer_distance"
    ]
    return list(found.transpose("layer", "head", "peer").values)
