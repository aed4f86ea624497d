"""Interventions do what they say in every family, and leave no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headspan.dims import KV_ROLES, HeadLabel, Role
from headspan.runtime import RunnableModel, forward
from headspan.runtime.forward_pass import output_matrices
from headspan.runtime.interventions import (
    AblatedHeads,
    HeadSpectra,
    Intervention,
    Reinitialized,
    ScaledLogits,
    SwappedHeads,
    WithoutSubspace,
    head_space,
    intervened,
    mean_values,
)
from headspan.subspaces import random_subspaces
from tests.families.tiny_models import CASES, TOKENS, Case
from tests.runtime.test_forward import RUN, runnable

BY_NAME = {case.name: case for case in CASES}
LAYOUTS = ["gpt2", "gpt_bigcode", "gptj", "codegen", "gpt_neox", "bloom", "falcon-new-grouped", "mpt", "opt", "phi3"]
LAYOUTS += ["llama-with-bias-and-wide-heads", "qwen3", "distilbert", "albert", "modernbert", "deberta-v2"]
PLAIN = [case for case in RUN if case.name in LAYOUTS]
ALPHA = 1.5

# A cap or a clip stands between the scaled products and the softmax; relative positions and sinks are not products.
EXACT = [
    case
    for case in RUN
    if not {"attn_logit_softcapping", "clip_qkv", "attn_config", "relative_attention"} & set(case.settings)
    and case.model_type not in ("bloom", "mpt", "mpnet", "gpt_oss")
    and not case.settings.get("alibi")
]
SHAPES = ["gpt2", "llama", "falcon-new-grouped", "bert", "qwen3", "olmo2", "gpt_neox"]


KINDS = [
    "scaled",
    "truncated",
    "flattened",
    "given",
    "random bases",
    "random weights",
    "random attention",
    "without subspace",
    "zero",
    "mean",
    "swapped",
]


def bits(model: RunnableModel) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.module.state_dict().items()}


@pytest.fixture(scope="module", params=SHAPES)
def model(request: pytest.FixtureRequest) -> Iterator[RunnableModel]:
    found = runnable(BY_NAME[request.param])
    before = bits(found)
    yield found
    assert bits(found) == before


def everything(model: RunnableModel) -> dict[str, Callable[[], Intervention]]:
    """Every kind of intervention, on this model."""
    spectra = HeadSpectra.of(model, ("Q", "K", "V", "O"))
    first, last = (str(HeadLabel(layer, 0)) for layer in (model.layers[0], model.layers[-1]))
    return {
        "scaled": lambda: ScaledLogits(ALPHA),
        "truncated": lambda: spectra.truncated(2),
        "flattened": spectra.flattened,
        "given": lambda: spectra.with_values(lambda S: S.flip(-1)),
        "random bases": lambda: spectra.with_random_bases(0),
        "random weights": lambda: Reinitialized(1),
        "random attention": lambda: Reinitialized(1, attention_only=True),
        "without subspace": lambda: WithoutSubspace(last, "Q", head_space(model, first, "O")),
        "zero": lambda: AblatedHeads((first, last)),
        "mean": lambda: AblatedHeads((first,), mean_values(model, TOKENS)),
        "swapped": lambda: SwappedHeads(first, last),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_intervention_changes_the_model_and_is_undone_bit_for_bit(model: RunnableModel, kind: str) -> None:
    before, plain = bits(model), forward(model, TOKENS)
    with intervened(model, everything(model)[kind]()):
        changed = forward(model, TOKENS)
        assert not torch.allclose(changed.final, plain.final, atol=1e-6)
    assert bits(model) == before
    assert torch.equal(forward(model, TOKENS).final, plain.final)


def hooks(model: RunnableModel) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.module.modules())


class Interruption(Exception):
    pass


@settings(max_examples=20)
@given(kinds=st.lists(st.sampled_from(range(11)), min_size=1, max_size=4), depth=st.integers(0, 4), data=st.data())
def test_nested_interventions_are_undone_after_an_exception_anywhere(
    kinds: list[int], depth: int, data: st.DataObject
) -> None:
    model = runnable_gpt2()
    before, hooked, made = bits(model), hooks(model), list(everything(model).values())
    failing = data.draw(st.booleans())

    def nested(rest: list[int], level: int) -> None:
        if level == depth:
            raise Interruption
        if rest:
            broken: tuple[Intervention, ...] = (Broken(),) if failing and len(rest) == 1 else ()
            with intervened(model, made[rest[0]](), *broken):
                nested(rest[1:], level + 1)

    with contextlib.suppress(Interruption, ZeroDivisionError):
        nested(kinds, 0)
    assert bits(model) == before
    assert hooks(model) == hooked


class Broken:
    """Changes something and then fails."""

    name = "broken"

    def apply(self, edits: object) -> None:
        ScaledLogits(3.0).apply(edits)  # type: ignore[arg-type]
        raise ZeroDivisionError

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        return ()


GPT2: list[RunnableModel] = []


def runnable_gpt2() -> RunnableModel:
    if not GPT2:
        GPT2.append(runnable(BY_NAME["gpt2"]))
        # The first run leaves hooks of transformers' own behind.
        forward(GPT2[0], TOKENS)
    return GPT2[0]


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case.name)
def test_scaling_by_alpha_multiplies_the_logits_by_alpha_squared(case: Case) -> None:
    model = runnable(case)
    plain = forward(model, TOKENS).runs[0].scores
    with intervened(model, ScaledLogits(ALPHA)) as notes:
        scaled = forward(model, TOKENS).runs[0].scores
    allowed = plain > -1e3
    torch.testing.assert_close(scaled[allowed], ALPHA**2 * plain[allowed], rtol=1e-5, atol=1e-6)
    assert any("norms were scaled" in note for note in notes) == (model.stack.query_norm is not None)


@pytest.mark.parametrize("name", ["gpt2", "llama", "olmo2", "falcon-new-grouped", "deepseek_v2"])
def test_one_head_can_be_scaled_alone(name: str) -> None:
    model = runnable(BY_NAME[name])
    plain = forward(model, TOKENS).runs[0].scores
    with intervened(model, ScaledLogits(ALPHA, ("L0H1",))):
        scaled = forward(model, TOKENS).runs[0].scores
    factor = torch.ones(model.n_heads, 1, 1, dtype=plain.dtype)
    factor[1] = ALPHA**2
    allowed = plain > -1e3
    torch.testing.assert_close(scaled[allowed], (factor * plain)[allowed], rtol=1e-5, atol=1e-6)


def stored_matrices(model: RunnableModel, role: Role, layer: int) -> torch.Tensor:
    """Heads of the running model through the views of the library, not those of interventions."""
    from headspan.heads.block import head_weights

    projection = model.stack.projections[role]
    weight = model.linear(role, layer).get_parameter("weight")
    return head_weights(weight[None], projection.rows, projection.linear.stored, role)[0].clone()


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_spectral_changes_keep_what_they_promise(case: Case) -> None:
    model = runnable(case)
    spectra = HeadSpectra.of(model, ("Q", "K", "V", "O"))
    for role in ("Q", "K", "V", "O"):
        before = stored_matrices(model, role, 0)
        U, S, Vh = torch.linalg.svd(before, full_matrices=False)
        with intervened(model, spectra.truncated(2)):
            expected = (U[..., :2] * S[:, None, :2]) @ Vh[:, :2]
            torch.testing.assert_close(stored_matrices(model, role, 0), expected)
        with intervened(model, spectra.flattened()):
            flat = stored_matrices(model, role, 0)
            torch.testing.assert_close(torch.linalg.matrix_norm(flat), torch.linalg.matrix_norm(before))
            values = torch.linalg.svdvals(flat)
            torch.testing.assert_close(values, values[:, :1].expand_as(values))
            torch.testing.assert_close(flat @ (flat.mT @ before), (values[:, :1, None] ** 2) * before)
        with intervened(model, spectra.with_random_bases(0)):
            turned = stored_matrices(model, role, 0)
            torch.testing.assert_close(torch.linalg.svdvals(turned), S)
            assert not torch.allclose(turned, before, atol=1e-3)
        with intervened(model, spectra.truncated(S.shape[-1])):
            torch.testing.assert_close(stored_matrices(model, role, 0), before)


def test_truncated_queries_have_that_rank_bias_included() -> None:
    model = runnable_gpt2()
    with intervened(model, HeadSpectra.of(model).truncated(2)):
        linear, rows = model.linear("Q", 0), model.stack.projections["Q"].rows
        features = linear(torch.randn(50, 24, dtype=torch.float64))
        from headspan.heads.block import head_features

        queries = head_features(features, rows).movedim(1, 0)
        assert torch.linalg.matrix_rank(queries).tolist() == [2] * model.n_heads


def test_random_weights_are_those_of_the_family() -> None:
    model = runnable_gpt2()
    with intervened(model, Reinitialized(5)):
        torch.manual_seed(5)
        theirs = type(model.module)(model.module.config).state_dict()
        for name, tensor in model.module.state_dict().items():
            torch.testing.assert_close(tensor, theirs[name].to(tensor.dtype), rtol=0, atol=0)
    torch.manual_seed(3)
    first = torch.rand(2)
    torch.manual_seed(3)
    with intervened(model, Reinitialized(5)):
        assert torch.equal(torch.rand(2), first)


def test_random_attention_leaves_the_rest_alone(model: RunnableModel) -> None:
    before = bits(model)
    with intervened(model, Reinitialized(0, attention_only=True)):
        changed = {name for name, own in bits(model).items() if own != before[name]}
    matrices = {
        name
        for name, module in model.module.named_modules()
        if any(module is model.linear(role, layer) for role in ("Q", "K", "V", "O") for layer in model.layers)
    }
    assert {name.removesuffix(".weight").removesuffix(".bias") for name in changed} >= matrices
    assert not any("mlp" in name or "embed" in name or "wte" in name for name in changed)


@pytest.mark.parametrize("role", ["Q", "K", "V", "O"])
def test_a_removed_subspace_is_neither_read_nor_written_and_other_heads_keep_it(
    model: RunnableModel, role: Role
) -> None:
    space = random_subspaces((), 24, 3, seed=0)
    grouped = role in KV_ROLES and model.stack.n_kv_heads < model.n_heads
    label = HeadLabel(0, 1, kv=grouped)
    before = stored_matrices(model, role, 0)
    with intervened(model, WithoutSubspace(label, role, space)):
        after = stored_matrices(model, role, 0)
    B = space.basis
    overlap = after[1] @ B if role == "O" else B.mT @ after[1]
    assert float(overlap.abs().max()) < 1e-12
    rest = (before[1] - before[1] @ B @ B.mT) if role == "O" else (before[1] - B @ (B.mT @ before[1]))
    torch.testing.assert_close(after[1], rest)
    others = [head for head in range(len(before)) if head != 1]
    assert torch.equal(after[others], before[others])


def test_an_ablated_head_writes_nothing_or_its_mean(model: RunnableModel) -> None:
    plain = forward(model, TOKENS)
    means = mean_values(model, TOKENS)
    W_O = output_matrices(model, 0)
    with intervened(model, AblatedHeads(("L0H2",))):
        writes = forward(model, TOKENS).head_writes(0)
    assert float(writes[:, :, 2].abs().max()) == 0.0
    torch.testing.assert_close(writes[:, :, :2], plain.head_writes(0)[:, :, :2])
    with intervened(model, AblatedHeads(("L0H2",), means)):
        writes = forward(model, TOKENS).head_writes(0)
    expected = plain.mixed_values(0)[:, :, 2].mean((0, 1)) @ W_O[2]
    torch.testing.assert_close(writes[:, :, 2], expected.expand_as(writes[:, :, 2]))


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "bert", "opt", "bloom", "llama", "falcon-new-grouped"])
def test_swapping_heads_that_share_their_keys_or_own_them_within_a_layer_changes_nothing(name: str) -> None:
    model = runnable(BY_NAME[name])
    plain = forward(model, TOKENS)
    with intervened(model, SwappedHeads("L0H0", "L0H1")):
        swapped = forward(model, TOKENS)
    if model.stack.positions != "alibi":
        torch.testing.assert_close(swapped.final, plain.final)
        order = [1, 0, *range(2, model.n_heads)]
        torch.testing.assert_close(swapped.runs[0].pattern, plain.runs[0].pattern[:, order])
    else:
        # Each head has its own slope, which stays where it is.
        assert not torch.allclose(swapped.final, plain.final)
