"""Relations between words in the weights of a head: does W_OV map the left word of a pair to the right one?

For pairs (a_i, b_i), i = 1..n, the table S_ij = e(a_i) W_OV w(b_j) holds what a head that attends to word a_i adds to
the logit of b_j. The score is the mean of the diagonal less that of the whole table, over the table's spread:

    s = (mean_i S_ii - mean_ij S_ij) / sd_ij(S~),   S~ the table less its row and column means.

Null: the right words are permuted. Then s has mean 0 and variance 1 / (n - 1) exactly (Hoeffding 1951), and common
words, on the left or on the right, do not matter. p-values come from drawn permutations and their tail, one-sided.
`hits` is the share of left words whose own partner has the highest S~ of all right words; 1 / n by chance.

Partners often have similar vectors, so that a head that copies also maps words to their partners. `tables_z` and
`tables_hits` are the same numbers without a head, from T_ij = e(a_i) . w(b_j). `beyond` compares the two pair by pair,

    beyond = mean_i (S~_ii / sd(S~) - T~_ii / sd(T~)).

Null: whether a pair's two numbers are the head's or the tables' is exchanged at random (signs of the differences), one-
sided. A head with a significant `beyond` maps words to their partners better than the similarity of the words does.

A pair counts if both words are single tokens of the vocabulary.

Reference: Elhelo and Geva (2024), Inferring functionality of attention heads from their parameters.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.input_files import file_text
from headspan.lenses.token_reading import TokenTable
from headspan.lenses.token_texts import Tokens
from headspan.statistics import q_values, z_score
from headspan.statistics.draw_tails import upper_p_values

COLUMNS = ("relation", "left", "right")
LEAST_PAIRS = 6
"""Pairs that a relation needs: six have 720 permutations."""
MOST_ROWS, MOST_BYTES, MOST_RELATIONS = 20_000, 4_000_000, 100
PERMUTATIONS = 1000
ROUNDING = 1e-6
"""Smaller differences between a head's scores and those of the tables are rounding."""
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Relation:
    """Pairs of one relation as token ids, and how many pairs the list had."""

    name: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    listed: int


def listed_relations(path: str | None) -> dict[str, Pairs]:
    """Word pairs by relation: of a CSV file with the columns relation, left, right, or of headspan's own lists."""
    if path is None:
        text = resources.files(__package__).joinpath("relations.csv").read_text(encoding="utf-8")
    else:
        file = Path(path)
        if file.is_file() and file.stat().st_size > MOST_BYTES:
            raise ArgumentError(f"'{path}' has {file.stat().st_size:,} bytes; relations may have {MOST_BYTES:,}")
        text = file_text(file)
    try:
        rows = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as problem:
        raise ArgumentError(f"'{path}' is not a CSV file: {problem}") from problem
    return _checked(rows, path)


def _checked(rows: list[dict[str, str]], path: str | None) -> dict[str, Pairs]:
    if not rows or not set(COLUMNS) <= set(rows[0]):
        found = ", ".join(map(str, rows[0])) if rows else "no row"
        raise ArgumentError(f"'{path}' needs the columns {', '.join(COLUMNS)} and rows; found {found:.80}")
    if len(rows) > MOST_ROWS:
        raise ArgumentError(f"'{path}' has {len(rows):,} rows; relations may have {MOST_ROWS:,}")
    pairs: dict[str, dict[tuple[str, str], None]] = {}
    for line, row in enumerate(rows, start=2):
        cells = [(row[name] or "").strip() for name in COLUMNS]
        if not all(cells):
            raise ArgumentError(f"line {line} of '{path}' lacks {COLUMNS[cells.index('')]}; each row has all three")
        pairs.setdefault(cells[0][:60], {})[cells[1], cells[2]] = None
    if len(pairs) > MOST_RELATIONS:
        raise ArgumentError(f"'{path}' has {len(pairs):,} relations; there may be {MOST_RELATIONS}")
    return {name: tuple(own) for name, own in pairs.items()}


def known_relations(path: str | None, tokens: Tokens) -> list[Relation]:
    """The relations whose words are tokens; of pairs that share a word on a side the first counts."""
    found = []
    for name, pairs in listed_relations(path).items():
        kept: dict[int, int] = {}
        for left, right in pairs:
            ids = _token(left, tokens), _token(right, tokens)
            if ids[0] is not None and ids[1] is not None and ids[0] not in kept and ids[1] not in kept.values():
                kept[ids[0]] = ids[1]
        found.append(Relation(name, tuple(kept), tuple(kept.values()), len(pairs)))
    return found


def _token(word: str, tokens: Tokens) -> int | None:
    """The one token that a word is, with a space before it where there is such a one; `#17` is token 17."""
    if word.startswith("#") and word[1:].isdigit() and len(word) < 12:
        return int(word[1:]) if int(word[1:]) < tokens.n_tokens else None
    spellings = (f" {word}", word, f" {word.lower()}", word.lower())
    return next((tokens.by_text[each] for each in spellings if each in tokens.by_text), None)


class RelationScores:
    """Relations of a model, scored for its heads block by block."""

    def __init__(self, relations: list[Relation], read: TokenTable, write: TokenTable, seed: int) -> None:
        self.relations = relations
        self.vectors = [
            tuple(
                table.rows.vectors(torch.tensor(ids, device=table.rows.stored.device, dtype=torch.long), torch.float64)
                for table, ids in ((read, one.left), (write, one.right))
            )
            for one in relations
        ]
        self.random = np.random.default_rng(seed)
        self.orders = [
            self.random.permuted(np.tile(np.arange(len(one.left)), (PERMUTATIONS, 1)), axis=1) for one in relations
        ]
        self.signs = [self.random.choice((-1.0, 1.0), (PERMUTATIONS, len(one.left))) for one in relations]
        alone = [(left @ right.mT)[None] for left, right in self.vectors]
        self.tables = alone
        self.alone = [relation_scores(S, orders) for S, orders in zip(alone, self.orders, strict=True)]
        self.parts: list[dict[str, np.ndarray]] = []

    def add(self, A: Float[Tensor, "head d r"], B: Float[Tensor, "head d r"]) -> None:
        """The next heads, by the factors of their W_OV."""
        found = []
        for (left, right), table, orders, signs in zip(self.vectors, self.tables, self.orders, self.signs, strict=True):
            S = (left @ A.double()) @ (right @ B.double()).mT
            found.append(relation_scores(S, orders) | beyond_tables(S, table, signs))
        self.parts.append({name: np.stack([one[name] for one in found]) for name in found[0]})

    def variables(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """[relation, head]: `relation_score` and `beyond`, each with its null, and `hits`; [relation]: `pairs`."""
        joined = {name: np.concatenate([part[name] for part in self.parts], axis=1) for name in self.parts[0]}
        n = np.array([len(one.left) for one in self.relations])
        sd = 1 / np.sqrt(np.maximum(n - 1, 1))
        both, own = ("relation", "head"), ("relation",)
        return {
            "relation_score": (both, joined["score"]),
            "relation_score_null": ((), np.asarray(0.0)),
            "relation_score_null_sd": (own, sd),
            "relation_score_z": (both, joined["score"] / sd[:, None]),
            "relation_score_p": (both, joined["p"]),
            "relation_score_q": (both, q_values(joined["p"])),
            "beyond": (both, joined["beyond"]),
            "beyond_null": ((), np.asarray(0.0)),
            "beyond_null_sd": (both, joined["beyond_sd"]),
            "beyond_z": (both, z_score(joined["beyond"], 0.0, joined["beyond_sd"])),
            "beyond_p": (both, joined["beyond_p"]),
            "beyond_q": (both, q_values(joined["beyond_p"])),
            "hits": (both, joined["hits"]),
            "hits_null": (own, 1 / np.maximum(n, 1)),
            "tables_z": (own, np.array([one["score"][0] for one in self.alone]) / sd),
            "tables_hits": (own, np.array([one["hits"][0] for one in self.alone])),
            "pairs": (own, n),
            "listed_pairs": (own, np.array([one.listed for one in self.relations])),
        }


def relation_scores(S: Float[Tensor, "head n n"], orders: np.ndarray) -> dict[str, np.ndarray]:
    """[head]: score, one-sided p under permutation of the right words, and hits; NaN below `LEAST_PAIRS` pairs."""
    n = S.shape[-1]
    if n < LEAST_PAIRS:
        undefined = np.full(len(S), np.nan)
        return {"score": undefined, "p": undefined, "hits": undefined}
    scaled = _scaled(S)
    score = np.einsum("hii->h", scaled) / n
    drawn = np.stack([scaled[:, np.arange(n), order].mean(-1) for order in orders])
    best = (scaled.argmax(-1) == np.arange(n)).mean(-1)
    return {"score": score, "p": _tails(score, drawn), "hits": np.where(np.isnan(score), np.nan, best)}


def beyond_tables(
    S: Float[Tensor, "head n n"], table: Float[Tensor, "1 n n"], signs: Float[np.ndarray, "draw n"]
) -> dict[str, np.ndarray]:
    """[head]: by how much a head's score exceeds that of the tables, its spread and p under exchange within pairs."""
    n = S.shape[-1]
    if n < LEAST_PAIRS:
        return dict.fromkeys(("beyond", "beyond_sd", "beyond_p"), np.full(len(S), np.nan))
    own, without = (np.einsum("hii->hi", _scaled(each)) for each in (S, table))
    differences = own - without
    sd = np.sqrt((differences**2).sum(-1)) / n
    differences = np.where((sd > ROUNDING)[:, None], differences, np.nan)  # a head that copies all is the tables
    beyond = differences.mean(-1)
    return {"beyond": beyond, "beyond_sd": sd, "beyond_p": _tails(beyond, signs @ differences.T / n)}


def _scaled(S: Float[Tensor, "head n n"]) -> Float[np.ndarray, "head n n"]:
    """Less its row and column means, over its spread."""
    rest = S - S.mean(-1, keepdim=True) - S.mean(-2, keepdim=True) + S.mean((-2, -1), keepdim=True)
    spread = rest.square().mean((-2, -1)).sqrt()
    scaled: np.ndarray = (rest / torch.where(spread > 0, spread, torch.nan)[:, None, None]).numpy(force=True)
    return scaled


def _tails(found: Float[np.ndarray, " head"], drawn: Float[np.ndarray, "draw head"]) -> np.ndarray:
    pairs = zip(found, drawn.T, strict=True)
    return np.array([upper_p_values(one, each) if np.isfinite(one) else np.nan for one, each in pairs])
