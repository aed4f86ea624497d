"""Every error raised on purpose.

A message says what was needed, what was found, and what to do next, in one line. Names that come out of a file
(tensor names, paths) can hold anything, so control characters are escaped before the message is stored: an error
always prints as a single line.
"""

from __future__ import annotations

LONGEST = 2_000
"""Characters of a message; a name out of a file can have thousands, and its middle is left out."""


def one_line(text: object) -> str:
    """`text` with line breaks and other unprintable characters written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))


class HeadspanError(Exception):
    """Something headspan was asked to do cannot be done; the message says why and what to do instead."""

    def __init__(self, message: str) -> None:
        line = one_line(message)
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 4 :]}")


class CheckpointError(HeadspanError):
    """A checkpoint's files are missing, broken, or contradict one another."""


class HubError(CheckpointError):
    """The Hub, or a host it leads to, could not be reached, refused, or answered something that cannot be used."""


class MissingTensor(CheckpointError):
    """A tensor that was asked for is not in the checkpoint (a partial checkpoint opens all the same)."""


class UnsupportedModel(HeadspanError):
    """The files are in order, but headspan has no description for this kind of model or weight format."""


class ArgumentError(HeadspanError, ValueError):
    """A wrong choice of the caller; the message names the argument, what was given, and the allowed values."""


class ShapeError(HeadspanError):
    """The shape of an array does not fit."""


class NotRun(HeadspanError):
    """The model is not run for a report or a sweep; the message says why."""


class FoldError(HeadspanError):
    """Folding or centring was asked for where it would change what the model computes."""


class DegenerateSubspace(HeadspanError):
    """A subspace has no direction, or not enough, for the quantity to be defined."""


class MemoryBudgetError(HeadspanError):
    """The smallest unit of work is larger than the memory budget."""


class StoreError(HeadspanError):
    """The place where a sweep keeps its results is another's, in use, damaged, or cannot take any more."""


class SchemaError(HeadspanError):
    """A lens's result and its declaration do not agree: a mistake of whoever wrote the lens."""


class TimeLimit(HeadspanError):
    """An analysis took longer than it may."""


class BrokenCheck(HeadspanError):
    """A check of the claims ledger does not try what it should, or compares something that is not a number."""


class LongWork(UserWarning):
    """What was asked for takes long; the message estimates how long."""


class DamagedFile(UserWarning):
    """A kept file was damaged; the message says what is used instead."""


class NotFollowed(UserWarning):
    """A step of a training run was not looked at, or not by every lens; training goes on."""


class UnknownTokens(UserWarning):
    """A tokenizer does not fit its model, or knows little of a prompt: results say little about the text."""


class UnverifiedFamily(UserWarning):
    """The weights are read by a guess at their layout that has not been checked against the running model."""
