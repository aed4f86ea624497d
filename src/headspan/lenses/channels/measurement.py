r"""Channels between heads: which rank-one paths lead from one head through another, how strong, and what they carry.

Of a model: the leading channel of every pair that composes (`pair_cores`) beside its nulls (`pair_null`), and the
strongest of them with directions and tokens (`channel_list`). Where all pairs would take hours, those of the pairs that
affinity finds strongest. Of one pair: its whole spectrum, channel by channel, and its scores (`one_pair`). Where it is
asked for, what the running model does without them (`use`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING, KV_ROLES, HeadLabel, parse_pairings
from headspan.errors import ArgumentError, DegenerateSubspace
from headspan.heads import Heads
from headspan.heads.channels import check_pair
from headspan.heads.logits import check_delta
from headspan.heads.memory import memory_bytes
from headspan.heads.norms import fold_label
from headspan.heads.precision import pair_dtype
from headspan.lenses.channels.candidates import candidate_channels
from headspan.lenses.channels.channel_list import ChannelReader, Wanted, channel_dataset, token_variables
from headspan.lenses.channels.one_pair import pair_nodes, pair_scores, with_channels
from headspan.lenses.channels.pair_cores import Order, PairTables, pair_tables
from headspan.lenses.channels.pair_null import pairing_dataset
from headspan.lenses.channels.schema import DERIVED, HAAR, TWO_WAY
from headspan.statistics.two_way_fit import obstacle as two_way_obstacle

SHARED = "passes run through shared layers, so that pairs in both orders have the same channels"
MOST_OPERATIONS = 4e14
"""About two hours of one core: above it, all pairs are decomposed only if that is asked for."""
TOKEN_DRAWS = 200


def measure(
    heads: Heads,
    *,
    src: HeadLabel | None = None,
    dst: HeadLabel | None = None,
    pairings: str | Sequence[str] | None = None,
    null: str = TWO_WAY,
    algorithm: str = "auto",
    top: int = 20,
    used: Sequence[str] = (),
    vocabulary: bool = True,
    delta: int = 0,
    tolerance: float | None = None,
    fold: str = "auto",
    draws: int = 1000,
    seed: int = 0,
    memory: int | str = "4GB",
    dtype: Any = None,
) -> xr.DataTree:
    """`headspan.channels` on heads: of one pair where `src` and `dst` are given, else of all pairs that compose."""
    if heads.unrolled().n_layers < 2:
        raise DegenerateSubspace("nothing composes: there is only one layer, and a head talks to heads of later layers")
    check_delta(heads, delta)
    folded = heads.folded() if fold == "auto" else heads
    reader = ChannelReader(folded.unrolled(), delta)
    attrs: dict[str, Any] = {"fold": fold_label(folded.fold, folded.center), "delta": delta, "seed": seed, "top": top}
    if src is not None and dst is not None:
        check_pair(heads.unrolled(), src, dst)
        wanted = known_pairings(heads, "all" if pairings is None else pairings)
        settings = {"delta": delta, "tolerance": tolerance, "memory": memory, "dtype": dtype}
        nodes, more = _one_pair(heads, reader, (src, dst), wanted, settings, (top, draws, seed))
        attrs |= more | {"src": str(src), "dst": str(dst), "null": HAAR, "command": _command(heads, src, dst, settings)}
    else:
        wanted = with_channels(known_pairings(heads, COMPOSING if pairings is None else pairings))
        computed = folded.to(dtype or pair_dtype(folded, _operations(folded, wanted, "different")))
        nodes, more = _all_pairs(computed, reader, wanted, (null, algorithm, top, delta, seed), memory_bytes(memory))
        attrs |= more
    if vocabulary:
        for pairing in COMPOSING:
            if f"top/{pairing}" in nodes:
                node = nodes[f"top/{pairing}"]
                tokens = token_variables(folded, node, pairing, TOKEN_DRAWS, seed, memory_bytes(memory))
                nodes[f"top/{pairing}"] = node.assign(tokens)
    if used and src is not None and dst is not None:
        from headspan.lenses.channels.use import use_nodes

        found, told = use_nodes(heads, src, tuple(used), with_channels(wanted), seed)
        nodes, attrs = nodes | found, attrs | told
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def known_pairings(heads: Heads, pairings: str | Sequence[str]) -> tuple[str, ...]:
    """The pairings asked for; in cross-attention those whose two roles live in one stream."""
    wanted = parse_pairings(pairings)
    if not heads.stack.reads_memory:
        return wanted
    shared = tuple(pairing for pairing in wanted if (pairing[0] in KV_ROLES) == (pairing[1] in KV_ROLES))
    if not with_channels(shared):
        raise ArgumentError("in cross-attention K and V read the encoder's output: channels lead through OQ alone")
    return shared


def _one_pair(
    heads: Heads,
    reader: ChannelReader,
    pair: tuple[HeadLabel, HeadLabel],
    wanted: Sequence[str],
    settings: dict[str, Any],
    counts: tuple[int, int, int],
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    scores, attrs = pair_scores(heads, *pair, wanted, settings)
    nodes: dict[str, xr.Dataset] = {}
    for pairing in with_channels(wanted):
        nodes[f"top/{pairing}"], spectrum = pair_nodes(reader, *pair, pairing, *counts)
        scores[pairing] = scores[pairing].assign(spectrum)
    return nodes | {f"pair/{pairing}": node for pairing, node in scores.items()}, attrs | {"dtype": "float64"}


def _command(heads: Heads, src: HeadLabel, dst: HeadLabel, settings: dict[str, Any]) -> str:
    fold = "" if heads.fold == "none" else f" --fold {heads.fold}"
    told = f"headspan pair {shlex.quote(heads.checkpoint.source)} {src} {dst}{fold}"
    told += f" --delta {settings['delta']}" if settings["delta"] else ""
    return told + ("" if settings["tolerance"] is None else f" --tolerance {settings['tolerance']}")


def _all_pairs(
    heads: Heads,
    reader: ChannelReader,
    wanted: Sequence[str],
    settings: tuple[str, str, int, int, int],
    memory: int,
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """A table of all pairs for every pairing with its strongest channels; or the latter alone in a large model."""
    null, algorithm, top, delta, seed = settings
    nulls, reason = _nulls(heads, null)
    attrs: dict[str, Any] = {"null": nulls[0], "dtype": str(heads.dtype).removeprefix("torch.")}
    attrs |= {"null_reason": reason} if reason else {}
    order: Order = "all" if heads.stack.passes else "different" if TWO_WAY in nulls else "composing"
    costly = _operations(heads, wanted, order) > MOST_OPERATIONS
    attrs["algorithm"] = ("candidates" if costly else "exact") if algorithm == "auto" else algorithm
    if attrs["algorithm"] == "candidates":
        attrs |= {"null": HAAR, "null_reason": "the two-way null is fitted to all pairs, and candidates are a few"}
        found = candidate_channels(heads, reader, wanted, top, seed, memory)
        return {f"top/{pairing}": node for pairing, node in found.items()}, attrs
    nodes: dict[str, xr.Dataset] = {}
    for pairing, tables in pair_tables(heads, wanted, order, delta, memory).items():
        node = pairing_dataset(heads.unrolled(), _by_pass(heads, tables), nulls, seed)
        nodes |= {pairing: node, f"top/{pairing}": _strongest(reader, node, pairing, top)}
    return nodes, attrs


def _nulls(heads: Heads, null: str) -> tuple[tuple[str, ...], str]:
    """The nulls of a model, the one to show first, and why two-way is not among them where it was asked for."""
    small = two_way_obstacle(heads.n_layers, heads.n_heads, heads.n_heads)
    obstacle = SHARED if heads.stack.passes else small
    if null == TWO_WAY and obstacle is None:
        return (TWO_WAY, HAAR), ""
    return (HAAR,), "" if null == HAAR else str(obstacle)


def _operations(heads: Heads, wanted: Sequence[str], order: Order) -> float:
    """Of all cores and their eigenvalues; a decomposition is counted by the time that it takes."""
    layers, p, q = heads.n_layers, heads.d_value, max(heads.d_head, heads.d_value)
    pairs = heads.n_heads**2 * layers * (layers - 1) / (2 if order == "composing" else 1)
    return len(wanted) * pairs * (2 * heads.d_model * p * q + 24 * p**3)


def _by_pass(heads: Heads, found: PairTables) -> PairTables:
    if not heads.stack.passes:
        return found
    places = [heads.layers.index(layer) for layer in heads.stack.passes if layer in heads.layers]
    return found.by_pass(places, heads.n_heads)


def _strongest(reader: ChannelReader, node: xr.Dataset, pairing: str, top: int) -> xr.Dataset:
    """The leading channels that stand out most from the first null, with what all nulls say of them."""
    z = node["coupling_z"].values[0]
    known = np.flatnonzero(~np.isnan(z).ravel())
    best = known[np.argsort(-z.ravel()[known], kind="stable")[:top]]
    layers = np.asarray(node["src_layer"].values)
    places = [np.unravel_index(place, z.shape) for place in best]
    wanted = [
        Wanted(HeadLabel(int(layers[a]), int(b)), HeadLabel(int(layers[c]), int(d)), pairing) for a, b, c, d in places
    ]
    if not wanted:
        raise ArgumentError(f"no pair of {pairing} has a channel: every circuit on one side is zero")
    derived = {
        f"coupling_{what}": (
            ("null", "channel"),
            node[f"coupling_{what}"].values.reshape(node.sizes["null"], -1)[:, best],
        )
        for what in DERIVED
    }
    return channel_dataset(reader, wanted).assign(derived).assign_coords(null=node["null"].values)
