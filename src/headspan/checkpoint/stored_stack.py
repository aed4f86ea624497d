"""A family's stack as one checkpoint stores it: every tensor's stored name and the shape its config implies.

A family names tensors relative to the model's root (`h.0.attn.c_attn.weight`). A checkpoint may put a wrapper's name
before them (`transformer.`), or several. The prefix is found once, from the query tensor of any layer, and tables that
live outside the root (`lm_head.weight`) are looked for at every level above it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from headspan.checkpoint.families import HeadNorm, Linear, Norm, Projection, Stack
from headspan.checkpoint.formats.tensors import TensorInfo, check_readable
from headspan.dims import ROLES, Role
from headspan.errors import CheckpointError, MissingTensor

OTHER_SENSES = re.compile(r"vision|visual|image|audio|speech")
"""Words in the prefix of a tower that sees or hears, beside the language model in one checkpoint."""
Parts = frozenset[str]


@dataclass(frozen=True)
class StoredNames:
    """The names of one stack's tensors as this checkpoint spells them."""

    infos: Mapping[str, TensorInfo]
    prefix: str
    place: str

    @classmethod
    def of(cls, infos: Mapping[str, TensorInfo], stack: Stack, place: str) -> StoredNames | None:
        """The spelling of `stack` in a checkpoint, or None where it has no query tensor of any layer."""
        prefixes = _prefixes(infos, stack)
        if len(prefixes) > 1 and stack.name != "vision":
            prefixes = {prefix for prefix in prefixes if not OTHER_SENSES.search(prefix)} or prefixes
        if len(prefixes) > 1:
            raise CheckpointError(
                f"{place} holds several models, under {', '.join(map(repr, sorted(prefixes)[:4]))}; "
                "save the one to be analysed by itself"
            )
        return cls(infos, prefixes.pop(), place) if prefixes else None

    def find(self, *names: str) -> str | None:
        """The stored name of the first of these that is there, at the root or at a level above it."""
        levels = self.prefix.split(".")[:-1]
        for depth in range(len(levels), -1, -1):
            outer = "".join(level + "." for level in levels[:depth])
            for name in names:
                if outer + name in self.infos:
                    return outer + name
        return None

    def require(self, *names: str) -> TensorInfo:
        """Facts about the first of these tensors that is there; a MissingTensor that names them otherwise."""
        found = self.find(*names)
        if found is None:
            raise MissingTensor(
                f"{self.place} has no tensor '{self.prefix}{names[0]}'; it is a partial checkpoint, "
                "or its config belongs to another model"
            )
        return self.infos[found]


def _prefixes(names: Collection[str], stack: Stack) -> set[str]:
    before, _, after = stack.projections["Q"].linear.weight.partition("{layer}")
    keys = r"\d+" if not stack.layer_keys else "|".join(map(re.escape, stack.layer_keys))
    pattern = re.compile(rf"((?:[^\n]*\.)?){re.escape(before)}(?:{keys}){re.escape(after)}")
    matches = (pattern.fullmatch(name) for name in names if name.endswith(after))
    return {match[1] for match in matches if match is not None}


@dataclass(frozen=True)
class StoredStack:
    """Description and spelling together; knows what is there, what is missing, what nobody claims."""

    stack: Stack
    names: StoredNames

    def features(self, projection: Projection, role: Role) -> tuple[int, int]:
        """Input and output features of the stored matrix that holds `role`."""
        n_features, d_model = projection.rows.n_features, self.stack.d_model
        if role == "O":
            return n_features, d_model
        return (d_model if projection.latent is None else projection.latent.width), n_features

    def role_linear(self, role: Role, layer: int) -> Linear:
        """The matrix that holds `role` in `layer`, with its names written out (root prefix not included)."""
        return self.at_layer(self.stack.projections[role].linear, layer)

    def at_layer(self, linear: Linear, layer: int) -> Linear:
        """`linear` with the layer's key written into its names."""
        return linear.at(self.stack.key(layer))

    def bias_name(self, linear: Linear) -> str | None:
        """The stored name of a bias; None where the family has none in this file, an error where it must have."""
        if linear.bias is None:
            return None
        return self.names.require(linear.bias).name if linear.bias_required else self.names.find(linear.bias)

    @cached_property
    def layers_present(self) -> tuple[int, ...]:
        """Layers whose four attention matrices are all stored."""
        return tuple(
            layer
            for layer in range(self.stack.n_layers)
            if all(self.names.find(self.role_linear(role, layer).weight) for role in ROLES)
        )

    @cached_property
    def other_layers(self) -> tuple[int, ...]:
        """Layers of another kind (state spaces, convolutions): tensors are stored for them, but no attention."""
        before, _, _ = self.stack.attention.partition("{layer}")
        start = len(self.names.prefix + before)
        homes = {
            name[start:].partition(".")[0] for name in self.names.infos if name.startswith(self.names.prefix + before)
        }
        return tuple(
            layer
            for layer in range(self.stack.n_layers)
            if self.stack.key(layer) in homes
            and not any(self.names.find(self.role_linear(role, layer).weight) for role in ROLES)
        )

    @cached_property
    def attention_layers(self) -> tuple[int, ...]:
        """All layers but those of another kind, whether their attention is stored or missing."""
        others = set(self.other_layers)
        return tuple(layer for layer in range(self.stack.n_layers) if layer not in others)

    def check_attention(self, method: str | None) -> None:
        """Hold every stored attention matrix against the config: its shape, and that its dtype is not a packed one."""
        for layer in range(self.stack.n_layers):
            for template, features in self.matrices():
                linear = self.at_layer(template, layer)
                found = self.names.find(linear.weight)
                if found is not None:
                    check_readable(self.names.infos[found], method)
                    check_shape(self.names.infos[found], stored_shape(linear, *features))

    def matrices(self) -> Iterator[tuple[Linear, tuple[int, int]]]:
        """Every distinct attention matrix of a layer, latent ones too, with its input and output features."""
        seen: dict[Linear, tuple[int, int]] = {}
        for projections in (self.stack.projections, self.stack.apart):
            for role, projection in projections.items():
                seen.setdefault(projection.linear, self.features(projection, role))
                if projection.latent is not None:
                    seen.setdefault(projection.latent.linear, (self.stack.d_model, projection.latent.n_features))
        yield from seen.items()

    @cached_property
    def parts(self) -> Parts:
        """What can be handed out: any of W_Q W_K W_V W_O, W_E W_pos W_U, MLP."""
        attention = {"W_Q", "W_K", "W_V", "W_O"} if self.layers_present else set()
        tables = {
            name
            for name, table in (("W_E", self.stack.tokens), ("W_pos", self.stack.position_table))
            if table is not None and self.names.find(*table.names)
        }
        if self.unembedding is not None:
            tables.add("W_U")
        mlp = {"MLP"} if self._has_mlp else set()
        return frozenset(attention | tables | mlp)

    @cached_property
    def unembedding(self) -> str | None:
        """Stored name of the unembedding; the token table where the two are tied and only one is stored."""
        if self.stack.unembedding is None:
            return None
        own = self.names.find(*self.stack.unembedding.names)
        if own is None and self.stack.tied and self.stack.tokens is not None:
            return self.names.find(*self.stack.tokens.names)
        return own

    @property
    def _has_mlp(self) -> bool:
        mlp = self.stack.mlp
        return mlp is not None and all(
            self.names.find(self.at_layer(linear, layer).weight)
            for layer in self.layers_present
            for linear in (*mlp.reads, mlp.write)
        )

    def stored_as(self) -> dict[str, list[str]]:
        """How each kind of tensor that is there is stored, in words, the most frequent way first."""
        stack, layers = self.stack, self.layers_present
        attention = [linear for linear, _ in self.matrices()]
        mlp = [] if stack.mlp is None else [*stack.mlp.reads, stack.mlp.write]
        names: dict[str, list[str | None]] = {
            kind: [self.names.find(self.at_layer(linear, layer).weight) for linear in linears for layer in layers]
            for kind, linears in (("Attention", attention), ("MLP", mlp))
        }
        for kind, table in (("W_E", stack.tokens), ("W_pos", stack.position_table)):
            names[kind] = [] if table is None else [self.names.find(*table.names)]
        names["W_U"] = [self.unembedding]
        ways = {kind: Counter(self.names.infos[n].stored_as for n in found if n) for kind, found in names.items()}
        return {kind: [way for way, _ in counted.most_common()] for kind, counted in ways.items() if counted}

    def missing(self) -> list[str]:
        """What the family has and this checkpoint lacks, in words."""
        lacking = []
        absent = len(self.attention_layers) - len(self.layers_present)
        if absent:
            lacking.append(f"attention of {absent} of {self.stack.n_layers} layers")
        expected = {"W_E": self.stack.tokens, "W_pos": self.stack.position_table, "W_U": self.stack.unembedding}
        lacking += [name for name, table in expected.items() if table is not None and name not in self.parts]
        if self.stack.mlp is not None and "MLP" not in self.parts:
            lacking.append("MLP")
        return lacking

    def claimed(self) -> Iterator[str]:
        """Stored names of this stack's attention tensors, each as often as a distinct part of the stack claims it."""
        for layer in range(self.stack.n_layers):
            for template, _ in self.matrices():
                linear = self.at_layer(template, layer)
                yield from (name for name in (linear.weight, linear.bias) if name and self.names.find(name))
            yield from filter(self.names.find, self._other_names(layer))

    def _other_names(self, layer: int) -> Iterator[str]:
        """Names of what stands beside the matrices: norms of latents, queries and keys, sinks, position terms."""
        stack, key = self.stack, self.stack.key(layer)
        latents = {p.latent for ps in (stack.projections, stack.apart) for p in ps.values() if p.latent is not None}
        for latent in latents:
            yield from norm_names(latent.norm, key)
        for norm, heads in ((stack.query_norm, stack.n_heads), (stack.key_norm, stack.n_kv_heads)):
            if norm is not None:
                yield from head_norm_names(norm, key, heads)
        if stack.sinks is not None:
            yield stack.sinks.format(layer=key)
        home = stack.attention.format(layer=key)
        yield from (home + name for name in stack.position_terms)

    def unclaimed(self) -> list[str]:
        """Tensors stored beside the attention matrices that no role, norm or known buffer accounts for."""
        claimed = set(self.claimed())
        strangers = []
        for layer in range(self.stack.n_layers):
            key = self.stack.key(layer)
            home = self.stack.attention.format(layer=key)
            buffers = {home + name for name in self.stack.buffers}
            known = claimed | set(norm_names(self.stack.norm, key)) | buffers
            strangers += [name for name in self._by_home.get(home, ()) if name not in known]
        return strangers

    @cached_property
    def _by_home(self) -> Mapping[str, list[str]]:
        """Names under each layer's attention prefix, relative to the root."""
        prefix = self.names.prefix
        homes: dict[str, list[str]] = {}
        depth = self.stack.attention.format(layer=self.stack.key(0)).count(".")
        for name in self.names.infos:
            if name.startswith(prefix):
                relative = name[len(prefix) :]
                home = ".".join(relative.split(".")[:depth]) + "."
                homes.setdefault(home, []).append(relative)
        return homes


def norm_names(norm: Norm, key: str) -> Iterator[str]:
    """The names a norm's tensors may have in the layer with that key."""
    return (name.format(layer=key) for name in (*norm.weight, *norm.bias))


def head_norm_names(norm: HeadNorm, key: str, n_heads: int) -> Iterator[str]:
    """The names of a norm of queries or keys, one by one where each head stores its own."""
    for template in filter(None, (norm.weight, norm.bias)):
        heads = range(n_heads) if "{head}" in template else (0,)
        yield from (template.format(layer=key, head=head) for head in heads)


def stored_shape(linear: Linear, n_in: int, n_out: int) -> tuple[int, int]:
    return (n_in, n_out) if linear.stored == "in_out" else (n_out, n_in)


def check_shape(info: TensorInfo, expected: tuple[int, ...]) -> None:
    """Raise unless the stored shape is the one the config implies."""
    if info.shape != expected:
        raise CheckpointError(
            f"tensor '{info.name}' has shape {info.shape}, but the config implies {expected}; "
            "the config belongs to another model, or the file is damaged"
        )
