"""Few-shot prompts: pairs read with care, shots found among tokens, masses against moved boundaries, clues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError, HeadspanError, UnsupportedModel
from headspan.lenses.attention.few_shot import clue_likelihoods, own_word_masses, within_shots, written_clues
from headspan.lenses.shots import (
    OUTSIDE,
    Pair,
    ShotTokens,
    Split,
    read_pairs,
    shot_text,
    shot_tokens,
    split_pairs,
)
from headspan.result import Result
from headspan.runtime import Prompt, RunnableModel, continuation, encoded, open_runnable
from tests.unit.running_models import running, tokenizer

CSV = """word;clue
dog;an animal that likes to run
sun;a big bright thing in the sky
ball;a round toy that you can throw
bed;a soft place where you sleep

cake;a sweet food
"""
CHAT = (
    "{% for turn in messages %}[{{ turn['role'] }}] {{ turn['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    path.write_text(CSV)
    return path


@pytest.fixture(scope="module")
def story_teller(stories: Path) -> RunnableModel:
    return open_runnable(stories)


@pytest.fixture(scope="module")
def result(story_teller: RunnableModel) -> Result:
    return headspan.attention(story_teller, few_shot=CSV, shots=3, level="word", permutations=9, length=8)


# Pairs


def test_pairs_are_read_and_empty_lines_left_out(file: Path) -> None:
    pairs = read_pairs(file)
    assert len(pairs) == 5
    assert pairs[0] == Pair("dog", "an animal that likes to run")
    assert read_pairs(CSV) == read_pairs(str(file)) == pairs


def test_a_byte_order_mark_is_no_part_of_the_header(file: Path) -> None:
    file.write_text("\ufeffWord; Clue\nété;l'été\n", encoding="utf-8")
    assert read_pairs(file) == (Pair("été", "l'été"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "needs the columns word;clue in its first line, found ''"),
        ("word,clue\na,b\n", "needs the columns word;clue in its first line, found 'word,clue'"),
        ("word;clue;hint\na;b;c\n", "found 'word;clue;hint'"),
        ("word;clue\na;b;c\n", "line 2 of .* needs a word and a clue, found 'a;b;c'"),
        ("word;clue\na;\n", "line 2 of .* needs a word and a clue"),
    ],
)
def test_a_table_of_another_shape_is_refused(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(HeadspanError, match=message):
        read_pairs(file)


def test_another_encoding_is_refused(file: Path) -> None:
    file.write_bytes("word;clue\nété;saison\n".encode("latin-1"))
    with pytest.raises(HeadspanError, match=r"is not text in UTF-8 .*; save it in that encoding"):
        read_pairs(file)
    with pytest.raises(HeadspanError, match="cannot be read: No such file"):
        read_pairs(file.parent / "none.csv")


def test_the_seed_fixes_which_pairs_are_shown(file: Path) -> None:
    pairs = read_pairs(file)
    first, again, other = (split_pairs(pairs, 3, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert set(first.shots) | set(first.held_out) == set(pairs)
    assert not set(first.shots) & set(first.held_out)


def test_a_target_is_never_shown_and_may_be_unknown(file: Path) -> None:
    split = split_pairs(read_pairs(file), 4, 0, ["Sun", "moon"])
    assert [pair.word for pair in split.held_out] == ["sun", "moon"]
    assert split.held_out[1].clue == ""
    assert "sun" not in [pair.word for pair in split.shots]


@pytest.mark.parametrize(("shots", "targets"), [(0, []), (5, []), (5, ["sun"]), (9, [])])
def test_too_few_pairs_are_refused(file: Path, shots: int, targets: list[str]) -> None:
    with pytest.raises(ArgumentError, match=rf"{shots} shots need at least"):
        split_pairs(read_pairs(file), shots, 0, targets)


# Text and tokens

SHOTS = (Pair("dog", "an animal"), Pair("sun", "a star"))


def parts(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [text[start:end] for start, end in spans]


def test_a_plain_template_is_filled_in(story_teller: RunnableModel) -> None:
    found = shot_text(story_teller, SHOTS, "bed", "{word} is {clue}. ")
    assert found.text == "dog is an animal. sun is a star. bed is"
    assert parts(found.text, found.words) == ["dog", "sun", "bed"]
    assert parts(found.text, found.clues) == ["an animal", "a star"]
    assert not found.chat


def test_the_chat_template_is_used_where_there_is_one() -> None:
    own = tokenizer("byte-level")
    own.chat_template = CHAT
    try:
        model = running("byte-level")
        found = shot_text(model, SHOTS, "bed")
        tokens = shot_tokens(model, found)
    finally:
        own.chat_template = None
    assert found.text == "[user] dog\n[assistant] an animal\n[user] sun\n[assistant] a star\n[user] bed\n[assistant]"
    assert parts(found.text, found.words) == ["dog", "sun", "bed"]
    assert found.chat
    assert tokens.prompt.ids[0] != own.bos_token_id, "the chat template brings its own special tokens"


@pytest.mark.parametrize("template", ["{word}", "{clue} {word}", "{word}{clue}", "{word} {x} {clue}"])
def test_a_template_without_both_is_refused(story_teller: RunnableModel, template: str) -> None:
    with pytest.raises(ArgumentError, match=r"a template holds \{word\}, some text, then \{clue\}"):
        shot_text(story_teller, SHOTS, "bed", template)


@pytest.mark.parametrize("kind", ["byte-level", "metaspace", "word-piece"])
def test_tokens_know_their_shot_word_and_clue(kind: str) -> None:
    model = running(kind)
    found = shot_text(model, SHOTS, "bed")
    tokens = shot_tokens(model, found)
    offsets = tokens.prompt.offsets or ()
    for labels, words in ((tokens.word, ["dog", "sun", "bed"]), (tokens.clue, ["an animal", "a star"])):
        for number, word in enumerate(words):
            places = [offsets[place] for place in np.flatnonzero(labels == number)]
            covered = found.text[places[0][0] : places[-1][1]]
            assert covered.strip() == word
    assert tokens.shot[0] == OUTSIDE
    assert (np.diff(tokens.shot) >= 0).all()
    assert [found.text[offsets[start][0] :].lstrip()[:4] for start in tokens.starts] == ["Word"] * 3


# Masses


def made_tokens(lengths: list[int]) -> ShotTokens:
    """Shots of these lengths after one token outside; in each the first token is the word, the last two the clue."""
    shot = np.array([OUTSIDE] + [number for number, length in enumerate(lengths) for _ in range(length)])
    word, clue = np.full(len(shot), OUTSIDE), np.full(len(shot), OUTSIDE)
    start = 1
    for number, length in enumerate(lengths):
        word[start] = number
        if number < len(lengths) - 1:
            clue[start + length - 2 : start + length] = number
        start += length
    n = len(shot)
    return ShotTokens(Prompt((0,) * n, ("x",) * n, (False,) * n), shot, word, clue)


def causal(weights: np.ndarray) -> np.ndarray:
    lower = np.tril(weights)
    return (lower / lower.sum(-1, keepdims=True))[None]


def test_attention_that_sees_the_shots_stands_out_from_moved_boundaries() -> None:
    tokens = made_tokens([8, 8, 8, 8, 8])
    same = tokens.shot[:, None] == tokens.shot[None, :]
    found = within_shots(causal(np.where(same, 1.0, 1e-3)), tokens)
    assert found.within[0] > 0.95
    assert found.within[0] > found.null[0] + 0.2
    assert found.p[0] == pytest.approx(1 / 15)


def test_attention_that_only_decays_with_distance_does_not() -> None:
    """It keeps far more to its own shot than uniform attention, which a shuffling null would take for sight."""
    tokens = made_tokens([8, 8, 8, 8, 8])
    distance = np.abs(np.subtract.outer(np.arange(41), np.arange(41)))
    decaying = causal(np.exp(-distance / 3.0))
    found = within_shots(decaying, tokens)
    assert found.within[0] > 0.5
    assert found.within[0] == pytest.approx(found.null[0], abs=0.01)
    assert found.p[0] > 0.1


def test_masses_within_and_across_are_their_definitions() -> None:
    tokens = made_tokens([4, 5, 3, 4])
    pattern = causal(np.random.default_rng(0).random((17, 17)))
    found = within_shots(pattern, tokens)
    inside, outside = [], []
    for query in range(17):
        if tokens.shot[query] in (1, 2):
            own = [key for key in range(17) if tokens.shot[key] == tokens.shot[query]]
            other = [key for key in range(17) if tokens.shot[key] not in (tokens.shot[query], OUTSIDE)]
            inside.append(pattern[0, query, own].sum())
            outside.append(pattern[0, query, other].sum())
    assert found.within[0] == pytest.approx(np.mean(inside))
    assert found.across[0] == pytest.approx(np.mean(outside))


def test_one_shot_has_nothing_between_boundaries() -> None:
    found = within_shots(causal(np.ones((9, 9))), made_tokens([4, 4]))
    assert np.isnan(found.within).all()
    assert np.isnan(found.p).all()


def test_own_word_mass_is_its_definition_and_its_null_uniform() -> None:
    tokens = made_tokens([5, 5, 5, 5])
    uniform = own_word_masses(causal(np.ones((21, 21))), tokens)
    assert uniform["own_word"][0] == pytest.approx(uniform["own_word_null"][0])
    pattern = np.eye(21)
    for query in np.flatnonzero(tokens.clue != OUTSIDE):
        pattern[query] = 0.7 * (tokens.word == tokens.clue[query]) + 0.3 * (np.arange(21) == query)
    found = own_word_masses(pattern[None], tokens)
    assert found["own_word"][0] == pytest.approx(0.7)
    assert found["other_word"][0] == 0


# Clues


def test_likelihoods_are_those_of_the_logits(story_teller: RunnableModel) -> None:
    split = Split(SHOTS, (Pair("bed", "a soft place"),))
    found = clue_likelihoods(story_teller, split, "{word}: {clue}\n")
    assert found["shots"].tolist() == [0, 1, 2]
    text = "dog: an animal\nsun: a star\nbed:"
    whole, start = encoded(story_teller, text + " a soft place"), len(encoded(story_teller, text))
    with torch.no_grad():
        logs = story_teller.module(input_ids=whole.tokens).logits[0].double().log_softmax(-1)
    values = [float(logs[place - 1, whole.ids[place]]) for place in range(start, len(whole))]
    assert found["log_likelihood"].iloc[-1] == pytest.approx(np.mean(values), abs=1e-5)
    assert np.isnan(found["log_likelihood_se"]).all()


def test_written_clues_are_greedy_continuations_up_to_a_line_break(story_teller: RunnableModel) -> None:
    split = Split(SHOTS, (Pair("bed", "given"), Pair("moon", "")))
    rows = written_clues(story_teller, split, "{word}: {clue}\n", 12, 0.0, 0)
    prompt = encoded(story_teller, "dog: an animal\nsun: a star\nbed:")
    assert story_teller.tokenizer is not None
    text = str(story_teller.tokenizer.decode(list(continuation(story_teller, prompt, 12)))).strip()
    assert rows["written_clue"][0] == text.splitlines()[0].strip()
    assert rows["target_word"].tolist() == ["bed", "moon"]


def test_an_encoder_has_no_clues_to_write() -> None:
    model = running("word-piece", causal=False)
    with pytest.raises(UnsupportedModel, match="takes a causal model"):
        written_clues(model, Split(SHOTS, (Pair("bed", "x"),)), None, 5, 0.0, 0)
    with pytest.raises(UnsupportedModel, match="takes a causal model"):
        clue_likelihoods(model, Split(SHOTS, (Pair("bed", "x"),)), None)


# The whole


def test_the_result_holds_maps_shots_clues_and_likelihoods(result: Result) -> None:
    shots = result.dataset()
    assert {"pattern", "shot_map", "within", "written_clue", "log_likelihood"} <= set(shots.data_vars)
    assert shots["shot_map"].dims == ("layer", "query_shot", "key_shot")
    outside = 1 - shots["shot_map"].sum("key_shot")
    assert float(outside.min()) > 0, "the token before the first shot takes some attention"
    assert (shots["within"] + shots["across"] < 1).all()
    assert result["log_likelihood"].sizes["shots"] == 4
    assert result["written_clue"].sizes["target"] == 2
    assert result.table("likelihood")["shots"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(shots["within_z"], (shots["within"] - shots["within_null"]) / shots["within_null_sd"])


def test_boundaries_mark_the_first_word_of_every_shot(result: Result) -> None:
    assert [str(result["query_text"].values[place]) for place in result.attrs["boundaries"]] == ["Word"] * 4


def test_a_few_shot_prompt_beyond_the_context_is_refused() -> None:
    pairs = "word;clue\n" + "".join(f"{'w' * 30};{'c' * 60}\n" for _ in range(4))
    with pytest.raises(HeadspanError, match="the model's context 128"):
        headspan.attention(running(), few_shot=pairs, shots=3)


def test_several_tables_of_pairs_are_a_batch(story_teller: RunnableModel, tmp_path: Path) -> None:
    other = CSV.replace("dog", "cat").replace("sun", "moon")
    options = {"shots": 2, "permutations": 0, "length": 2}
    found = headspan.attention(story_teller, few_shot=[CSV, other], **options)  # type: ignore[arg-type]
    alone = headspan.attention(story_teller, few_shot=other, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found["batch"].within.sel(prompt=1).values, alone["within"].values)
    assert found["batch"].within_p.dims == (*alone["within_p"].dims, "prompt")
    with pytest.raises(ArgumentError, match="few_shot is an empty list"):
        headspan.attention(story_teller, few_shot=[])


# Preamble, bundled pairs, clues by number of shots


def test_a_preamble_stands_before_the_first_shot_and_belongs_to_none(story_teller: RunnableModel) -> None:
    shots = (Pair("dog", "it can bark"), Pair("sun", "it is hot"))
    plain, told = (shot_text(story_teller, shots, "bed", preamble=text) for text in ("", "Tell me what it is."))
    assert told.text == "Tell me what it is.\n\n" + plain.text
    assert told.starts[0] == len("Tell me what it is.\n\n")
    tokens = shot_tokens(story_teller, told)
    first = int(np.flatnonzero(tokens.shot == 0)[0])
    assert first > 3
    assert (tokens.shot[:first] == OUTSIDE).all()


def test_in_a_chat_the_preamble_is_the_first_turn(story_teller: RunnableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_teller.tokenizer, "chat_template", CHAT)
    text = shot_text(story_teller, (Pair("dog", "it can bark"),), "bed", preamble="Be brief.")
    assert text.text.startswith("[user] Be brief.\n[assistant] Ok.\n[user] dog\n[assistant] it can bark\n[user] bed")
    assert len(text.starts) == len(text.words) == 2
    assert text.text[slice(*text.words[0])] == "dog"
    assert text.starts[0] >= text.text.index("Ok.")


def test_the_bundled_pairs_are_clues_that_do_not_name_their_word() -> None:
    pairs = read_pairs("bundled")
    assert len(pairs) >= 20
    assert len({pair.word for pair in pairs}) == len(pairs)
    assert not [pair.word for pair in pairs if pair.word in pair.clue.casefold()]


def test_clues_are_written_after_every_number_of_shots(stories: Path) -> None:
    options = {"shots": 2, "targets": "river,clock", "permutations": 0, "length": 4}
    result = headspan.attention(stories, few_shot="bundled", every_count=True, **options)
    table = result["clue_after"]
    assert table.dims == ("target", "shots")
    assert table.shape == (2, 3)
    assert table.values[:, -1].tolist() == result["written_clue"].values.tolist()
    assert "clue_after" not in headspan.attention(stories, few_shot="bundled", **options)
