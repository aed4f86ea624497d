"""`headspan spectra`: the spectrum of every weight matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 10
MATRIX_COLUMNS = {
    "matrix": "{kind}",
    "n": "{n}",
    "shape": "{shape}",
    "energy": "{energy_ratio:.3g}",
    "stable": "{stable_rank:.1f} ({stable_rank_chance:.1f})",
    "effective": "{effective_rank:.0f} ({effective_rank_chance:.0f})",
    "KS": "{ks:.2f} ({ks_chance:.2f})",
    "spikes": "{spikes:.1f}",
}
HEAD_COLUMNS = {
    "label": ("head", "{}"),
    "trace": ("trace", "{:.3g}"),
    "trace_sd": ("sd", "{:.2g}"),
    "trace_z": ("z", "{:+.1f}"),
    "trace_z_product": ("z (product)", "{:+.1f}"),
    "trace_share": ("of nuclear norm", "{:+.2f}"),
    "symmetric_share": ("symmetric", "{:.3f}"),
    "positive_mass": ("positive", "{:.2f}"),
}

Matrices = Annotated[
    str | None,
    typer.Option("--matrix", help="Matrices such as W_Q,W_QK,W_E; everything there is by default.", show_default=False),
]
Initialisation = Annotated[
    str | None,
    typer.Option(
        "--init",
        help='Initialisation to compare with: "xavier", "config" or a number; by default what the config says.',
        show_default=False,
    ),
]
PowerLaw = Annotated[
    bool, typer.Option("--power-law", help="Also fit power laws to the tails (needs the package powerlaw).")
]


def spectra(
    model: shared.Model,
    matrix: Matrices = None,
    init: Initialisation = None,
    power_law: PowerLaw = False,
    seed: shared.Seed = 0,
    fold: shared.Fold = "none",
    memory: shared.Memory = "4GB",
    delta: shared.Delta = 0,
    output: shared.Output = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Compare the singular values of every weight matrix with those of random ones."""
    from headspan.checkpoint import open_checkpoint
    from headspan.heads.memory import working_memory
    from headspan.lenses import spectra as lens

    to = delivery("spectra", output, image_files(figures, figure_format, dark), as_json)
    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    result = lens.compute(
        heads, matrices=matrix, delta=delta, init=init, power_law=power_law, seed=seed, memory=working_memory(memory)
    )
    to.deliver(result, lens, _print)


def _print(result: xr.DataTree) -> None:
    """One line per kind of matrix, means over all of it, and the heads whose queries and keys align most."""
    from headspan.cli.tables import print_columns, print_table
    from headspan.lenses import spectra as lens

    print_table(
        f"Means over all matrices of a kind, random ones in brackets; init: {result.attrs['init']}",
        list(MATRIX_COLUMNS),
        [[form.format(**row) for form in MATRIX_COLUMNS.values()] for row in lens.kind_means(result)],
    )
    heads = lens.alignment_table(result)
    if result.attrs["alignment"] != "computed":
        typer.echo(f"Base alignment {result.attrs['alignment']}")
        return
    order = heads["trace_z"].abs().sort_values(ascending=False, kind="stable").dropna().index[:SHOWN]
    print_columns(
        f"Base alignment furthest from chance, {len(order)} of {len(heads)} heads "
        f"(symmetric by chance {float(result['alignment']['symmetric_share_chance']):.3f}, positive 0.50)",
        HEAD_COLUMNS,
        heads.loc[order].to_dict("records"),
    )
