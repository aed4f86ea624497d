"""`headspan spectra`: the spectrum of every weight matrix."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Delta, Fold, Memory, Model, Output, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, save_figures

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


def spectra(
    model: Model,
    matrix: Annotated[
        str | None,
        typer.Option(help="Matrices such as W_Q,W_QK,W_E; everything there is by default.", show_default=False),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help='Initialisation to compare with: "xavier", "config" or a number; by default what the config says.',
            show_default=False,
        ),
    ] = None,
    power_law: Annotated[
        bool, typer.Option("--power-law", help="Also fit power laws to the tails (needs the package powerlaw).")
    ] = False,
    seed: Annotated[int, typer.Option(help="Fixes the draws of random matrices.")] = 0,
    fold: Fold = "none",
    memory: Memory = "4GB",
    delta: Delta = 0,
    output: Output = None,
    figures: Figures = None,
    figure_format: FigureFormat = "svg",
    dark: Dark = False,
    as_json: AsJSON = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Compare the singular values of every weight matrix with those of random ones."""
    from headspan.atomic import check_writable
    from headspan.checkpoint import open_checkpoint
    from headspan.heads.memory import working_memory
    from headspan.lenses import spectra as lens
    from headspan.lenses.saving import ENDINGS, save_result

    check_figures(figures, figure_format)
    if output is not None:
        check_writable(output, ENDINGS)
    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    result = lens.compute(
        heads, matrices=matrix, delta=delta, init=init, power_law=power_law, seed=seed, memory=working_memory(memory)
    )
    save_figures("spectra", result, figures, figure_format, dark)
    if output is not None:
        save_result(result, output, table=lens.table, as_json=lens.as_json)
    if as_json:
        typer.echo(json.dumps(lens.as_json(result), indent=2, allow_nan=False))
        return
    _print(result)
    if output is not None:
        typer.echo(f"Written to {output}")


def _print(result: xr.DataTree) -> None:
    """One line per kind of matrix, means over all of it, and the heads whose queries and keys align most."""
    from headspan.cli.tables import print_table
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
    rows: list[dict[Any, Any]] = heads.loc[order].to_dict("records")
    print_table(
        f"Base alignment furthest from chance, {len(order)} of {len(heads)} heads "
        f"(symmetric by chance {float(result['alignment']['symmetric_share_chance']):.3f}, positive 0.50)",
        [name for name, _ in HEAD_COLUMNS.values()],
        [[form.format(row[name]) for name, (_, form) in HEAD_COLUMNS.items()] for row in rows],
    )
