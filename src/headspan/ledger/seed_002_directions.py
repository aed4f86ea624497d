"""Seed 002 on models, continued: what the position directions look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.measured import positions_of
from headspan.ledger.trial import Evidence, at_least, at_most, equals

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint

claim = ClaimsOf("002")


@claim(
    "S2.13",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="The top position directions are sparse: they use about 40 coordinates of the stream.",
    correction="90 % of each of the first five lies on 21 to 33 of 768 coordinates; chance gives 342.",
    tolerance="fewer than 40",
    reference="seed 002, last claim",
)
def sparse_directions(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    result = positions_of(checkpoint).sel(centring="stored").isel(top_direction=slice(5))
    found = result["sparsity_coordinates_90"]
    return Evidence(
        truth=(at_most("most coordinates of the first five", float(found.max()), 40.0),),
        figures={"fewest": float(found.min()), "by chance": float(result["sparsity_coordinates_90_chance"].mean())},
    )


@claim(
    "S2.14",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="Over positions the top directions are sinusoids.",
    correction="True of the first five: one sinusoid explains 63 to 91 % of each (1.5 % of noise). Fewer from the "
    "sixth on.",
    tolerance="above 60 %",
    reference="seed 002, last claim",
)
def sinusoids(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    result = positions_of(checkpoint).sel(centring="stored").isel(top_direction=slice(5))
    return Evidence(
        truth=(at_least("least explained of the first five", float(result["wave_r2"].min()), 0.6),),
        figures={"most": float(result["wave_r2"].max()), "by chance": float(result["wave_r2_chance"].mean())},
    )


@claim(
    "S2.15",
    kind="text",
    status="not reproduced",
    needs="minilm",
    statement="Positions and tokens use nearly disjoint sets of coordinates.",
    correction="Seen on GPT-2, whose token table was not at hand. On MiniLM position directions are not sparse, and "
    "tokens have as much energy on the coordinates they use as on any others.",
    tolerance="energy of tokens there below half of chance; within 5 % of it",
    reference="seed 002, last claim",
)
def disjoint_coordinates(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    result = positions_of(checkpoint).sel(centring="stored")
    share = float(result["coordinate_energy"]) / float(result["coordinate_energy_chance"])
    used = float(result["sparsity_coordinates_90"].isel(top_direction=slice(5)).min())
    return Evidence(
        printed=(at_most("tokens' energy on positions' coordinates, over chance", share, 0.5),),
        truth=(
            equals("tokens' energy on positions' coordinates, over chance", share, 1.0, 0.05),
            at_least("coordinates of the sparsest of the first five", used, 100.0),
        ),
    )


@claim(
    "S2.16",
    kind="typo",
    status="wrong",
    needs="gpt2",
    statement="The position table has the shape 1024 x 784.",
    correction="1024 x 768, as the same text has it earlier.",
    tolerance="exact",
    reference="seed 002, last claim",
)
def width_of_stream(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    width = float(checkpoint.heads().d_model)
    return Evidence(printed=(equals("width", width, 784.0, 0.0),), truth=(equals("width", width, 768.0, 0.0),))
