"""Train the demo model and write its folder: `python -m demo_model.train`.

1. Build a two-layer Llama from the seed.
2. Train it to predict the next token of tiled random segments (`task.py`), on one thread.
3. Round the weights to float16 and save model and tokenizer as a Hugging Face folder.
4. Open that folder again, measure it, and write `scores.json` and `README.md` beside the weights.

The same seed and steps give the same bytes, on the same machine and library versions.

The tokenizer has one token per character, 64 symbols: ids 0 to 25 are a-z, 26 to 51 are A-Z, 52 to 61 are 0-9; then
come `<bos>` and `<pad>`, which no training sequence holds and which encoding never adds. A character outside the 62 is
dropped: no unknown-token exists.
"""

from __future__ import annotations

import argparse
import json
import string
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from demo_model.card import model_card, score_record
from demo_model.task import LENGTH, TiledSequences, open_demo, tiled_sequences
from headspan.demo import demo_folder

LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
BOS, PAD = "<bos>", "<pad>"
BOS_ID, PAD_ID = len(LETTERS), len(LETTERS) + 1
VOCABULARY_SIZE = len(LETTERS) + 2
STEPS_BETWEEN_REPORTS = 100


def character_tokenizer(model_max_length: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer, with `model_max_length` written into its config."""
    vocabulary = {symbol: index for index, symbol in enumerate([*LETTERS, BOS, PAD])}
    # Byte-pair encoding without a single merge is a character tokenizer, and drops what it does not know.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it unannotated
        tokenizer_object=tokenizer, bos_token=BOS, pad_token=PAD, model_max_length=model_max_length
    )


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the trained weights, besides the code."""

    seed: int = 0
    steps: int = 3_000
    batch_size: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    gradient_norm: float = 1.0


def untrained_model(seed: int) -> LlamaForCausalLM:
    """A two-layer Llama of eight heads a layer, drawn from the seed; global random state is left alone."""
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=LENGTH,
        bos_token_id=BOS_ID,
        pad_token_id=PAD_ID,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers leaves it unannotated


def trained_model(recipe: Recipe) -> LlamaForCausalLM:
    """Train a model from nothing, saying on stderr how far it is."""
    model = untrained_model(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps)
    model.train()
    for step in range(recipe.steps):
        loss = next_token_loss(model, tiled_sequences(recipe.batch_size, generator))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_norm)
        optimizer.step()
        schedule.step()
        if (step + 1) % STEPS_BETWEEN_REPORTS == 0 or step + 1 == recipe.steps:
            sys.stderr.write(f"step {step + 1}/{recipe.steps}  loss {loss.item():.3f}\n")
    model.train(mode=False)
    return model


def next_token_loss(model: LlamaForCausalLM, sequences: TiledSequences) -> torch.Tensor:
    """Mean cross-entropy of the next token, over all positions; log 64, about 4.16, for a guess."""
    logits = model(input_ids=sequences.tokens, use_cache=False).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1), sequences.tokens[:, 1:].flatten())


def write_demo(output: Path, recipe: Recipe) -> None:
    """Train, measure, and write the demo folder.

    Parameters
    ----------
    output : Path
        The folder to write; files of the same name are replaced once everything has been made.
    recipe : Recipe
        Seed, steps and the training settings.
    """
    model = trained_model(recipe)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".demo-") as name:
        folder = Path(name)
        model.half().save_pretrained(folder)  # type: ignore[no-untyped-call]  # transformers leaves it unannotated
        character_tokenizer(model_max_length=LENGTH).save_pretrained(folder)
        record = score_record(open_demo(folder), asdict(recipe))
        (folder / "scores.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(model_card(record), encoding="utf-8")
        for file in sorted(folder.iterdir()):
            file.chmod(0o644)  # safetensors writes for the owner alone, and a wheel keeps that
            file.replace(output / file.name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and write the demo folder, on one thread."""
    parser = argparse.ArgumentParser(
        prog="python -m demo_model.train",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument("--seed", type=int, default=Recipe.seed, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=demo_folder(), help="default: the packaged folder")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    write_demo(options.output, Recipe(seed=options.seed, steps=options.steps))


if __name__ == "__main__":
    main()
