"""Studies that train further models: kept with their runs, and answered with an interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from headspan.errors import ArgumentError, HeadspanError
from headspan.lab.experiment_figures import experiment_figures
from headspan.lab.findings import findings
from headspan.lab.session import run_once
from headspan.lab.studies import keep_study
from headspan.lab.study import kept_studies, study
from headspan.lab.study_findings import study_findings
from tests.unit.lab.small import tiny_recipe

STARTS = ["as it is", "along the most negative curvature", "the other way along it", "as far at random"]
VARIANTS = ["before training", "adamw, gains", "adamw, no gains", "sgd, gains", "sgd, no gains"]


def waited(*steps: float) -> xr.Dataset:
    """A plateau study in which each start learned at one of these steps."""
    return xr.Dataset(
        {"learned_at": (("start",), list(steps)), "distance": 1.0, "left": 400,
         "accuracy": (("start", "after"), np.zeros((4, 3)))},
        coords={"start": STARTS, "after": [50, 100, 150]},
    )  # fmt: skip


def spread_over(*coordinates: float) -> xr.Dataset:
    """A sparsity study with these participations."""
    columns = {name: (("variant",), list(coordinates)) for name in ("positions", "tokens", "loss", "gain_correlation")}
    return xr.Dataset(
        {**columns, "positions_null": 11.9}, coords={"variant": VARIANTS}, attrs={"d_model": 32, "steps": 9}
    )


def test_a_direction_that_shortens_the_wait_is_called_a_way_out() -> None:
    sooner = [waited(500, 300, 310, 510), waited(520, 330, 310, 505), waited(480, 290, 290, 470)]
    found = study_findings("plateau", sooner)
    assert "is a way out" in found[0].statement
    assert found[0].value == pytest.approx(-195.0)
    assert "95 % interval" in found[0].statement


def test_a_direction_that_does_not_is_called_none() -> None:
    found = study_findings("plateau", [waited(500, 550, 500, 500), waited(600, 600, 650, 550)])
    assert "is not the way out" in found[0].statement
    never = study_findings("plateau", [waited(500, np.nan, 500, 500), waited(600, 600, 650, 550)])
    assert "In 1 restarts it was not learned in time" in never[0].statement
    nothing = study_findings("plateau", [waited(*[np.nan] * 4)])
    assert "does not learn within 150 steps as it is" in nothing[0].statement
    assert study_findings("plateau", []) == []


def test_what_makes_positions_sparse_is_named_only_if_its_interval_says_so() -> None:
    adam = [spread_over(11, 4, 4.2, 11, 11.5), spread_over(12, 5, 4.8, 12, 11.5), spread_over(11, 4.1, 4, 11, 12)]
    assert "AdamW instead of SGD makes them sparser" in study_findings("sparsity", adam)[0].statement
    none = [spread_over(11, 11, 12, 12, 11), spread_over(12, 12, 11, 11, 12), spread_over(11, 11, 11, 12, 11)]
    sentence = study_findings("sparsity", none)[0].statement
    assert "no cause of sparsity is seen within 9 steps" in sentence
    assert "random directions on 11.9" in sentence
    assert "one run, no interval" in study_findings("sparsity", none[:1])[0].statement


def test_longer_sequences_are_told_by_position_scheme() -> None:
    table = xr.DataArray([[0.98, 0.7], [0.95, np.nan], [0.2, 0.1]], dims=("positions", "length"))
    floor = ("length", [0.02, 0.02])
    one = xr.Dataset({"accuracy": table, "accuracy_untrained": floor},
                     {"positions": ["rotary", "learned", "none"], "length": [64, 128]},
                     {"steps": 9, "trained_length": 64})  # fmt: skip
    sentence = study_findings("lengths", [one, one])[0].statement
    assert "rotary 0.98 at 64, 0.70 at 128; learned 0.95 at 64 and undefined beyond; none 0.20 at 64" in sentence
    assert "untrained 0.02" in sentence
    assert "Copying was learned with rotary and learned." in sentence


def test_studies_are_kept_with_the_run_and_drawn(tmp_path: Path) -> None:
    run_once(tiny_recipe(steps=4), tmp_path / "run")
    made = {name: keep_study(name, tmp_path / "run") for name in ("sparsity", "lengths")}
    kept = kept_studies(tmp_path / "run")
    assert list(kept) == ["study_lengths", "study_sparsity"]
    xr.testing.assert_identical(kept["study_sparsity"], made["sparsity"])
    assert made["lengths"]["accuracy"].sel(positions="learned").isnull().values.tolist() == [False, True, True, True]
    drawn = experiment_figures(xr.DataTree.from_dict({**kept, "study_plateau": waited(1, 2, 3, 4)}))
    assert list(drawn) == ["Restarts from the plateau", "Sparsity of learned positions", "Longer sequences"]
    np.testing.assert_allclose(drawn["Sparsity of learned positions"].data[0].y, made["sparsity"]["positions"])
    with pytest.raises(HeadspanError, match="the run has no transition to look before; train longer"):
        keep_study("plateau", tmp_path / "run")
    with pytest.raises(ArgumentError, match="there is no study 'astrology'; studies are plateau, sparsity, lengths"):
        keep_study("astrology", tmp_path / "run")


def test_longer_sequences_are_for_copying(tmp_path: Path) -> None:
    recipe = tiny_recipe(kind="addition", steps=4, mlp=8)
    run_once(recipe, tmp_path / "run")
    with pytest.raises(ArgumentError, match="the study lengths needs the task copying, found addition"):
        keep_study("lengths", tmp_path / "run")


def test_a_run_of_sums_is_not_told_as_one_of_copying(tmp_path: Path) -> None:
    run_once(tiny_recipe(kind="addition", steps=4, mlp=8), tmp_path / "run")
    told = findings(study(tmp_path / "run"))
    assert "does not learn to add within 4 steps" in told[0].statement
    assert all("Verdict on this run" not in one.evidence for one in told)
    spectrum = next(one for one in told if "spectrum" in one.statement)
    assert spectrum.evidence.startswith("Of copying the note says: the embedding has one very large singular value")
    assert spectrum.evidence.endswith("On the task addition it does not appear.")
