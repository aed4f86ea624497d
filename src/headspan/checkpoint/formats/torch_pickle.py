"""The pickle inside a torch checkpoint, interpreted without importing or calling anything it names.

`torch.save` describes a state dict as a small pickle program: build a dict, name each storage, call
`torch._utils._rebuild_tensor_v2` on it. This module runs exactly the opcodes such a program uses, on a stack of plain
Python values. A global is never looked up: its name is compared with a fixed list, and a name that is not on the list
ends the reading. So a pickle that would run code when loaded is refused here before torch sees it.

1. `pickletools.genops` decodes one opcode at a time; the number of opcodes is bounded.
2. Values live on a stack and in a memo, as the pickle machine defines them.
3. REDUCE applies one of our own builders; dict keys must be text or whole numbers.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import IO, Any, BinaryIO, cast

from headspan.checkpoint.formats.tensors import DTYPES
from headspan.errors import CheckpointError

MAX_OPCODES = 5_000_000
MAX_PICKLE_BYTES = 64 * 2**20
MAX_DIMS = 32
MAX_LENGTH = 2**60
"""Of a dimension, a storage and a file."""

STORAGES: Mapping[str, str] = {
    f"{module}.{storage}": name for name, _, _, storage in DTYPES if storage for module in ("torch", "torch.storage")
}
"""The storage classes that a pickle may name, with the dtype of their numbers."""
_LITERALS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT"}
    | {"BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINSTRING", "SHORT_BINSTRING"}
)
_MEMO_WRITES = frozenset({"BINPUT", "LONG_BINPUT", "PUT"})
_MEMO_READS = frozenset({"BINGET", "LONG_BINGET", "GET"})


@dataclass(frozen=True)
class Global:
    """A name the pickle refers to; only ever compared, never imported."""

    name: str


@dataclass(frozen=True)
class Storage:
    """One flat run of numbers in the file."""

    dtype: str
    key: str
    n_items: int


@dataclass(frozen=True)
class PickledTensor:
    """A tensor as its storage, offset, shape and strides (in items)."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def last_item(self) -> int:
        """Index in the storage just past the tensor's last item."""
        if prod(self.shape) == 0:
            return self.offset
        return self.offset + 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))


class _Mark:
    """Where a pickle's MARK opcode stands on the stack."""


class _Limited:
    """A file that hands out a bounded number of bytes, so that a length claimed in a pickle allocates nothing."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.left = file, MAX_PICKLE_BYTES

    def read(self, n: int) -> bytes:
        return self._counted(self.file.read(min(n, self.left)))

    def readline(self) -> bytes:
        return self._counted(self.file.readline(self.left))

    def _counted(self, content: bytes) -> bytes:
        self.left -= len(content)
        return content


def pickled_value(file: BinaryIO, place: str) -> Any:
    """The value of the pickle that `file` is positioned at, tensors as `PickledTensor`."""
    try:
        with warnings.catch_warnings():
            # Damaged text makes the decoder warn about escapes; what matters is whether it is a state dict.
            warnings.simplefilter("ignore")
            return _run(_Limited(file))
    except CheckpointError as problem:
        raise CheckpointError(f"{place}: {problem}") from problem
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as problem:
        raise CheckpointError(
            f"{place} is not a state dict saved by torch, or is damaged ({type(problem).__name__}: {problem})"
        ) from problem


def _run(file: _Limited) -> Any:
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(cast("IO[bytes]", file))):
        if count > MAX_OPCODES:
            raise CheckpointError(f"its pickle has over {MAX_OPCODES:,} opcodes, more than any state dict")
        if opcode.name == "STOP":
            return stack.pop()
        if opcode.name in _LITERALS:
            stack.append(argument)
        elif opcode.name in _MEMO_WRITES:
            memo[argument] = stack[-1]
        elif opcode.name in _MEMO_READS:
            stack.append(memo[argument])
        elif opcode.name in _ACTIONS:
            _ACTIONS[opcode.name](stack, argument)
        else:
            raise CheckpointError(f"its pickle uses the opcode {opcode.name}, which no state dict needs")
    raise ValueError("the pickle has no end")


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    for index in range(len(stack) - 1, -1, -1):
        if isinstance(stack[index], _Mark):
            items = stack[index + 1 :]
            del stack[index:]
            return items
    raise ValueError("MARK is missing")


def _pop_last(stack: list[Any], n: int) -> list[Any]:
    if len(stack) < n:
        raise ValueError("the stack is too short")
    items = stack[len(stack) - n :]
    del stack[len(stack) - n :]
    return items


def _store(stack: list[Any], pairs: list[Any]) -> None:
    target = stack[-1]
    if not isinstance(target, dict):
        raise ValueError("an item is set on something that is not a dict")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        # Hashing a deeply nested tuple would overflow the C stack, so only plain keys are taken.
        if not isinstance(key, str | int):
            raise CheckpointError("its pickle has a dict key that is neither text nor a number")
        target[key] = value


def _append(stack: list[Any], items: list[Any]) -> None:
    target = stack[-1]
    if not isinstance(target, list):
        raise ValueError("an item is appended to something that is not a list")
    target.extend(items)


def _persistent(stack: list[Any], _: Any) -> None:
    kind, storage_type, key, _location, n_items, *_rest = stack.pop()
    if kind != "storage" or not isinstance(storage_type, Global) or not isinstance(n_items, int):
        raise ValueError("a persistent id is not a storage")
    if storage_type.name not in STORAGES:
        raise CheckpointError(f"its pickle has storage of type {storage_type.name}, which headspan does not read")
    if not 0 <= n_items <= MAX_LENGTH:
        raise ValueError("a storage has a length that no file has")
    stack.append(Storage(STORAGES[storage_type.name], str(key), n_items))


def _tensor(storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    numbers = (offset, *shape, *strides)
    if len(numbers) > 2 * MAX_DIMS + 1:
        raise ValueError(f"a tensor has {len(shape):,} dims; no real one has more than {MAX_DIMS}")
    if not isinstance(storage, Storage) or not all(isinstance(n, int) and 0 <= n <= MAX_LENGTH for n in numbers):
        raise ValueError("a tensor is described by something other than whole numbers")
    tensor = PickledTensor(storage, offset, tuple(shape), tuple(strides))
    if len(tensor.shape) != len(tensor.strides) or tensor.last_item > storage.n_items:
        raise ValueError(f"a tensor of shape {tensor.shape} reaches beyond its storage of {storage.n_items} items")
    return tensor


_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "collections.OrderedDict": lambda *_: {},
}


def _global(stack: list[Any], argument: str) -> None:
    name = argument.replace(" ", ".", 1)
    if name not in _BUILDERS and name not in STORAGES:
        raise CheckpointError(
            f"its pickle refers to '{name}', which is not part of a state dict; headspan runs no code from a "
            "checkpoint: save the weights alone (torch.save(model.state_dict(), ...) or safetensors)"
        )
    stack.append(Global(name))


def _reduce(stack: list[Any], _: Any) -> None:
    arguments, function = stack.pop(), stack.pop()
    if not isinstance(function, Global) or function.name not in _BUILDERS or not isinstance(arguments, tuple):
        raise ValueError("something is called that is not a function of a state dict")
    stack.append(_BUILDERS[function.name](*arguments))


_ACTIONS: Mapping[str, Callable[[list[Any], Any], object]] = {
    "PROTO": lambda stack, _: None,
    "FRAME": lambda stack, _: None,
    "NONE": lambda stack, _: stack.append(None),
    "NEWTRUE": lambda stack, _: stack.append(True),
    "NEWFALSE": lambda stack, _: stack.append(False),
    "MARK": lambda stack, _: stack.append(_Mark()),
    "EMPTY_DICT": lambda stack, _: stack.append({}),
    "EMPTY_LIST": lambda stack, _: stack.append([]),
    "EMPTY_TUPLE": lambda stack, _: stack.append(()),
    "TUPLE1": lambda stack, _: stack.append(tuple(_pop_last(stack, 1))),
    "TUPLE2": lambda stack, _: stack.append(tuple(_pop_last(stack, 2))),
    "TUPLE3": lambda stack, _: stack.append(tuple(_pop_last(stack, 3))),
    "TUPLE": lambda stack, _: stack.append(tuple(_pop_to_mark(stack))),
    "LIST": lambda stack, _: stack.append(_pop_to_mark(stack)),
    "SETITEM": lambda stack, _: _store(stack, _pop_last(stack, 2)),
    "SETITEMS": lambda stack, _: _store(stack, _pop_to_mark(stack)),
    "APPEND": lambda stack, _: _append(stack, _pop_last(stack, 1)),
    "APPENDS": lambda stack, _: _append(stack, _pop_to_mark(stack)),
    "GLOBAL": _global,
    "BINPERSID": _persistent,
    "REDUCE": _reduce,
    # It sets attributes, such as an OrderedDict's `_metadata`; they carry no weights.
    "BUILD": lambda stack, _: _pop_last(stack, 1),
}
