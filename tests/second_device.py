"""A second device on a machine that has one: tensors that say they are elsewhere, and refuse to meet those of the CPU.

1. `ELSEWHERE` is torch's private device type under a name of our own; to import this module registers it, for good.
2. A tensor there is a wrapper around a CPU tensor: operations unwrap, compute and wrap again, so that values are real.
   It has no memory that numpy could read: `.numpy()` without `.cpu()` fails as on a GPU.
3. An operation on tensors of both places fails, with the exceptions that torch makes for a GPU: scalars without
   dimensions, copies from one to the other, and indices on the CPU.
4. A generator of one place does not draw for the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("elsewhere")
ELSEWHERE = torch.device("elsewhere:0")
_aten = torch.ops.aten
MEETING = {_aten.copy_.default, _aten._to_copy.default, _aten.index.Tensor}
"""Operations that take tensors of two devices."""
INDICES = {_aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default}


class Elsewhere(torch.Tensor):
    """A tensor on the second device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=ELSEWHERE,
            requires_grad=inner.requires_grad,
        )
        made.inner = inner
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Elsewhere({self.inner!r})"

    def tolist(self) -> Any:
        """Numbers; torch copies them from any device."""
        return self.inner.tolist()

    def data_ptr(self) -> int:
        """Different for different tensors, as on a GPU."""
        return self.inner.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """A copy with memory of its own; of a parameter, a parameter."""
        copied: torch.Tensor = Elsewhere(self.inner.detach().clone())
        memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if getattr(self, "_is_param", False) else copied
        return memo[id(self)]

    def numpy(self, *, force: bool = False) -> Any:
        """As on a GPU: only by force, or after `.cpu()`."""
        if not force:
            raise TypeError(f"can't convert {ELSEWHERE} device type tensor to numpy. Use Tensor.cpu() first")
        return self.inner.numpy(force=True)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _performed(func, args, kwargs or {})


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **layout: Any) -> torch.Tensor:
    """What C++ asks a device for when it makes a tensor out of a list."""
    return Elsewhere(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """How C++ fills it."""
    _inner(target).copy_(_inner(source))
    return target


_library = torch.library.Library("aten", "IMPL")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")


class SecondDevice(TorchDispatchMode):
    """Makes tensors there, where an operation without tensors asks for it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _performed(func, args, kwargs or {})


def _performed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    ours = [leaf for leaf in leaves if isinstance(leaf, Elsewhere)]
    asked = kwargs.get("device")
    there = bool(ours) if asked is None else torch.device(asked).type == ELSEWHERE.type
    if ours:
        _check(func, args, [leaf for leaf in leaves if not isinstance(leaf, Elsewhere)])
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain_args, plain_kwargs = tree_map(_inner, (args, kwargs))
    found = func(*plain_args, **plain_kwargs)
    if func is _aten._to_copy.default and asked is not None and found is plain_args[0]:
        found = found.clone()
    before = {id(leaf.inner): leaf for leaf in ours}
    into = args[0] if func is _aten.copy_.default else None
    if isinstance(into, torch.Tensor):
        return into
    return tree_map(lambda leaf: _placed(leaf, there, before), found)


def _inner(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, Elsewhere) else leaf


def _placed(leaf: Any, there: bool, before: dict[int, Elsewhere]) -> Any:
    if not isinstance(leaf, torch.Tensor) or not there:
        return leaf
    return before.get(id(leaf)) if id(leaf) in before else Elsewhere(leaf)


def _check(func: Any, args: Any, others: list[torch.Tensor]) -> None:
    """Fail where a tensor of the CPU that is not a scalar meets one from elsewhere."""
    if func in MEETING:
        return
    if func in INDICES:
        others = [leaf for leaf in others if not any(leaf is index for index in args[1])]
    met = [tuple(leaf.shape) for leaf in others if leaf.dim()]
    if met:
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, found one of {met} on the CPU")


class Generator(torch.Generator):
    """A generator that remembers for which device it was asked."""

    elsewhere: bool

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls, "cpu")
        made.elsewhere = torch.device(device).type == ELSEWHERE.type
        return made


class CheckedGenerators(TorchFunctionMode):
    """Refuses to draw for one device with a generator of the other."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        generator, asked = (kwargs or {}).get("generator"), (kwargs or {}).get("device")
        if isinstance(generator, Generator):
            there = any(isinstance(one, Elsewhere) for one in args)
            there = there if asked is None else torch.device(asked).type == ELSEWHERE.type
            if generator.elsewhere != there:
                raise RuntimeError(f"{func.__name__}: the generator is not on the device of the tensor")
        return func(*args, **(kwargs or {}))


@contextmanager
def second_device() -> Iterator[str]:
    """The name of the second device, while there is one."""
    with SecondDevice(), CheckedGenerators(), mock.patch.object(torch, "Generator", Generator):
        yield str(ELSEWHERE)
