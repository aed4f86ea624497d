"""What the ranks of a model's heads say."""

from __future__ import annotations

import xarray as xr

from headspan.dims import LAYER, ROLES, HeadLabel, Role, head_axis
from headspan.finding import Finding


def findings(result: xr.Dataset) -> list[Finding]:
    """One finding per role that has deficient heads, or a single one that says there are none."""
    deficient = {role: _deficient(result, role) for role in ROLES}
    tolerance = f"Singular values below {result.attrs['tolerance']:.1e} of the largest count as zero."
    if not any(deficient.values()):
        n_heads = sum(result[f"rank_{role}"].size for role in ROLES)
        statement = f"All {n_heads} head matrices have full rank."
        return [Finding("ranks", statement, value=0.0, chance=0.0, evidence=tolerance)]
    return [_finding(result, role, labels, tolerance) for role, labels in deficient.items() if labels]


def _deficient(result: xr.Dataset, role: Role) -> list[tuple[str, int]]:
    """Labels and ranks of the heads whose matrix of this role lacks directions, lowest rank first."""
    ranks, full = result[f"rank_{role}"], int(result[f"full_rank_{role}"])
    axis = head_axis(role)
    grouped = axis in result.sizes and result.sizes[axis] != result.sizes["head"]
    found = [
        (str(HeadLabel(int(layer), head, kv=grouped)), int(ranks.sel({LAYER: layer}).values[head]))
        for layer in result[LAYER].values
        for head in range(ranks.sizes[axis])
        if int(ranks.sel({LAYER: layer}).values[head]) < full
    ]
    return sorted(found, key=lambda item: item[1])


def _finding(result: xr.Dataset, role: Role, labels: list[tuple[str, int]], tolerance: str) -> Finding:
    full, n_heads = int(result[f"full_rank_{role}"]), result[f"rank_{role}"].size
    named = ", ".join(f"{label} ({rank})" for label, rank in labels[:5])
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return Finding(
        lens="ranks",
        statement=f"{len(labels)} of {n_heads} heads have a W_{role} below full rank {full}: {named}{more}.",
        value=float(len(labels)),
        chance=0.0,
        evidence=tolerance,
        weight=0.5,
    )
