"""Channels, Hessian density, adapters and the carry of a run: measured as they are told, and silent under the null."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import headspan
from headspan.errors import ArgumentError, HeadspanError
from headspan.lab.adapter import adapter_study, merged, trained_adapter
from headspan.lab.carry import carry_study, discriminant_accuracy, stream_by_depth
from headspan.lab.channel_course import channel_course
from headspan.lab.experiment_figures import experiment_figures
from headspan.lab.session import run_once
from headspan.lab.source import Source
from headspan.lab.spectral_density import density_course
from headspan.lab.study import Bench
from headspan.lab.study_findings import channel_onset, study_findings
from headspan.statistics.change_points import ChangePoint
from tests.unit.lab.small import tiny_recipe


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A few steps of a tiny model, told to have a transition."""
    folder = tmp_path_factory.mktemp("new") / "run"
    run_once(tiny_recipe(heads=2), folder)
    return _with_transition(Bench.of(folder))


def _with_transition(bench: Bench) -> Bench:
    at = ChangePoint(step=9.0, low=8.0, high=10.0, width=0.5, before=0.0, after=1.0, explained=1.0)
    return Bench(**{**vars(bench), "at": at})


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("sums") / "run"
    run_once(tiny_recipe(kind="addition", digits=2, vocabulary=12, length=8, mlp=16), folder)
    return Bench.of(folder)


def test_a_course_of_channels_holds_what_the_lens_says_of_each_checkpoint(bench: Bench) -> None:
    course = channel_course(bench)
    assert course["step"].values.tolist() == [0, 4, 8, 12]
    pair = str(course["pair"].sel(pairing="OK").values).split(" to ")
    own = headspan.channels(str(bench.checkpoints[8]), null="haar", vocabulary=False, progress=False)["OK"].to_dataset()
    here = own.sel(src=pair[0], dst=pair[1])
    assert float(course["coupling"].sel(step=8, pairing="OK")) == float(here["coupling"])
    assert float(course["coupling_z"].sel(step=8, pairing="OK")) == float(here["coupling_z"].sel(null="haar"))
    assert "Channels over training" in experiment_figures(xr.DataTree.from_dict({"study_channels": course}))
    assert "does not lead the transition" in study_findings("channels", [course])[0].statement


def test_a_channel_forms_where_it_stays_above_its_null() -> None:
    z = [[4.0], [1.0], [3.5], [5.0]]
    course = xr.Dataset({"coupling_z": (("step", "pairing"), z)}, {"step": [0, 10, 20, 30], "pairing": ["OK"]})
    assert channel_onset(course, "OK") == 20.0
    assert np.isnan(channel_onset(course - 3, "OK"))


def test_the_density_is_taken_at_four_moments(bench: Bench) -> None:
    found = density_course(bench, probes=2, steps=6)
    assert found["at"].values.tolist() == [0, 4, 12, 12]
    assert (found["density"].values >= 0).all()
    assert bool(((found["negative_weight"] >= 0) & (found["negative_weight"] <= 1)).all())
    assert float(found["top"][2]) == float(found["top"][3])
    drawn = experiment_figures(xr.DataTree.from_dict({"study_spectrum": found}))["Density of the Hessian"]
    assert [trace.name for trace in drawn.data][1] == "plateau (step 4)"
    assert "does not have more of it than the end" in study_findings("spectrum", [found, found])[0].statement


def test_an_adapter_changes_what_it_says_and_nothing_else(bench: Bench) -> None:
    found, model = adapter_study(bench, steps=3)
    name = "layers.1.self_attn.k_proj.weight"
    change = (model.get_parameter(name) - bench.after.get_parameter(name)).detach()
    assert int(torch.linalg.matrix_rank(change, rtol=1e-3)) == 2
    size = float(change.norm() / bench.after.get_parameter(name).detach().norm())
    assert float(found["size"].sel(change="adapter", site="L1 K")) == pytest.approx(size, rel=1e-4)
    assert torch.equal(model.embed_tokens.weight, bench.after.embed_tokens.weight)
    assert list(found["space"].values) == ["bridge"]
    assert "A rank-2 adapter for sequences of 32" in study_findings("adapter", [found])[0].statement


def test_an_adapter_without_training_is_no_change(bench: Bench) -> None:
    factors = trained_adapter(bench.after, bench.recipe, Source(bench.recipe.task), 0, 2)
    same = merged(bench.after, factors)
    assert all(torch.equal(one, two) for one, two in zip(same.parameters(), bench.after.parameters(), strict=True))


def test_a_carry_is_decoded_where_it_is_and_not_where_labels_are_shuffled() -> None:
    generator = torch.Generator().manual_seed(0)
    label = torch.rand(2000, generator=generator) > 0.6
    x = torch.randn(2000, 8, generator=generator)
    assert discriminant_accuracy(x, label, label) == pytest.approx(0.5, abs=0.06)
    x[:, 3] += 6.0 * label
    assert discriminant_accuracy(x, label, label) > 0.98
    assert discriminant_accuracy(x, label[torch.randperm(2000, generator=generator)], label) < 0.7


def test_the_stream_by_depth_is_the_models_own(sums: Bench) -> None:
    tokens = sums.id.tokens[:4]
    streams = stream_by_depth(sums.after, tokens)
    torch.testing.assert_close(sums.after.unembed(streams[-1]), sums.after(tokens))
    moved = stream_by_depth(sums.after, tokens, (2, 3, torch.ones(16)))[-1]
    torch.testing.assert_close(moved[:, 3], streams[-1][:, 3] + 1)
    torch.testing.assert_close(moved[:, 4], streams[-1][:, 4])


def test_an_untrained_model_is_not_steered(sums: Bench) -> None:
    found = carry_study(sums)
    assert dict(found.sizes) == {"model": 2, "depth": 3, "place": 2, "space": 3}
    assert float(found["decoded_shuffled"].mean()) == pytest.approx(0.5, abs=0.1)
    assert float(found["steered"].sel(model="untrained").mean()) < 0.4
    assert "The carry in sums without a scratchpad" in study_findings("carry", [found])[0].statement


def test_studies_refuse_runs_they_do_not_fit(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="sums of digits need the task addition with digits"):
        carry_study(bench)
    run_once(tiny_recipe(layers=1, positions="learned", steps=4), tmp_path / "run")
    flat = Bench.of(tmp_path / "run")
    with pytest.raises(HeadspanError, match="channels lead from one layer to another; the model has one layer"):
        channel_course(flat)
    with pytest.raises(ArgumentError, match="the study adapter needs a run of copying whose positions do not end"):
        adapter_study(flat)
