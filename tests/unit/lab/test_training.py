"""Training: the same bytes for a seed, taken up where it was killed, stopped with nothing lost."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from headspan.checkpoint import open_checkpoint
from headspan.errors import ArgumentError, HeadspanError
from headspan.lab import session
from headspan.lab.recipe import PRESETS, SETTING_TYPES, Recipe, preset
from headspan.lab.record import Row, open_track, track_dataset
from headspan.lab.run_folder import Progress, RunFolder
from headspan.lab.session import Diverged, parse_seeds, run_once, run_seeds, seeds_summary, train
from headspan.lab.settings import parse_settings
from headspan.progress import Step
from tests.unit.lab.small import tiny_recipe


def assert_same(first: Progress, second: Progress) -> None:
    assert first.step == second.step
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name]), name
    assert len(first.rows) == len(second.rows)
    for one, two in zip(first.rows, second.rows, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


class Killed(Exception):
    pass


@pytest.mark.parametrize("after", [5, 8, 11])
def test_a_killed_run_goes_on_to_the_same_bytes(after: int, tmp_path: Path) -> None:
    recipe = tiny_recipe(dropout=0.1, sharpness_every=8)
    whole = train(recipe, tmp_path / "whole")

    with pytest.raises(Killed):
        train(recipe, tmp_path / "killed", _killing(after))
    assert_same(train(recipe, tmp_path / "killed"), whole)
    first, second = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert first == second


def test_a_run_with_falling_rate_resumes_too(tmp_path: Path) -> None:
    recipe = tiny_recipe(cooldown=6)
    whole = train(recipe)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run", _killing(9))
    assert_same(train(recipe, tmp_path / "run"), whole)


def _killing(after: int) -> Step:
    def kill(name: str, *, done: float | None = None) -> None:
        if done == after:
            raise Killed

    return kill


def test_seeds_decide_everything() -> None:
    assert_same(train(tiny_recipe(seed=4)), train(tiny_recipe(seed=4)))
    one, two = train(tiny_recipe(seed=4)), train(tiny_recipe(seed=5))
    assert not torch.equal(one.model.embed_tokens.weight, two.model.embed_tokens.weight)


def test_measuring_does_not_disturb_training() -> None:
    watched, bare = train(tiny_recipe(track_every=2)), train(tiny_recipe(track_every=12))
    assert torch.equal(watched.model.embed_tokens.weight, bare.model.embed_tokens.weight)


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    train(tiny_recipe(steps=8), tmp_path / "run")
    assert_same(train(tiny_recipe(steps=12), tmp_path / "run"), train(tiny_recipe(steps=12)))


def test_the_rate_falls_to_a_twentieth() -> None:
    recipe = tiny_recipe(steps=10, cooldown=4, learning_rate=1.0)
    assert [recipe.rate(step) for step in (0, 6, 7, 8, 9, 10)] == pytest.approx([1, 1, 0.75, 0.5, 0.25, 0.05])
    assert tiny_recipe(cooldown=0).rate(11) == tiny_recipe().learning_rate


def test_a_learned_task_ends_the_run() -> None:
    def perfect(*_: object) -> Row:
        return {"id_accuracy": np.array(1.0), "ood_accuracy": np.array(1.0)}

    stopped = train(tiny_recipe(stop_when_learned=True), measure=perfect)
    assert stopped.step == 8  # rows at 0, 4 and 8 are three in a row
    assert train(tiny_recipe(stop_when_learned=False), measure=perfect).step == 12


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.next_token_loss
    calls = iter(range(1, 100))
    monkeypatch.setattr(session, "next_token_loss", lambda *a: real(*a) * (torch.nan if next(calls) > 6 else 1.0))
    with pytest.raises(Diverged, match=r"the loss is nan at step 7: lower the learning rate; .*\(step 4\)"):
        train(tiny_recipe(), tmp_path / "run")
    monkeypatch.undo()
    assert_same(train(tiny_recipe(), tmp_path / "run"), train(tiny_recipe()))


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, folder = tiny_recipe(), tmp_path / "run"
    with pytest.raises(Killed):
        train(recipe, folder, _killing(5))
    before = (folder / "state.pt").read_bytes()

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(HeadspanError, match=r"cannot write '.*': No space left on device"):
        train(recipe, folder)
    monkeypatch.undo()
    assert (folder / "state.pt").read_bytes() == before
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []
    assert_same(train(recipe, folder), train(recipe))


def test_a_disk_that_fills_up_while_a_checkpoint_is_kept_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, folder = tiny_recipe(save_every=8), tmp_path / "run"
    with pytest.raises(Killed):
        train(recipe, folder, _killing(5))
    real = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        if "safetensors" in self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(HeadspanError, match=r"cannot write '.*': No space left on device"):
        train(recipe, folder)
    monkeypatch.undo()
    assert_same(train(recipe, folder), train(recipe))


def test_a_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    train(tiny_recipe(), tmp_path / "run")
    with pytest.raises(HeadspanError, match=r"holds another run \(seed 0, now 1\); choose another with -o"):
        train(tiny_recipe(seed=1), tmp_path / "run")
    with pytest.raises(HeadspanError, match=r"holds another run \(shape.norm 'layernorm', now 'rmsnorm'\)"):
        train(tiny_recipe(norm="rmsnorm"), tmp_path / "run")


def test_a_folder_with_other_things_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(HeadspanError, match="is not empty and holds no run"):
        train(tiny_recipe(), tmp_path)
    with pytest.raises(HeadspanError, match="is a file; -o names a folder"):
        train(tiny_recipe(), tmp_path / "thesis.tex")


def test_a_state_of_another_configuration_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    train(tiny_recipe(), tmp_path / "a")
    train(tiny_recipe(d_model=8), tmp_path / "b")
    (tmp_path / "b" / "state.pt").replace(tmp_path / "a" / "state.pt")
    with pytest.raises(HeadspanError, match=r"another configuration's: tensor 'embed_tokens.weight' needs shape"):
        train(tiny_recipe(), tmp_path / "a")
    (tmp_path / "a" / "state.pt").write_bytes(b"not a state")
    (tmp_path / "a" / "state.previous.pt").write_bytes(b"not a state")
    with pytest.raises(HeadspanError, match=r"is damaged or another configuration's .* delete it to start anew"):
        train(tiny_recipe(), tmp_path / "a")


def test_checkpoints_along_the_way_open_as_checkpoints(tmp_path: Path) -> None:
    train(tiny_recipe(), tmp_path / "run")
    kept = RunFolder(tmp_path / "run").checkpoints()
    assert list(kept) == [0, 4, 8, 12]
    assert open_checkpoint(kept[8]).heads().W_Q.shape == (2, 1, 16, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps needs to be at least 1, found 0"),
        ({"seed": -1}, r"seed needs to be a whole number in 0\.\.\d+, found -1"),
        ({"learning_rate": 0.0}, "learning_rate needs to be above 0, found 0.0"),
        (
            {"sharpness_every": 6},
            r"sharpness_every needs to be a multiple of track_every \(4\), or 0 .* found 6",
        ),
        ({"cooldown": -1}, "cooldown needs to be at least 0, found -1"),
        ({"lenses_every": -4}, "lenses_every needs to be at least 0, found -4"),
        ({"optimizer": "lion"}, "optimizer needs to be one of adamw, sgd, found 'lion'"),
        ({"color": 1}, "a recipe has no setting 'color'; it has batch, "),
        ({"kind": "text"}, "the task text needs a file"),
    ],
)
def test_an_impossible_recipe_is_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tiny_recipe(**options)


def test_a_device_that_is_not_there_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(HeadspanError, match="device 'abacus' cannot be used; use cpu"):
        train(tiny_recipe(device="abacus"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_comes_back_from_its_record() -> None:
    for recipe in PRESETS.values():
        assert Recipe.of(recipe.record()) == recipe
    with pytest.raises(ArgumentError, match="no preset 'slow'; its presets are default, fast, smoke, published"):
        preset("slow")


def test_the_published_preset_is_the_published_setup() -> None:
    recipe = preset("published")
    assert (recipe.learning_rate, recipe.steps, recipe.batch, recipe.shape.dropout) == (1e-3, 20_000, 50, 0.1)
    assert (recipe.betas, recipe.eps, recipe.weight_decay) == ((0.9, 0.98), 1e-9, 5e-4)
    assert (recipe.task.vocabulary, recipe.task.length, recipe.task.ood_block) == (64, 64, 25)
    assert (recipe.shape.layers, recipe.shape.heads, recipe.shape.d_head, recipe.shape.mlp) == (2, 1, 64, 0)


def test_settings_are_read_in_their_types() -> None:
    found = parse_settings(["layers=1", "learning-rate=1e-2", "tied=yes", "positions=learned"], SETTING_TYPES)
    assert found == {"layers": 1, "learning_rate": 0.01, "tied": True, "positions": "learned"}
    with pytest.raises(ArgumentError, match="layers needs a value of type int, found 'two'"):
        parse_settings(["layers=two"], SETTING_TYPES)
    with pytest.raises(ArgumentError, match="settings are written name=value"):
        parse_settings(["layers"], SETTING_TYPES)


def test_seeds_are_read_from_ranges_and_lists() -> None:
    assert parse_seeds("0..3, 7") == [0, 1, 2, 3, 7]
    for wrong in ("", "3..1", "a", "1...2"):
        with pytest.raises(ArgumentError, match="seeds"):
            parse_seeds(wrong)


def test_several_seeds_are_summarized(tmp_path: Path) -> None:
    runs, summary = run_seeds(tiny_recipe(), [0, 2], tmp_path)
    assert summary["seeds"] == [0, 2]
    assert summary["success_rate"] == 0.0
    assert summary["id_accuracy"]["mean"] == pytest.approx(np.mean([run.result["id_accuracy"] for run in runs]))
    assert summary["transition_step"]["mean"] is None
    good = [{"seed": n, "id_accuracy": 1.0, "ood_accuracy": a, "transition_step": 5.0, "learned": a > 0.9}
            for n, a in enumerate((0.95, 0.5))]  # fmt: skip
    assert seeds_summary(good)["success_rate"] == 0.5


def test_the_record_is_one_dataset_that_survives_its_file(tmp_path: Path) -> None:
    run = run_once(tiny_recipe(sharpness_every=8), tmp_path / "run")
    again = open_track(run.folder.track_file)
    assert again.sizes["step"] == 4
    assert again["step"].values.tolist() == [0, 4, 8, 12]
    assert np.isnan(again["hessian_top"].sel(step=4))
    assert np.isfinite(again["hessian_top"].sel(step=8))
    for name in run.track.data_vars:
        np.testing.assert_array_equal(run.track[name].values, again[name].values)
    with pytest.raises(HeadspanError, match="a record needs at least one row"):
        track_dataset(tiny_recipe(), [])


def test_our_adamw_gives_torchs_bytes_and_takes_up_its_state() -> None:
    recipe = tiny_recipe(weight_decay=0.1)
    ours, theirs = session.initial_progress(recipe), session.initial_progress(recipe)
    settings = {"lr": recipe.learning_rate, "betas": recipe.betas, "eps": recipe.eps}
    theirs.optimizer = torch.optim.AdamW(theirs.model.parameters(), **settings, weight_decay=0.1, fused=True)
    source = recipe.source()
    for _ in range(3):
        session.train_step(recipe, source, ours)
        session.train_step(recipe, source, theirs)
    ours.optimizer.load_state_dict(theirs.optimizer.state_dict())
    session.train_step(recipe, source, ours)
    session.train_step(recipe, source, theirs)
    for name, tensor in theirs.model.state_dict().items():
        assert torch.equal(tensor, ours.model.state_dict()[name]), name


def test_a_run_does_not_wait_for_torchs_compiler(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.unit.lab.small import tiny_recipe\n"
        "from headspan.lab.session import run_once\n"
        f"run_once(tiny_recipe(sharpness_every=12), Path({str(tmp_path / 'run')!r}))\n"
        "print('torch._dynamo' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(("save_every", "kept"), [(500, [0, 50, 100, 200, 400, 500]), (75, [0, 50, 75, 150, 225])])
def test_a_model_from_before_an_early_transition_is_kept(save_every: int, kept: list[int]) -> None:
    recipe = preset("default").with_settings(save_every=save_every)
    assert [step for step in range(kept[-1] + 1) if recipe.is_kept(step)] == kept
