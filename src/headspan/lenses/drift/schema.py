"""The variables of a drift: a node per role, over query heads (Q, O) or kv heads (K, V)."""

from __future__ import annotations

from collections.abc import Iterator

from headspan.dims import ROLES, Role, head_axis
from headspan.schema import Schema, Table, Variable

NULL = (
    "A random change of the same size: a Gaussian one of the same Frobenius norm, or rounding noise, every entry's "
    "change with a random sign; mean over draws."
)
STEWART = "Stewart and Sun (1990), Matrix Perturbation Theory"
SPACES: dict[Role, str] = {"Q": "query space", "K": "key space", "V": "value space", "O": "write space"}
MOMENTS = ("null", "null_sd")


def _variables(role: Role) -> Iterator[Variable]:
    axis, first, space = head_axis(role), role == ROLES[0], SPACES[role]
    yield Variable(
        "grassmann",
        (axis,),
        f"Grassmann distance that the {space} moved",
        range="[0, sqrt(r) pi/2]",
        null=NULL,
        formula="δ = sqrt{∑_i θ_i^2}" if first else "",
        text="Principal angles between the span of a head's matrix before and after, as one distance. The null adds a "
        "random change of the same size to the head as it was."
        if first
        else "",
        reference=STEWART,
        derived=(*MOMENTS, "z", "p", "q"),
        card=f"{space.capitalize()} moved",
    )
    far = f"Grassmann distance of two unrelated spaces of these dimensions ({space})"
    yield Variable("grassmann_unrelated", (axis,), far, "[0, sqrt(r) pi/2]")
    relative = f"relative change of W_{role}"
    yield Variable("relative_change", (axis,), relative, "at least 0", card=f"Relative change of W_{role}")
    yield Variable("angles", (axis, "angle"), "principal angle between before and after (radians)", "[0, pi/2]")
    for name, words in (("smallest_angle", "smallest"), ("largest_angle", "largest")):
        yield Variable(name, (axis,), f"{words} principal angle (degrees)", "[0, 90]")
    yield Variable("chordal", (axis,), "chordal distance moved", "[0, sqrt(r)]", NULL, derived=MOMENTS)
    expected = "chordal distance expected after a random change, by perturbation theory"
    yield Variable("chordal_expected", (axis,), expected, "[0, sqrt(r)]", reference=STEWART)
    kernel = "projection kernel of before and after"
    yield Variable("projection_kernel", (axis,), kernel, "[0, r]", NULL, derived=MOMENTS)
    yield Variable(
        "outside_share",
        (axis,),
        "share of the change that points out of the old space",
        "[0, 1]",
        "A Gaussian change: (d - r) / d, with a beta law. Rounding noise: mean over draws.",
        derived=(*MOMENTS, "p"),
    )
    yield Variable(
        "growth",
        (axis,),
        "share by which the weights grew along themselves",
        "at least -1; 0 for a change across the weights",
        "A random change of the same size: 0.",
        formula="⟨W' - W, W⟩ / ‖W‖^2" if first else "",
        derived=(*MOMENTS, "z", "p", "q"),
        optional=True,
    )
    ks = "Kolmogorov-Smirnov distance of the singular values before and after"
    yield Variable("spectrum_ks", (axis,), ks, "[0, 1]", NULL, derived=MOMENTS)
    moved = "relative change of the singular values, in descending order"
    yield Variable("spectrum_change", (axis,), moved, "at least 0", NULL, derived=MOMENTS, optional=True)
    for name in ("before", "after"):
        yield Variable(f"rank_{name}", (axis,), f"dimensions {name}", "[0, d_head]")
        yield Variable(f"singular_value_{name}", (axis, "rank"), f"singular value {name}", "at least 0")
    yield Variable("unchanged", (axis,), "whether the weights are equal bit for bit", "true or false")
    yield Variable("deficient", (axis,), "whether directions lack before or after", "true or false")


SCHEMA = Schema(
    version=2,
    nodes={role: tuple(_variables(role)) for role in ROLES},
    tables=(Table("heads", "How far every head moved", like=("grassmann", "rank_before"), nodes="[QKVO]", key="role"),),
    metrics=("grassmann", "relative_change", "chordal", "outside_share", "growth", "spectrum_ks"),
    two_sided=True,
)
