"""`headspan spectra`: the spectrum of every weight matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headspan.command import Command, Option, Printed, Rows

if TYPE_CHECKING:
    from headspan.result import Result

SHOWN = 10
COMMAND = Command(
    "Compare the singular values of every weight matrix with those of random matrices.",
    options={
        "matrices": Option(
            "Matrices such as W_Q,W_QK,W_E; everything there is by default.", str, ("--matrices", "--matrix")
        ),
        "init": Option(
            'Initialization to compare with: "xavier", "config" or a number; by default the config\'s.', str
        ),
        "power_law": Option("Also fit power laws to the tails (needs the package powerlaw).", bool),
    },
)
MATRIX_COLUMNS = {
    "matrix": "{matrix}",
    "n": "{n}",
    "shape": "{shape}",
    "energy": "{energy_ratio:.3g}",
    "stable rank": "{stable_rank:.1f} ({stable_rank_null:.1f})",
    "effective rank": "{effective_rank:.0f} ({effective_rank_null:.0f})",
    "KS": "{ks:.2f} ({ks_null:.2f})",
    "spikes": "{spikes:.1f}",
}
HEAD_COLUMNS = {
    "head": ("head", "{}"),
    "trace": ("trace", "{:.3g}"),
    "trace_null_sd": ("sd", "{:.2g}"),
    "trace_z": ("z", "{:+.1f}"),
    "product_z": ("z (product)", "{:+.1f}"),
    "trace_share": ("of nuclear norm", "{:+.2f}"),
    "symmetric_share": ("symmetric", "{:.3f}"),
    "positive_mass": ("positive", "{:.2f}"),
}


def show(result: Result) -> Printed:
    """One line per kind of matrix, means over all of it, and the heads whose queries and keys align most."""
    yield Rows(
        f"Means over all matrices of a kind (expected of random ones in brackets); init: {result.attrs['init']}",
        list(MATRIX_COLUMNS),
        [[form.format(**row) for form in MATRIX_COLUMNS.values()] for row in kind_means(result)],
    )
    if result.attrs["alignment"] != "computed":
        yield f"Base alignment {result.attrs['alignment']}"
        return
    heads = result.table("heads").assign(product_z=result.table("heads", null="product")["trace_z"])
    order = heads["trace_z"].abs().sort_values(ascending=False, kind="stable").dropna().index[:SHOWN]
    null = float(result["alignment"].symmetric_share_null)
    expected = f"expected: symmetric {null:.3f}, positive 0.50"
    yield Rows.of_columns(
        f"Base alignment furthest from 0, {len(order)} of {len(heads)} heads ({expected})",
        HEAD_COLUMNS,
        heads.loc[order].to_dict("records"),
    )


def kind_means(result: Result) -> list[dict[str, object]]:
    """One row per kind: how many matrices it has, their shape, and the means of what summarizes them."""
    means = []
    for kind, rows in result.table("matrices").groupby("matrix", sort=False):
        shape = f"{int(rows['rows'].iloc[0])}x{int(rows['columns'].iloc[0])}"
        fields = [name for name in rows if f"{name}_null" in rows or str(name).endswith("_null")]
        means.append({"matrix": kind, "n": len(rows), "shape": shape} | rows[fields].mean().to_dict())
    return means
