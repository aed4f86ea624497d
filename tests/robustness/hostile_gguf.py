"""GGUF files that someone broke: an intact one of a single layer, written byte by byte, and what can go wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

U32, F32, TEXT, LIST, U64 = 4, 6, 8, 9, 10
WIDTH = 32


def text(content: str | bytes) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(content)) + content


def fact(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def number(name: str, value: int) -> bytes:
    return fact(name, U32, struct.pack("<I", value))


FACTS = (
    fact("general.architecture", TEXT, text("llama")),
    number("llama.block_count", 1),
    number("llama.embedding_length", WIDTH),
    number("llama.feed_forward_length", WIDTH),
    number("llama.attention.head_count", 2),
    fact("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
    fact("tokenizer.ggml.tokens", LIST, struct.pack("<IQ", TEXT, 3) + text("a") + text("b") + text("c")),
)


@dataclass(frozen=True)
class Tensor:
    name: str
    axes: tuple[int, ...]
    kind: int = 0
    content: bytes = b""
    offset: int | None = None
    n_axes: int | None = None


def _tensor(name: str, *axes: int) -> Tensor:
    count = 1
    for axis in axes:
        count *= axis
    return Tensor(name, axes, 0, struct.pack(f"<{count}f", *([0.5] * count)))


SQUARE = (WIDTH, WIDTH)
# Q8_0: a scale of half precision before 32 whole numbers.
PACKED = Tensor("blk.0.attn_v.weight", SQUARE, 8, (struct.pack("<e", 0.5) + bytes(range(32))) * WIDTH)
TENSORS = (
    _tensor("token_embd.weight", WIDTH, 3),
    _tensor("output_norm.weight", WIDTH),
    _tensor("blk.0.attn_norm.weight", WIDTH),
    _tensor("blk.0.ffn_norm.weight", WIDTH),
    *(_tensor(f"blk.0.{name}.weight", *SQUARE) for name in ("attn_q", "attn_k", "attn_output")),
    *(_tensor(f"blk.0.ffn_{name}.weight", *SQUARE) for name in ("gate", "up", "down")),
    PACKED,
)


@dataclass(frozen=True)
class File:
    """A GGUF file in its pieces; counts say otherwise where they are given."""

    magic: bytes = b"GGUF"
    version: int = 3
    facts: tuple[bytes, ...] = FACTS
    tensors: tuple[Tensor, ...] = TENSORS
    n_facts: int | None = None
    n_tensors: int | None = None
    order: str = "<"
    alignment: int = 32
    after: bytes = field(default=b"")

    def content(self) -> bytes:
        n_facts = len(self.facts) if self.n_facts is None else self.n_facts
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        header = self.magic + struct.pack(f"{self.order}IQQ", self.version, n_tensors, n_facts) + b"".join(self.facts)
        data = b""
        for one in self.tensors:
            data += bytes(-len(data) % self.alignment)
            offset = len(data) if one.offset is None else one.offset
            n_axes = len(one.axes) if one.n_axes is None else one.n_axes
            header += text(one.name) + struct.pack(f"<I{len(one.axes)}Q", n_axes, *one.axes)
            header += struct.pack("<IQ", one.kind, offset)
            data += one.content
        return header + bytes(-len(header) % self.alignment) + data + self.after


INTACT = File()


def broken(content: bytes | File, name: str = "model.gguf") -> Callable[[Path], None]:
    written = content.content() if isinstance(content, File) else content
    return lambda folder: (folder / name).write_bytes(written) and None


def with_fact(*facts: bytes) -> File:
    return replace(INTACT, facts=(*FACTS, *facts))


def with_tensor(index: int, **changes: object) -> File:
    tensors = list(TENSORS)
    tensors[index] = replace(tensors[index], **changes)  # type: ignore[arg-type]
    return replace(INTACT, tensors=tuple(tensors))


def several(names: Sequence[str]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes(INTACT.content())

    return make


def replaced(name: str, *facts: bytes) -> File:
    """The intact file with the fact of that name replaced."""
    return replace(INTACT, facts=(*(one for one in FACTS if text(name) not in one), *facts))


HALF = len(INTACT.content()) // 2
NAN_SCALE = replace(PACKED, content=struct.pack("<e", float("nan")) + PACKED.content[2:])
HUGE = struct.pack("<Q", 2**63)
CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "GGUF cut in its weights": (broken(INTACT.content()[:-40]), r"ends at byte .* it is truncated: download it again"),
    "GGUF cut in its header": (broken(INTACT.content()[:200]), r"model\.gguf is truncated or not a GGUF file"),
    "GGUF of four bytes": (broken(b"GGUF"), r"does not begin with 'GGUF'"),
    "GGUF that is none": (broken(b"not " + INTACT.content()[4:]), r"is not a GGUF file: it does not begin with 'GGUF'"),
    "GGUF version 1": (broken(replace(INTACT, version=1)), r"is GGUF version 1; headspan reads versions 2 and 3"),
    "GGUF version 99": (broken(replace(INTACT, version=99)), r"is GGUF version 99"),
    "GGUF the other way round": (broken(replace(INTACT, order=">")), r"is a big-endian GGUF file"),
    "GGUF with 2^60 tensors": (broken(replace(INTACT, n_tensors=2**60)), r"claims 1,152,921,504,606,846,976 tensors"),
    "GGUF with 2^60 facts": (broken(replace(INTACT, n_facts=2**60)), r"claims 1,152,921,504,606,846,976 metadata"),
    "GGUF with a list of 2^60": (
        broken(with_fact(fact("x", LIST, struct.pack("<IQ", U32, 2**60)))),
        r"'x' at byte \d+ claims 4,611,686,018,427,387,904 bytes",
    ),
    "GGUF with 2^60 texts": (
        broken(with_fact(fact("x", LIST, struct.pack("<IQ", TEXT, 2**60)))),
        r"'x' at byte \d+ claims 9,223,372,036,854,775,808 bytes",
    ),
    "GGUF with a text of 2^63": (broken(with_fact(fact("x", TEXT, HUGE))), r"claims 9,223,372,036,854,775,808 bytes"),
    "GGUF with a token of 2^63": (
        broken(with_fact(fact("x", LIST, struct.pack("<IQ", TEXT, 2) + HUGE + text("b")))),
        r"model\.gguf is truncated or not a GGUF file: 'x'",
    ),
    "GGUF with a name of 2^63": (broken(with_fact(HUGE)), r"the name of a metadata entry at byte"),
    "GGUF with nested lists": (
        broken(with_fact(fact("x", LIST, struct.pack("<IQ", LIST, 1) + struct.pack("<IQ", LIST, 1)))),
        r"'x' is a list of lists, which no model needs",
    ),
    "GGUF with a type that is none": (broken(with_fact(fact("x", 13, b""))), r"'x' has type 13, which GGUF does not"),
    "GGUF with a fact twice": (broken(with_fact(FACTS[1])), r"metadata entry 'llama\.block_count' is there twice"),
    "GGUF with a tensor twice": (
        broken(replace(INTACT, tensors=(*TENSORS, TENSORS[0]))),
        r"tensor 'token_embd\.weight' is there twice",
    ),
    "GGUF with an unknown tensor type": (broken(with_tensor(4, kind=99)), r"has the GGUF type 99, which headspan"),
    "GGUF with 5 axes": (broken(with_tensor(4, n_axes=5)), r"has 5 axes, not 1 to 4"),
    "GGUF with 2^31 axes": (broken(with_tensor(4, n_axes=2**31)), r"has 2,147,483,648 axes"),
    "GGUF with an axis of 2^62": (broken(with_tensor(4, axes=(2**62, 4))), r"is larger than the file"),
    "GGUF with half a block": (broken(with_tensor(10, axes=(16, 64))), r"rows of 16, which blocks of 32 \(Q8_0\)"),
    "GGUF with overlapping tensors": (broken(with_tensor(4, offset=0)), r"overlaps another; the header is corrupt"),
    "GGUF with an offset out of line": (broken(with_tensor(4, offset=7)), r"begins at 7, not a multiple of 32"),
    "GGUF with a far offset": (broken(with_tensor(10, offset=2**62)), r"ends at byte .* it is truncated"),
    "GGUF with alignment 0": (broken(with_fact(number("general.alignment", 0))), r"its alignment is 0, not a power"),
    "GGUF with alignment 33": (broken(with_fact(number("general.alignment", 33))), r"its alignment is 33"),
    "GGUF without architecture": (broken(replace(INTACT, facts=FACTS[1:])), r"has the GGUF architecture None"),
    "GGUF of an unknown architecture": (
        broken(replaced("general.architecture", fact("general.architecture", TEXT, text("rwkv7")))),
        r"has the GGUF architecture 'rwkv7'; headspan knows bert, bloom,",
    ),
    "GGUF with an unknown tensor": (
        broken(replace(INTACT, tensors=(*TENSORS, _tensor("blk.0.ssm_a.weight", 32)))),
        r"'blk\.0\.ssm_a\.weight', which headspan does not know of a GGUF llama",
    ),
    "GGUF without tokens": (broken(replace(INTACT, tensors=TENSORS[1:])), r"has no tensor 'token_embd\.weight'"),
    "GGUF with 0 heads": (
        broken(replaced("llama.attention.head_count", number("llama.attention.head_count", 0))),
        r"'attention\.head_count' is 0, not a whole number in 1\.\.65536",
    ),
    "GGUF with another width": (
        broken(replaced("llama.embedding_length", number("llama.embedding_length", 64))),
        r"has shape \(32, 32\), but the config implies \(64, 64\)",
    ),
    "GGUF with heads that do not divide": (
        broken(replaced("llama.attention.head_count", number("llama.attention.head_count", 3))),
        r"3 heads do not share a width of 32 evenly",
    ),
    "GGUF with layers that differ": (
        broken(
            replaced(
                "llama.attention.head_count",
                fact("llama.attention.head_count", LIST, struct.pack("<IQII", U32, 2, 2, 4)),
            )
        ),
        r"'attention\.head_count' differs from layer to layer",
    ),
    "GGUF with a part missing": (
        several(["model-00001-of-00002.gguf"]),
        r"'model-00002-of-00002\.gguf' is not in .*, though the checkpoint needs it; ",
    ),
    "GGUF that is a part by its own word": (
        broken(with_fact(number("split.count", 3), number("split.no", 1))),
        r"'model\.gguf' says that it is part 2 of 3, but 1 files are there",
    ),
    "several GGUF files": (
        several(["model-Q4.gguf", "model-Q8.gguf"]),
        r"holds several GGUF files: model-Q4\.gguf, model-Q8\.gguf; name one of them: .*model-Q4\.gguf",
    ),
}
