"""A message between two heads is what the source wrote, and taking it from one reader leaves the others alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headspan.dims import HeadLabel, Role
from headspan.errors import UnsupportedModel
from headspan.lenses.validate.cause import causal_effects, rankings
from headspan.lenses.validate.selection import Pair
from headspan.runtime import Forward, RunnableModel, forward, open_runnable
from headspan.runtime.interventions import Edits, head_space, intervened
from headspan.runtime.interventions.edits import head_slice, head_weight
from headspan.runtime.interventions.messages import (
    NormedStream,
    WithoutMessage,
    arriving_message,
    control_part,
    readable_part,
)
from headspan.subspaces import orthonormal_basis
from tests.families.tiny_models import CASES, TOKENS, Case
from tests.runtime.test_forward import runnable

BY_NAME = {case.name: case for case in CASES}
SEPARATE = ["gpt2", "llama", "falcon-new-grouped", "gpt_neox", "qwen3", "gemma", "opt", "phi", "starcoder2"]
SOURCE = HeadLabel(0, 1)


def target_of(model: RunnableModel, role: Role) -> HeadLabel:
    return HeadLabel(1, 1, kv=role != "Q" and model.stack.n_kv_heads < model.n_heads)


@pytest.fixture(scope="module", params=SEPARATE)
def run(request: pytest.FixtureRequest) -> Forward:
    return forward(runnable(BY_NAME[request.param]), TOKENS)


@pytest.mark.parametrize("role", ["Q", "K", "V"])
def test_without_the_message_a_target_reads_as_if_the_source_had_written_nothing(run: Forward, role: Role) -> None:
    model, target = run.model, target_of(run.model, role)
    stream = NormedStream.of(run, 1)
    message = arriving_message(run, stream, SOURCE)
    part = readable_part(message, head_space(model, target, role))
    seen: list[torch.Tensor] = []
    with intervened(model, WithoutMessage(target, role, part)):
        hook = model.linear(role, 1).register_forward_hook(lambda module, args, result: seen.append(result))
        forward(model, TOKENS)
        hook.remove()
    # The definition: the norm at its old scale, of a stream that the source never wrote to.
    norm = model.heads().norm(1)
    state = run.states[:, 1].double() - run.head_writes(0)[:, :, 1].double()
    centred = state - state.mean(-1, keepdim=True) if norm.kind == "layernorm" else state
    read = norm.gain * centred * stream.inverse_sigma + (0 if norm.bias is None else norm.bias)
    rows = model.stack.projections[role].rows
    expected = model.linear(role, 1)(read)
    ours, theirs = (head_slice(each, rows, target.head) for each in (seen[0], expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    others = [head for head in range(rows.n_heads) if head != target.head]
    plain = model.linear(role, 1)(run.runs[1].read)
    for head in others:
        torch.testing.assert_close(head_slice(seen[0], rows, head), head_slice(plain, rows, head))


def test_only_the_targets_pattern_changes_in_its_layer(run: Forward) -> None:
    model, target = run.model, target_of(run.model, "K")
    message = arriving_message(run, NormedStream.of(run, 1), SOURCE)
    part = readable_part(message, head_space(model, target, "K"))
    with intervened(model, WithoutMessage(target, "K", part)):
        changed = forward(model, TOKENS)
    group = model.n_heads // model.stack.n_kv_heads if target.kv else 1
    own = set(range(target.head * group, (target.head + 1) * group))
    difference = (changed.runs[1].pattern - run.runs[1].pattern).abs().amax((0, 2, 3))
    for head in range(model.n_heads):
        assert (float(difference[head]) > 1e-8) == (head in own), head
    torch.testing.assert_close(changed.runs[0].pattern, run.runs[0].pattern)


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.99, 1.0])
def test_a_control_takes_exactly_the_energy_it_is_told_to(run: Forward, share: float) -> None:
    stream = NormedStream.of(run, 1)
    message, space = arriving_message(run, stream, SOURCE), stream.write_space(run.model, SOURCE)
    torch.testing.assert_close(readable_part(message, space), message)
    total = float(message.square().sum())
    part = control_part(message, space, share * total, torch.Generator().manual_seed(0))
    assert float(part.square().sum()) == pytest.approx(share * total, rel=1e-9, abs=1e-12)
    if share == 1.0:
        torch.testing.assert_close(part, message)
    rest = message - part
    assert float((part * rest).sum()) >= -1e-9


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert", "reads no norm"),
        ("gemma2", "norms what all heads"),
        ("deepseek_v2", "latent spaces"),
        ("olmo2", "reads no norm|norms what all heads"),
    ],
)
def test_where_messages_are_not_defined_that_is_said(name: str, words: str) -> None:
    run = forward(runnable(BY_NAME[name]), TOKENS)
    with pytest.raises(UnsupportedModel, match=words):
        NormedStream.of(run, 1)


WIDE: Case = Case(
    "planted",
    "llama",
    {
        **BY_NAME["llama"].settings,
        "hidden_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
)
TARGET = HeadLabel(1, 2)


def planted(angles: list[float]) -> RunnableModel:
    """Layer 0 writes at given angles to what L1H2 reads through K; nobody else in layer 1 reads what it writes.

    All heads of layer 0 are alike but for W_O, so that their messages differ in direction only.
    """
    model = runnable(WIDE)
    generator = torch.Generator().manual_seed(4)
    E = torch.linalg.qr(torch.randn(48, 48, generator=generator, dtype=torch.float64)).Q
    read, unread, others = E[:, :12], E[:, 12:24], E[:, 24:]
    edits = Edits(model)
    with torch.no_grad():
        for layer in (0, 1):
            model.submodule(f"layers.{layer}.input_layernorm").get_parameter("weight").fill_(1.0)
        mixing = torch.randn(12, 12, generator=generator, dtype=torch.float64)
        for head, angle in enumerate(angles):
            for role in ("Q", "K", "V"):
                head_weight(edits, role, 0, head).copy_(head_weight(edits, role, 0, 0))
            cosine, sine = np.cos(angle), np.sin(angle)
            head_weight(edits, "O", 0, head).copy_(mixing @ (cosine * read + sine * unread).mT)
            for role in ("Q", "K", "V"):
                W = head_weight(edits, role, 1, head)
                inside = read if (role, head) == ("K", TARGET.head) else others
                W.copy_(inside @ torch.randn(inside.shape[1], 12, generator=generator, dtype=torch.float64))
    return open_runnable(model.module, dtype="float64")


def effects_of(model: RunnableModel, pairs: list[Pair]) -> dict[str, dict[str, float]]:
    table = causal_effects(forward(model, TOKENS), pairs, 3, 0, lambda name: None)
    rows: dict[str, dict[str, float]] = {f"{row['src']}-{row['dst']}": row for row in table.to_dict("records")}
    return rows


def key_pair(source: int, target: int, kernel: float) -> Pair:
    return Pair("OK", HeadLabel(0, source), HeadLabel(1, target), "K", "strong", True, (kernel, kernel))


def test_a_planted_pair_is_the_only_one_with_an_effect() -> None:
    model = planted([np.pi / 2, 0.0, np.pi / 2, np.pi / 2])
    rows = effects_of(model, [key_pair(source, target, 0.0) for source in range(4) for target in range(4)])
    own = rows["L0H1-L1H2"]
    assert own["removed_share"] == pytest.approx(1.0)
    assert own["pattern_change"] > 1e-3
    # It is read whole, so a control of the same energy removes the same.
    assert own["pattern_control"] == pytest.approx(own["pattern_change"], rel=1e-6)
    for name, row in rows.items():
        if name != "L0H1-L1H2":
            assert row["removed_share"] == pytest.approx(0.0, abs=1e-12), name
            assert row["pattern_change"] == pytest.approx(0.0, abs=1e-12), name
            assert row["loss_change"] == pytest.approx(0.0, abs=1e-9), name


def test_effects_follow_the_angle_between_what_is_written_and_what_is_read() -> None:
    angles = [0.2, 0.6, 1.0, 1.4]
    model = planted(angles)
    read = orthonormal_basis(head_weight(Edits(model), "K", 1, 2).clone()).basis
    kernels = [
        float((read.mT @ orthonormal_basis(head_weight(Edits(model), "O", 0, head).mT.clone()).basis).square().sum())
        for head in range(4)
    ]
    assert kernels == pytest.approx([12 * np.cos(angle) ** 2 for angle in angles])
    rows = effects_of(model, [key_pair(head, 2, kernels[head]) for head in range(4)])
    changes = [rows[f"L0H{head}-L1H2"]["pattern_change"] for head in range(4)]
    assert changes == sorted(changes, reverse=True)
    shares = [rows[f"L0H{head}-L1H2"]["removed_share"] for head in range(4)]
    assert shares == pytest.approx([np.cos(angle) ** 2 for angle in angles])
    # Where little is read, as much taken at random does far less: little of it would have been read.
    row = rows["L0H3-L1H2"]
    assert 0 < row["pattern_control"] < row["pattern_change"] / 4
    table = causal_effects(
        forward(model, TOKENS), [key_pair(head, 2, kernels[head]) for head in (0, 1, 2, 3, 3)], 1, 0, lambda name: None
    )
    found = rankings(table, 200, 0).set_index(["sample", "score", "outcome"])["spearman"]
    assert found["random", "projection_kernel", "pattern_change"] == pytest.approx(1.0)
