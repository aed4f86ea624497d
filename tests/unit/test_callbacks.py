"""Lenses follow a training run: in any loop, in transformers' Trainer and in Lightning's; evolution reads it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import headspan
from headspan.callbacks import Follower
from headspan.errors import ArgumentError, HeadspanError, NotFollowed
from headspan.lab.architecture import Architecture
from headspan.lab.model import LabModel
from headspan.sweeps import evolution, open_store

ARCHITECTURE = Architecture(vocabulary=16, length=8, layers=2, heads=2, d_model=16)


class Told:
    """A logger that remembers."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, float]] = {}
        self.figures: list[tuple[int, str]] = []
        self.closed = False

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.values.setdefault(step, {}).update(values)

    def figure(self, step: int, name: str, figure: Any) -> None:
        self.figures.append((step, name))

    def close(self) -> None:
        self.closed = True


def moved(model: torch.nn.Module, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=draw)


def trained(folder: Path, **options: Any) -> tuple[Follower, Told]:
    told, model = Told(), LabModel(ARCHITECTURE, 0)
    chosen = {"lenses": "affinity", "every": 2, "config": ARCHITECTURE.config(), "loggers": [told], **options}
    with Follower(folder, **chosen) as follow:
        for step in range(5):
            follow(model, step)
            moved(model, step)
    return follow, told


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Follower, Told]:
    folder = tmp_path_factory.mktemp("followed") / "run"
    follow, told = trained(folder, background=False, figures=["Wiring diagram"])
    return folder, follow, told


def test_every_second_step_is_looked_at(followed: tuple[Path, Follower, Told]) -> None:
    folder, follow, told = followed
    assert [done.step for done in follow.done] == [0, 2, 4]
    assert sorted(told.values) == [0, 2, 4]
    assert told.closed
    assert not list((folder / "snapshots").iterdir())


def test_what_is_told_is_the_mean_of_what_the_lens_says(tmp_path: Path) -> None:
    told, model = Told(), LabModel(ARCHITECTURE, 3)
    options = {"lenses": "affinity", "config": ARCHITECTURE.config(), "loggers": [told], "background": False}
    with Follower(tmp_path / "run", every=1, **options) as follow:
        follow(model, 7)
    direct = headspan.affinity((model.state_dict(), ARCHITECTURE.config()))
    expected = float(direct["OK"].projection_kernel.mean())
    assert told.values[7]["headspan/affinity/OK/projection_kernel"] == pytest.approx(expected, rel=1e-12)


def test_figures_are_told_by_their_titles(followed: tuple[Path, Follower, Told]) -> None:
    assert followed[2].figures == [(step, "headspan/Wiring diagram") for step in (0, 2, 4)]


def test_evolution_reads_the_folder(followed: tuple[Path, Follower, Told]) -> None:
    course = evolution(followed[0], walks=20)
    assert course["model/quantities"].step.values.tolist() == [0, 2, 4]
    tree = open_store(followed[0])
    assert tree["model/affinity/OK"].projection_kernel.sizes["step"] == 3


def test_a_second_process_gives_the_same(followed: tuple[Path, Follower, Told], tmp_path: Path) -> None:
    follow, told = trained(tmp_path / "run", figures=())
    assert [done.step for done in follow.done] == [0, 2, 4]
    assert told.values == followed[2].values


def test_a_run_is_gone_on_with(followed: tuple[Path, Follower, Told], tmp_path: Path) -> None:
    model, config = LabModel(ARCHITECTURE, 0), ARCHITECTURE.config()
    for start in (0, 4):
        with Follower(tmp_path / "run", lenses="ranks", every=2, config=config, background=False) as follow:
            for step in range(start, start + 4):
                follow(model, step)
                moved(model, step)
    assert open_store(tmp_path / "run")["model/ranks"].step.values.tolist() == [0, 2, 4, 6]


def test_kept_snapshots_are_ordinary_checkpoints(tmp_path: Path) -> None:
    trained(tmp_path / "run", lenses="ranks", background=False, keep=True)
    first = headspan.open(tmp_path / "run" / "snapshots" / "step-0").heads()
    torch.testing.assert_close(
        first.W_Q, headspan.open((LabModel(ARCHITECTURE, 0).state_dict(), ARCHITECTURE.config())).heads().W_Q
    )


def test_tied_tables_are_written_too(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=20, n_positions=8))
    with Follower(tmp_path / "run", lenses="ranks", every=1, background=False) as follow:
        follow(model, 1)
    assert follow.done[0].problem == ""


def test_a_lens_that_does_not_apply_is_said_once(tmp_path: Path) -> None:
    single = Architecture(vocabulary=16, length=8, layers=1, heads=2, d_model=16)
    options = {"lenses": "ranks,affinity", "every": 1, "config": single.config(), "background": False}
    with Follower(tmp_path / "run", **options) as follow:
        with pytest.warns(NotFollowed, match="affinity: needs at least 2 layers"):
            follow(LabModel(single, 0), 0)
        follow(LabModel(single, 1), 1)  # a second warning would be an error


def test_what_goes_wrong_does_not_end_training(tmp_path: Path) -> None:
    broken = {
        name: torch.full_like(tensor, torch.nan) for name, tensor in LabModel(ARCHITECTURE, 0).state_dict().items()
    }
    with (
        pytest.warns(NotFollowed, match="step 0 was not followed"),
        Follower(tmp_path / "run", lenses="ranks", config=ARCHITECTURE.config(), background=False) as follow,
    ):
        follow(broken, 0)
    assert "not finite" in follow.done[0].problem or "NaN" in follow.done[0].problem


def test_a_killed_second_process_is_said_and_training_goes_on(tmp_path: Path) -> None:
    model, config = LabModel(ARCHITECTURE, 0), ARCHITECTURE.config()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Follower(tmp_path / "run", lenses="ranks", every=1, config=config) as follow:
            follow(model, 0)
            assert follow._process is not None
            follow._process.kill()
            follow._process.wait()
            follow(model, 1)
            follow(model, 2)
    assert any("second process" in str(one.message) for one in caught)
    assert len(follow.done) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lenses": "drift"}, "compares two checkpoints"),
        ({"lenses": "detect"}, "runs the model"),
        ({"lenses": "nothing"}, "nothing"),
        ({"every": 0}, "at least 1"),
        ({"loggers": ["paper"]}, "loggers are tensorboard, wandb"),
    ],
)
def test_wrong_options_are_refused_before_training(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Follower(tmp_path / "run", **options)


def test_two_runs_cannot_write_one_folder(tmp_path: Path) -> None:
    with Follower(tmp_path / "run"), pytest.raises(HeadspanError, match="another"):
        Follower(tmp_path / "run")


def test_a_closed_follower_says_so(tmp_path: Path) -> None:
    follow = Follower(tmp_path / "run", config=ARCHITECTURE.config())
    follow.close()
    follow.close()
    with pytest.raises(HeadspanError, match="closed"):
        follow(LabModel(ARCHITECTURE, 0), 0)


def test_tensorboard_reads_the_numbers(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trained(tmp_path / "run", loggers=["tensorboard"], background=False)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    name = next(name for name in events.Tags()["scalars"] if name.startswith("headspan/affinity/"))
    assert [event.step for event in events.Scalars(name)] == [0, 2, 4]


def test_weights_and_biases_takes_the_numbers_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    trained(tmp_path / "run", loggers=["wandb"], background=False)
    (kept,) = (tmp_path / "run" / "wandb").rglob("*.wandb")
    for _ in range(600):  # its own process writes the file, a little after the run has finished
        if b"headspan/affinity/" in kept.read_bytes():
            break
        time.sleep(0.1)
    assert b"headspan/affinity/" in kept.read_bytes()


def test_the_trainer_of_transformers_calls_it(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from headspan.callbacks import TrainerFollower

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=20, n_positions=8))
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
    settings = TrainingArguments(
        str(tmp_path / "out"),
        max_steps=4,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    callback = TrainerFollower(tmp_path / "run", lenses="ranks", every=2, background=False)
    Trainer(model=model, args=settings, train_dataset=rows, callbacks=[callback]).train()
    assert open_store(tmp_path / "run")["model/ranks"].step.values.tolist() == [0, 2, 4]


def test_the_trainer_of_lightning_calls_it(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from transformers import GPT2Config, GPT2LMHeadModel

    from headspan.callbacks import LightningFollower

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=20, n_positions=8))

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.model(batch, labels=batch).loss
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = LightningFollower(tmp_path / "run", lenses="ranks", every=2, background=False)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own advice on workers and cores
        trainer = lightning.Trainer(
            max_steps=4, accelerator="cpu", callbacks=[callback], default_root_dir=tmp_path, **quiet
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.randint(20, (8, 8)), batch_size=2))
    assert open_store(tmp_path / "run")["model/ranks"].step.values.tolist() == [0, 2, 4]
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
