"""Whether two checkpoints can be laid side by side, head by head; the refusal says in one line why not."""

from __future__ import annotations

from headspan.dims import ROLES
from headspan.errors import FoldError, ShapeError
from headspan.heads import Heads
from headspan.heads.norms import fold_label


def require_match(before: Heads, after: Heads) -> None:
    """Refuse heads of different families, stacks, fold states, layers or shapes."""
    facts = {
        "family": (before.checkpoint.family, after.checkpoint.family),
        "stack": (before.stack.name, after.stack.name),
    }
    for what, (first, second) in facts.items():
        if first != second:
            raise ShapeError(
                f"drift needs two checkpoints of one {what}, found {first} and {second}; compare like with like"
            )
    folds = [fold_label(heads.fold, heads.center) for heads in (before, after)]
    if folds[0] != folds[1]:
        raise FoldError(
            f"drift needs one fold state, found {folds[0]!r} before and {folds[1]!r} after; open both with one fold"
        )
    if before.layers != after.layers:
        raise ShapeError(
            f"drift needs the same layers of both, found {_counted(before)} before and {_counted(after)} after; "
            "choose layers that both have"
        )
    for role in ROLES:
        if before.shape(role) != after.shape(role):
            raise ShapeError(
                f"drift needs weights of one shape, found W_{role} [layer, head, rows, columns] as "
                f"{list(before.shape(role))} before and {list(after.shape(role))} after; compare steps of one model"
            )


def _counted(heads: Heads) -> str:
    return f"{heads.n_layers} layers ({heads.layers[0]} to {heads.layers[-1]})"
