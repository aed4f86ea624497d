"""What the ranks of a model's heads say."""

from __future__ import annotations

import numpy as np

from headspan.dims import ROLES, Role, head_axis
from headspan.finding import Finding, rank_evidence
from headspan.result import Result


def findings(result: Result) -> list[Finding]:
    """One finding per role that has deficient heads, or a single one that says there are none."""
    deficient = {role: _deficient(result, role) for role in ROLES}
    tolerance = rank_evidence(result.attrs["tolerance"])
    if not any(deficient.values()):
        n_matrices = sum(result[f"rank_{role}"].size for role in ROLES)
        statement = f"All {n_matrices} head matrices have full rank."
        return [Finding("ranks", statement, value=0.0, expected=0.0, evidence=tolerance)]
    return [_finding(result, role, labels, tolerance) for role, labels in deficient.items() if labels]


def _deficient(result: Result, role: Role) -> list[tuple[str, int]]:
    """Labels and ranks of the heads whose matrix of this role lacks directions, lowest rank first."""
    ranks = result[f"rank_{role}"]
    labels, values = ranks[head_axis(role)].values, ranks.values
    places = np.flatnonzero(values < int(result[f"full_rank_{role}"]))
    return sorted(((str(labels[i]), int(values[i])) for i in places), key=lambda item: item[1])


def _finding(result: Result, role: Role, labels: list[tuple[str, int]], tolerance: str) -> Finding:
    full, n_heads = int(result[f"full_rank_{role}"]), result[f"rank_{role}"].size
    named = ", ".join(f"{label} ({rank})" for label, rank in labels[:5])
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return Finding(
        lens="ranks",
        statement=f"{len(labels)} of {n_heads} heads have a W_{role} below full rank {full}: {named}{more}.",
        value=float(len(labels)),
        expected=0.0,
        evidence=tolerance,
        weight=0.5,
    )
