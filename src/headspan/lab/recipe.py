"""Everything that decides a run besides the code: task, architecture, optimizer, seed, and what is recorded when.

Presets are settings under which the default model learned to copy on every seed tried (`docs/lab.md` says which).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headspan.errors import ArgumentError, HeadspanError
from headspan.input_files import checked
from headspan.lab.architecture import Architecture
from headspan.lab.settings import check_settings, one_of
from headspan.lab.source import Source, vocabulary_size
from headspan.lab.task import Task

OPTIMIZERS = ("adamw", "sgd")
FREE = ("steps", "stop_when_learned", "device", "lenses_every")
"""Settings that may change when a run is resumed: how far it goes, where, and what is asked of it afterwards."""
LARGEST_SEED, LAST_RATE = 2**31, 0.05


@dataclass(frozen=True)
class Recipe:
    """One training run.

    Parameters
    ----------
    task, shape
        What is learned, by what. Vocabulary and length of the two agree.
    seed
        Fixes weights, data and dropout.
    steps, batch, learning_rate, weight_decay, betas, eps, optimizer, momentum
        `momentum` is SGD's.
    cooldown
        The rate is constant, but for so many steps at the end in which it falls in a line to a twentieth.
    track_every, sharpness_every, save_every
        Steps between rows of the record, between Hessian eigenvalues (0: none), and between kept checkpoints. Before
        the first `save_every` steps, rows at 1, 2, 4, ... times `track_every` are kept too, so that a model from before
        an early transition is at hand.
    lenses_every
        Steps between kept checkpoints that the lenses look at when the run has ended (0: none).
    test_size
        Sequences in each test set.
    stop_when_learned
        End once three rows in a row have ID accuracy above 0.965 and OOD accuracy above 0.945.
    text, tokenizer
        Files of the text task.
    """

    task: Task = field(default_factory=Task)
    shape: Architecture = field(default_factory=Architecture)
    seed: int = 0
    steps: int = 4_000
    batch: int = 50
    learning_rate: float = 3e-3
    weight_decay: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    optimizer: str = "adamw"
    momentum: float = 0.9
    cooldown: int = 0
    track_every: int = 50
    sharpness_every: int = 500
    save_every: int = 500
    lenses_every: int = 500
    test_size: int = 128
    stop_when_learned: bool = False
    text: str | None = None
    tokenizer: str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        counts = ("steps", "batch", "track_every", "save_every", "test_size")
        check_settings(self, **{name: (getattr(self, name) >= 1, "at least 1") for name in counts})
        check_settings(
            self,
            **{name: (getattr(self, name) >= 0, "at least 0") for name in ("cooldown", "lenses_every", "weight_decay")},
            **{name: (getattr(self, name) > 0, "above 0") for name in ("learning_rate", "eps")},
            seed=(0 <= self.seed < LARGEST_SEED, f"a whole number in 0..{LARGEST_SEED - 1}"),
            optimizer=(self.optimizer in OPTIMIZERS, one_of(OPTIMIZERS)),
            sharpness_every=(
                self.sharpness_every >= 0 and self.sharpness_every % self.track_every == 0,
                f"a multiple of track_every ({self.track_every}), or 0 for none",
            ),
        )
        if (self.task.vocabulary, self.task.length) != (self.shape.vocabulary, self.shape.length):
            raise ArgumentError(
                f"the task has {self.task.vocabulary} tokens and {self.task.length} positions, the model "
                f"{self.shape.vocabulary} and {self.shape.length}; they must agree"
            )
        if self.task.kind == "text" and not self.text:
            raise ArgumentError("the task text needs a file: --text FILE")

    def source(self) -> Source:
        """Where the run's sequences come from."""
        return Source.of(self.task, self.text, self.tokenizer)

    def record(self) -> dict[str, Any]:
        """The recipe as plain values, for run.json."""
        return asdict(self) | {"betas": list(self.betas)}

    def identity(self) -> dict[str, Any]:
        """What must agree for a run to be resumed; settings of task and shape as `task.kind`, `shape.norm`."""
        free = set(FREE) - ({"steps"} if self.cooldown else set())
        own = {name: value for name, value in self.record().items() if name not in free}
        parts = {f"{part}.{name}": value for part in ("task", "shape") for name, value in own.pop(part).items()}
        return own | parts

    def is_kept(self, step: int) -> bool:
        """Whether a checkpoint of this step is kept."""
        doublings, rest = divmod(step, self.track_every)
        early = step < self.save_every and rest == 0 and doublings.bit_count() == 1
        return step % self.save_every == 0 or step == self.steps or early

    def rate(self, step: int) -> float:
        """The learning rate of the update that follows `step` updates."""
        if not self.cooldown:
            return self.learning_rate
        return self.learning_rate * min(1.0, max(LAST_RATE, (self.steps - step) / self.cooldown))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Recipe:
        """The recipe that `record` wrote down."""
        try:
            for name in ("task", "shape", "betas"):  # without them it would be the default recipe
                checked(record, dict[str, Any], "run.json").__getitem__(name)
            return checked(record, cls, "run.json")
        except (KeyError, HeadspanError) as problem:
            raise HeadspanError(f"run.json is not that of a lab run ({problem}); choose another folder") from problem

    def with_settings(self, **options: Any) -> Recipe:
        """The same recipe with some settings replaced, those of its task and architecture by their own names."""
        own = {one.name for one in fields(Recipe)}
        task, shape = ({one.name for one in fields(kind)} for kind in (Task, Architecture))
        known = own | task | shape
        unknown = [name for name in options if name not in known]
        if unknown:
            raise ArgumentError(f"a recipe has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}")
        if {"heads", "d_model"} & set(options) and "d_head" not in options:
            options["d_head"] = 0  # follows from the two again
        return replace(
            self,
            task=replace(self.task, **{name: options[name] for name in task if name in options}),
            shape=replace(self.shape, **{name: options[name] for name in shape if name in options}),
            **{name: options[name] for name in own if name in options},
        )


SETTING_TYPES = {one.name: str(one.type) for kind in (Architecture, Task, Recipe) for one in fields(kind)}
"""Types of all settings by name, as they are declared."""


def text_recipe(text: Path, tokenizer: Path | None = None) -> Recipe:
    """A model of a text file: two layers of four heads with MLPs, blocks of 25 tokens as its test of copying.

    The vocabulary is the tokenizer's, or all bytes.
    """
    vocabulary = vocabulary_size(tokenizer)
    shape = Architecture(vocabulary=vocabulary, length=64, heads=4, mlp=256, dropout=0.0)
    return Recipe(
        task=Task(kind="text", vocabulary=vocabulary),
        shape=shape,
        text=str(text),
        tokenizer=None if tokenizer is None else str(tokenizer),
    )


_COPYING = Recipe()
PRESETS: Mapping[str, Recipe] = {
    "default": _COPYING.with_settings(steps=4_400, cooldown=1_000),
    "fast": _COPYING.with_settings(dropout=0.0, batch=32, steps=3_000, sharpness_every=250, stop_when_learned=True),
    "smoke": _COPYING.with_settings(
        vocabulary=32,
        length=32,
        d_model=32,
        shortest=5,
        longest=9,
        ood_block=12,
        dropout=0.0,
        batch=40,
        learning_rate=5e-3,
        steps=2_400,
        cooldown=400,
        track_every=100,
        sharpness_every=1_200,
        save_every=200,
        lenses_every=0,
    ),
    "published": _COPYING.with_settings(
        learning_rate=1e-3, steps=20_000, track_every=100, sharpness_every=1_000, lenses_every=2_000
    ),
}
_SUMS = _COPYING.with_settings(kind="addition", vocabulary=32, length=32, mlp=256, dropout=0.0, lenses_every=0)
_DIGITS = _SUMS.with_settings(
    vocabulary=12, length=11, digits=3, heads=2, mlp=128, batch=128, steps=3_000, cooldown=500, sharpness_every=1_000
)
ADDITION_PRESETS: Mapping[str, Recipe] = {
    "default": _SUMS.with_settings(steps=5_000, lenses_every=500),
    "smoke": _SUMS.with_settings(steps=1_200, sharpness_every=400),
    "digits": _DIGITS,
    "scratchpad": _DIGITS.with_settings(scratchpad=True, length=18),
}
"""Sums modulo 31, or of three digits; attention alone has nothing to add with, so these models have MLPs."""


def preset(name: str, task: str = "copying") -> Recipe:
    """The recipe of that name for a task that has presets."""
    known = ADDITION_PRESETS if task == "addition" else PRESETS
    if name not in known:
        raise ArgumentError(f"the task {task} has no preset {name!r}; its presets are {', '.join(known)}")
    return known[name]
