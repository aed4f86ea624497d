"""One pass over a model: leading directions of every matrix, read in the vocabulary, with copying and relations.

1. Heads a few layers at a time: singular directions of W_OV and W_QK, tokens along both sides, eigenvalues over tokens,
   relations between words.
2. MLPs layer by layer, then single neurons and W_U.
3. p-values of all directions of one kind of matrix are ranked together (q).

Sign: a singular direction is a pair (u, v), and (-u, -v) is the same. It is turned so that the token with the largest
|z| of both sides scores positive. Neurons keep their sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, FoldError
from headspan.heads import Heads
from headspan.heads.logits import check_delta
from headspan.heads.memory import memory_bytes
from headspan.heads.norms import fold_label
from headspan.lenses.token_reading import STATISTICS, Reading, TokenTable
from headspan.lenses.vocabulary.choices import MATRICES, Chosen, Neuron, Projection
from headspan.lenses.vocabulary.copying import copying_scores, copying_variables, cross_covariance
from headspan.lenses.vocabulary.directions import (
    Directions,
    circuit_blocks,
    circuit_directions,
    gram_directions,
    mlp_directions,
    require_room_for_mlp,
)
from headspan.lenses.vocabulary.projection import projected_tokens
from headspan.lenses.vocabulary.relations import LEAST_PAIRS, RelationScores, known_relations
from headspan.progress import current_step
from headspan.statistics import q_values

SIDES = {"OV": ("read", "write"), "QK": ("query", "key")}
JOIN = " | "
BLOCK_SHARE = 16
"""Part of the memory budget that a block of a token table takes in double precision."""
Variables = dict[str, tuple[tuple[str, ...], Any]]
DEFAULT = Chosen.of(None, None, None, 8, 10, 500)


def measure(
    heads: Heads,
    *,
    chosen: Chosen = DEFAULT,
    projection: Projection | None = None,
    relations: str | None = None,
    delta: int = 0,
    seed: int = 0,
    memory: int | str = "4GB",
    all_tokens: bool = False,
    tokenizer: Any = None,
) -> xr.DataTree:
    """`headspan.vocabulary` on heads."""
    check_delta(heads, delta)
    if projection is not None:
        found = projected_tokens(heads, projection, all_tokens, tokenizer)
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=found.attrs), "/projection": found.drop_attrs()})
    return _Pass(centered(heads), chosen, delta, seed, memory, not all_tokens, tokenizer).tree(relations)


def centered(heads: Heads) -> Heads:
    """Folded heads also without what a LayerNorm discards; others as they are."""
    if heads.fold == "none":
        return heads
    try:
        return heads.refolded(heads.fold, center=True)
    except FoldError:  # an RMSNorm discards nothing
        return heads


class _Pass:
    """The pass: what it goes over, its two tables, and the nodes that it fills."""

    def __init__(
        self, heads: Heads, chosen: Chosen, delta: int, seed: int, memory: int | str, filtered: bool, tokenizer: Any
    ) -> None:
        self.heads, self.chosen, self.delta, self.seed = heads, chosen, delta, seed
        budget = memory_bytes(memory)
        self.tables = {
            side: TokenTable(heads, side, filtered=filtered, tokenizer=tokenizer, memory=budget // BLOCK_SHARE)
            for side in ("read", "write")
        }
        stored = {table.rows.stored.data_ptr(): table.rows.stored.nbytes for table in self.tables.values()}
        self.held = sum(stored.values())
        self.memory = budget - self.held
        self.filtered = filtered
        self.left_out: list[str] = []
        there = self._available()
        absent = [name for name in chosen.matrices or () if name not in there]
        if absent:
            raise ArgumentError(f"matrices: this checkpoint has no {absent[0]}; it has {', '.join(there)}")
        only_heads = chosen.matrices is None and chosen.heads is not None
        self.kinds = tuple(name for name in there if name in SIDES) if only_heads else chosen.matrices or there

    def _available(self) -> tuple[str, ...]:
        parts = self.heads.reader.stored.parts
        has = {
            "OV": True,
            "QK": True,
            "MLP": "MLP" in parts and self.heads.stack.mlp is not None,
            "W_U": "W_U" in parts,
        }
        return tuple(name for name in MATRICES if has[name])

    def tree(self, relations: str | None) -> xr.DataTree:
        nodes: dict[str, xr.Dataset] = {}
        if set(self.kinds) & set(SIDES):
            nodes |= self._circuits(relations)
        if "MLP" in self.kinds:
            nodes["MLP"] = self._mlps()
        if "W_U" in self.kinds:
            nodes["W_U"] = self._unembedding()
        if self.chosen.neurons:
            nodes["neurons"] = self._neurons()
        return xr.DataTree.from_dict(
            {"/": xr.Dataset(attrs=self._attributes()), **{f"/{k}": v for k, v in nodes.items()}}
        )

    def _attributes(self) -> dict[str, Any]:
        read, write = self.tables["read"], self.tables["write"]
        return {
            "fold": fold_label(self.heads.fold, self.heads.center),
            "read_table": read.name,
            "write_table": write.name,
            "tokens": read.rows.n_tokens,
            "tokens_kept": read.n_kept,
            **{f"{name}_tokens": number for name, number in read.tokens.counts.items()},
            "filtered": int(self.filtered),
            "has_texts": int(bool(read.tokens.texts)),
            "delta": self.delta,
            "draws": self.chosen.draws,
            "seed": self.seed,
            "left_out": "; ".join(self.left_out),
        }

    def _circuits(self, relations: str | None) -> dict[str, xr.Dataset]:
        """OV and QK with their copying scores and, for OV, relations."""
        kinds = [kind for kind in self.kinds if kind in SIDES]
        read, write = self.tables["read"], self.tables["write"]
        moments = {kind: cross_covariance(write if kind == "OV" else read, read) for kind in kinds}
        related = self._relations(relations) if "OV" in kinds else None
        labels: list[HeadLabel] = []
        parts: dict[str, list[Variables]] = {kind: [] for kind in kinds}
        copied: dict[str, list[dict[str, np.ndarray]]] = {kind: [] for kind in kinds}
        room = self.held, self.memory
        for own, factors in circuit_blocks(self.heads, kinds, self.chosen.heads, self.delta, room):
            labels += own
            for kind, (A, B) in factors.items():
                found = circuit_directions(A, B, self.chosen.leading, SIDES[kind])
                parts[kind].append(self._read(found, ("head",)))
                copied[kind].append(copying_scores(A, B, moments[kind], self.seed))
            if related is not None:
                related.add(*factors["OV"])
        nodes = {kind: self._node(parts[kind], _head_axis(labels), SIDES[kind]) for kind in kinds}
        widths = {"OV": self.heads.d_value, "QK": self.heads.d_head}
        copying: Variables = {}
        for kind in kinds:
            copying |= copying_variables(kind, copied[kind], widths[kind])
        nodes["copying"] = xr.Dataset(copying, coords=_head_axis(labels))
        if related is not None:
            names = [one.name for one in related.relations]
            nodes["relations"] = xr.Dataset(related.variables(), coords={**_head_axis(labels), "relation": names})
        return nodes

    def _relations(self, path: str | None) -> RelationScores | None:
        """The relations to score; None, and why, where too few of their words are tokens."""
        read, write = self.tables["read"], self.tables["write"]
        if not read.tokens.texts and path is None:
            self.left_out.append("relations: there is no tokenizer, so words have no tokens")
            return None
        known = known_relations(path, read.tokens)
        if not any(len(one.left) >= LEAST_PAIRS for one in known):
            reason = f"relations: no list has {LEAST_PAIRS} pairs whose words are single tokens"
            if path is not None:
                raise ArgumentError(f"{reason}; '{path}' needs such pairs")
            self.left_out.append(reason)
            return None
        return RelationScores(known, read, write, self.seed)

    def _mlps(self) -> xr.Dataset:
        """Singular directions of every layer's matrices, on the side of the stream."""
        names, parts = _mlp_names(self.heads), []
        double = self.heads.to(torch.float64) if self.heads.d_model <= 2048 else self.heads
        require_room_for_mlp(double, self.held, self.memory)
        for layer in self.heads.layers:
            current_step(f"MLP of layer {layer}")
            parts.append(self._read(mlp_directions(double, layer, names, self.chosen.leading), ("layer",)))
        return self._node(parts, {"layer": list(self.heads.layers)}, names)

    def _unembedding(self) -> xr.Dataset:
        """Singular directions of W_U, its columns less their mean."""
        vectors, values, energy = gram_directions(self.tables["write"].second_moment, self.chosen.leading)
        one = Directions({"write": vectors[None]}, values[None], energy[None])
        node = self._node([self._read(one, ("matrix",))], {}, ("write",))
        return node.isel(matrix=0)

    def _neurons(self) -> xr.Dataset:
        """Tokens that activate chosen neurons, and tokens they write."""
        names = _mlp_names(self.heads)
        vectors: dict[str, list[Tensor]] = {name: [] for name in names}
        for neuron in self.chosen.neurons:
            for name, vector in zip(names, _neuron_vectors(self.heads, neuron), strict=True):
                vectors[name].append(vector)
        sides = {name: torch.stack(each)[:, None] for name, each in vectors.items()}
        norms = torch.stack([each.norm(dim=-1) for each in sides.values()], -1)
        found = self._read(Directions(sides, norms, norms.square().sum(1)), ("neuron",), turn=False)
        node = self._node([found], {"neuron": [str(one) for one in self.chosen.neurons]}, names)
        return node.isel(direction=0, drop=True).drop_vars("energy").rename(singular_value="norm")

    def _read(self, found: Directions, axis: tuple[str], turn: bool = True) -> Variables:
        """Variables of some matrices' directions: [matrix, direction, side], tokens also [..., end, place]."""
        readings = {}
        for side, directions in found.sides.items():
            table = self.tables["write" if side in ("write", "W_out") else "read"]
            readings[side] = (table, table.read(directions.flatten(0, 1), self.chosen.count))
        if turn:
            # The two sides of a circuit turn together; each matrix of an MLP has a sign of its own.
            groups = [list(readings)] if found.values.ndim == 2 else [[side] for side in readings]
            for group in groups:
                signs = _signs([readings[side][1] for side in group])
                readings |= {side: (readings[side][0], readings[side][1].turned(signs)) for side in group}
        shape = next(iter(found.sides.values())).shape[:2]
        return self._variables(readings, shape, (*axis, "direction", "side")) | {
            "singular_value": ((*axis, "direction", "side")[: found.values.ndim], found.values.numpy(force=True)),
            "energy": (
                (*axis, "direction", "side")[: found.values.ndim],
                (found.values.square() / found.energy.unsqueeze(1)).numpy(force=True),
            ),
        }

    def _variables(
        self, readings: dict[str, tuple[TokenTable, Reading]], shape: tuple[int, ...], dims: tuple[str, ...]
    ) -> Variables:
        columns: dict[str, list[np.ndarray]] = {}
        for table, reading in readings.values():
            here = table.concentration(reading, self.chosen.draws, self.seed)
            here |= {name: _joined(reading.texts[:, end]) for end, name in enumerate(("tokens_high", "tokens_low"))}
            here |= {"token": reading.ids, "token_z": reading.z}
            for name, values in here.items():
                columns.setdefault(name, []).append(values)
        found: Variables = {}
        for name, each in columns.items():
            if each[0].ndim == 0:
                found[name] = (("side",), np.stack(each))
                continue
            more = ("end", "place") if each[0].ndim == 3 else ()
            found[name] = ((*dims, *more), np.stack([one.reshape(*shape, *one.shape[1:]) for one in each], axis=2))
        return found

    def _node(self, parts: list[Variables], coords: dict[str, Any], sides: tuple[str, ...]) -> xr.Dataset:
        """All matrices of a kind as one node; z and q are those of all of them."""
        joined: Variables = {}
        for name, (dims, first) in parts[0].items():
            values = first if dims == ("side",) else np.concatenate([part[name][1] for part in parts])
            joined[name] = (dims, values)
        for name in STATISTICS:
            dims, values = joined[name]
            null, sd = joined[f"{name}_null"][1], joined[f"{name}_null_sd"][1]
            with np.errstate(invalid="ignore", divide="ignore"):
                joined[f"{name}_z"] = (dims, (values - null) / sd)
            joined[f"{name}_q"] = (dims, q_values(joined[f"{name}_p"][1]))
        k = joined["top_mass"][1].shape[1]
        own = {"direction": np.arange(1, k + 1), "side": list(sides), "end": ["high", "low"]}
        return xr.Dataset(joined, coords={**coords, **own})


def _head_axis(labels: list[HeadLabel]) -> dict[str, Any]:
    return {
        "head": ("head", np.array([str(label) for label in labels], dtype=object)),
        "head_layer": ("head", np.array([label.layer for label in labels])),
        "head_index": ("head", np.array([label.head for label in labels])),
    }


def _signs(readings: list[Reading]) -> np.ndarray:
    """+1 where the token with the largest |z| over all these sides is at the high end, else -1."""
    high = np.stack([reading.z[:, 0, 0] for reading in readings])
    low = np.stack([-reading.z[:, 1, 0] for reading in readings])
    return np.where(np.nan_to_num(high).max(0) >= np.nan_to_num(low).max(0), 1.0, -1.0)


def _joined(texts: np.ndarray) -> np.ndarray:
    """The tokens of each direction in one text; a leading space is shown as `␣`, line ends are escaped."""
    lines = [JOIN.join(_shown(text) for text in row if text) for row in texts]
    return np.array(lines, dtype=object)


def _shown(text: str) -> str:
    spelled = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"␣{spelled[1:]}" if spelled.startswith(" ") else spelled


def _mlp_names(heads: Heads) -> tuple[str, ...]:
    mlp = heads.stack.mlp
    if mlp is None or "MLP" not in heads.reader.stored.parts:
        raise ArgumentError("neurons: this checkpoint has no MLP")
    return ("W_gate", "W_in", "W_out") if mlp.fused or len(mlp.reads) > 1 else ("W_in", "W_out")


def _neuron_vectors(heads: Heads, neuron: Neuron) -> list[Tensor]:
    """What a neuron reads (gate and up, or one) and writes, [d_model] each."""
    mlp = heads.stack.mlp
    width = 0 if mlp is None else mlp.width
    if neuron.layer not in heads.layers or neuron.index >= width:
        last = Neuron(heads.layers[-1], width - 1)
        raise ArgumentError(f"{neuron} does not exist: neurons are {Neuron(heads.layers[0], 0)} to {last}")
    weights = heads.mlp(neuron.layer)
    return [*(W[:, neuron.index] for W in weights.W_in), weights.W_out[neuron.index]]
