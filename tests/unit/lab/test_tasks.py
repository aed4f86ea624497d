"""What the models are trained on is what it is said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from headspan.errors import ArgumentError, HeadspanError
from headspan.lab.arithmetic import SUM, addition_sequences, carried_through, held_out_pairs
from headspan.lab.recipe import text_recipe
from headspan.lab.sequences import BURN_IN, copying_sequences
from headspan.lab.session import train
from headspan.lab.source import text_sequences, text_tokens
from headspan.lab.task import Task, token_probabilities

TASK = Task()


def drawn(seed: int = 0, **options: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_token_equals_the_one_at_its_origin() -> None:
    for repeats in (2, 3):
        sequences = copying_sequences(Task(repeats=repeats), 300, drawn())
        assert torch.equal(sequences.tokens, sequences.tokens.gather(1, sequences.origin))


@pytest.mark.parametrize("ood", [False, True])
def test_copied_stretches_have_the_lengths_of_the_task(ood: bool) -> None:
    sequences = copying_sequences(TASK, 500, drawn(), ood=ood)
    copied = (sequences.origin < torch.arange(64)).sum(1)
    low, high = (25, 25) if ood else (10, 19)
    assert (int(copied.min()), int(copied.max())) == (low, high)
    assert torch.equal(sequences.scored.sum(1), copied - BURN_IN)


def test_scored_tokens_lie_inside_the_later_block_behind_the_burn_in() -> None:
    sequences = copying_sequences(TASK, 50, drawn())
    for origin, scored in zip(sequences.origin, sequences.scored, strict=True):
        copied = (origin < torch.arange(64)).nonzero().flatten()
        assert scored.nonzero().flatten().tolist() == copied[BURN_IN:].tolist()


def test_blocks_do_not_overlap_and_reach_both_ends() -> None:
    sequences = copying_sequences(Task(shortest=16, longest=16), 2_000, drawn())
    later = (sequences.origin < torch.arange(64)).float().argmax(1)
    first = sequences.origin.gather(1, later[:, None]).flatten()
    assert bool((later - first >= 16).all())
    assert int(first.min()) == 0
    assert int(later.max()) == 64 - 16


def test_an_induction_head_aims_at_what_followed_the_token_before() -> None:
    sequences = copying_sequences(TASK, 20, drawn())
    aim = sequences.continuations()
    n, query, key = aim.nonzero().T
    assert torch.equal(sequences.tokens[n, key], sequences.tokens[n, query + 1])
    assert bool((key <= query).all())
    assert torch.equal(aim.any(-1)[:, :-1], sequences.scored[:, 1:])


def test_with_three_copies_there_are_two_aims_in_the_last() -> None:
    sequences = copying_sequences(Task(repeats=3, longest=15), 200, drawn())
    assert set(sequences.continuations().sum(-1).unique().tolist()) == {0, 1, 2}


@pytest.mark.parametrize("name", ["zipf", "two-level", "uniform"])
def test_token_frequencies_are_those_of_the_law(name: str) -> None:
    sequences = copying_sequences(Task(distribution=name), 4_000, drawn())
    law = token_probabilities(name, 64)
    own = sequences.tokens[sequences.origin == torch.arange(64)]
    counts = torch.bincount(own, minlength=64).double()
    error = (law * (1 - law) / len(own)).sqrt()
    assert float(((counts / len(own) - law) / error).abs().max()) < 5


def test_the_published_law_is_shifted_zipf() -> None:
    law = token_probabilities("zipf", 64)
    torch.testing.assert_close(law[10] / law[0], torch.tensor(2.7 / 12.7, dtype=torch.float64))


def test_the_same_seed_draws_the_same_sequences() -> None:
    first, second, other = (copying_sequences(TASK, 9, drawn(seed)).tokens for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_sums_are_right_and_held_out_pairs_are_never_trained() -> None:
    task, p = Task(kind="addition", vocabulary=12, length=16), 11
    out = held_out_pairs(p)
    for ood in (False, True):
        sequences = addition_sequences(task, 200, drawn(), ood=ood)
        a, b, sign, c = sequences.tokens.view(-1, 4, SUM).permute(2, 0, 1)
        assert torch.equal(c, (a + b) % p)
        assert bool((sign == p).all())
        assert bool((out[a, b] == ood).all())
        assert sequences.scored.view(-1, 4, SUM)[..., 3].all()
        assert int(sequences.scored.sum()) == 200 * 4


def test_text_is_cut_from_its_own_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(bytes(range(100)) * 9 + bytes(range(100, 200)))
    tokens = text_tokens(file)
    task = Task(kind="text", vocabulary=256)
    assert int(text_sequences(tokens, task, 300, drawn()).tokens.max()) < 100
    assert int(text_sequences(tokens, task, 300, drawn(), test=True).tokens.min()) >= 100


def test_a_given_tokenizer_makes_the_tokens_and_fixes_the_vocabulary(tmp_path: Path) -> None:
    words = {word: number for number, word in enumerate(("[UNK]", "the", "fox", "and", "dog", "jump"))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    file = tmp_path / "text.txt"
    file.write_text("the fox and the dog jump high " * 40)
    assert text_tokens(file, tmp_path / "tokenizer.json")[:7].tolist() == [1, 2, 3, 1, 4, 5, 0]
    recipe = text_recipe(file, tmp_path / "tokenizer.json")
    assert (recipe.task.vocabulary, recipe.shape.vocabulary) == (6, 6)
    small = {"d_model": 16, "length": 16, "mlp": 8, "ood_block": 7, "shortest": 4, "longest": 6}
    brief = {"steps": 2, "track_every": 2, "sharpness_every": 0, "test_size": 8}
    trained = train(recipe.with_settings(**small, **brief))
    assert trained.model.embed_tokens.weight.shape == (6, 16)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(HeadspanError, match=r"tokenizer '.*broken.json' cannot be read"):
        text_recipe(file, tmp_path / "broken.json")


def test_a_text_that_is_too_short_or_has_unknown_tokens_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"short")
    with pytest.raises(ArgumentError, match="5 tokens; sequences of 64 need at least"):
        text_sequences(text_tokens(file), Task(kind="text", vocabulary=256), 1, drawn())
    file.write_bytes(b"z" * 5_000)
    with pytest.raises(ArgumentError, match="holds token 122, but the vocabulary has 64"):
        text_sequences(text_tokens(file), Task(kind="text"), 1, drawn())
    with pytest.raises(HeadspanError, match="cannot be read: No such file"):
        text_tokens(tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longest": 33}, r"longest needs to be at most 32, to fit 2 times into 64 positions, found 33"),
        ({"ood_block": 40}, r"ood_block needs to be at least 2 and at most 32, to fit 2 times into 64 positions"),
        ({"vocabulary": 1}, r"vocabulary needs to be 2 to 1,000,000 tokens, found 1"),
        ({"shortest": 12, "longest": 11}, r"shortest needs to be 2 to 11 \(longest\), found 12"),
        ({"distribution": "normal"}, r"distribution needs to be one of zipf, two-level, uniform, found 'normal'"),
        ({"kind": "sorting"}, r"kind needs to be one of copying, addition, text, found 'sorting'"),
        ({"repeats": 1}, r"repeats needs to be at least 2, found 1"),
        ({"length": 3}, r"length needs to be 4 to 65,536 positions, found 3"),
    ],
)
def test_an_impossible_task_is_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Task(**options)


def digit_task(**options: Any) -> Task:
    return Task(kind="addition", vocabulary=12, digits=3, **{"length": 11, **options})


def number(digits: torch.Tensor) -> torch.Tensor:
    """Numbers from digits, the largest first."""
    return (digits * 10 ** torch.arange(digits.shape[1] - 1, -1, -1)).sum(1)


@pytest.mark.parametrize(("scratchpad", "length", "result"), [(False, 11, 7), (True, 18, 14)])
def test_sums_of_digits_are_right_with_and_without_a_scratchpad(scratchpad: bool, length: int, result: int) -> None:
    task = digit_task(scratchpad=scratchpad, length=length)
    drawn = addition_sequences(task, 300, torch.Generator().manual_seed(0))
    tokens = drawn.tokens
    assert torch.equal(number(tokens[:, :3]) + number(tokens[:, 3:6]), number(tokens[:, result:]))
    assert (tokens[:, 6] == 10).all()
    assert drawn.scored.nonzero()[:, 1].unique().tolist() == list(range(result, length))
    if scratchpad:
        digit, carry = tokens[:, 7:13:2], tokens[:, 8:13:2]
        assert torch.equal(digit.flip(1), tokens[:, result + 1 :])
        assert torch.equal(carry[:, -1], tokens[:, result])
        assert torch.equal(carry[:, 0], (tokens[:, 2] + tokens[:, 5] >= 10).long())
        assert (tokens[:, 13] == 11).all()


def test_a_carry_through_every_digit_is_never_trained_on_and_always_tested() -> None:
    for ood in (False, True):
        tokens = addition_sequences(digit_task(), 3000, torch.Generator().manual_seed(1), ood=ood).tokens
        through = carried_through(tokens[:, :3].flip(1), tokens[:, 3:6].flip(1))
        assert bool(through.all() if ood else not through.any())


def test_shuffled_sums_keep_their_tokens_and_lose_their_rule() -> None:
    tasks = (digit_task(), digit_task(shuffled=True))
    plain, shuffled = (addition_sequences(task, 400, torch.Generator().manual_seed(2)).tokens for task in tasks)
    assert torch.equal(plain[:, :7], shuffled[:, :7])
    assert torch.equal(number(plain[:, 7:]).sort().values, number(shuffled[:, 7:]).sort().values)
    assert float((plain[:, 7:] == shuffled[:, 7:]).all(1).double().mean()) < 0.05
    modular = Task(kind="addition", vocabulary=32, length=32, shuffled=True)
    tokens = addition_sequences(modular, 100, torch.Generator().manual_seed(2)).tokens
    right = (tokens[:, 0::4] + tokens[:, 1::4]) % 31 == tokens[:, 3::4]
    assert float(right.double().mean()) < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "addition", "digits": 1}, "digits needs to be 0, or 2 to 12 in the task addition, found 1"),
        ({"digits": 3}, "digits needs to be 0, or 2 to 12 in the task addition, found 3"),
        ({"kind": "addition", "scratchpad": True}, "scratchpad needs to be no, unless the task has digits"),
        ({"shuffled": True}, "shuffled needs to be no, unless the task is addition"),
        ({"kind": "addition", "digits": 3, "length": 10}, "length needs to be at least 11, one sum of 3 digits"),
        ({"kind": "addition", "digits": 3, "vocabulary": 11}, "vocabulary needs to be at least 12"),
    ],
)
def test_impossible_sums_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Task(**options)
