"""Configs and tokenizers that headspan opens, and that once took the process down inside `transformers`.

`python -m tests.robustness.hostile_running FOLDER [report]` tries every case on a small model in FOLDER: attention,
detect and, with `report`, a report. It prints one JSON object: by case, how each ended.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headspan.demo import demo_folder
from headspan.errors import HeadspanError

REPORTED = 24
"""One case in so many goes through a whole report; the others through one of the two chapters that are tried alone."""
CHAPTERS = ("attention", "detect")
CONFIG_VALUES: Mapping[str, tuple[Any, ...]] = {
    "use_cache": ("x", [], 3),
    "return_dict": (False, "x"),
    "output_attentions": ("x",),
    "layer_types": ("full_attention", ["linear_attention"], ["full_attention"] * 100_000, [3, None]),
    "pad_token_id": (10**6, -5, "x", [1]),
    "bos_token_id": (10**9, "x"),
    "eos_token_id": (["x"], -1, 2**40),
    "rms_norm_eps": (0, -1.0, "x", 1e30),
    "rope_theta": (0, -1.0, "x", 1e300),
    "rope_parameters": ([], "x", {"rope_type": "nope"}, {"rope_type": "yarn", "factor": "x"}, {"rope_theta": 0}),
    "rope_scaling": ({"type": "x"}, {"rope_type": "linear", "factor": 0}, {"rope_type": "dynamic", "factor": 1e300}),
    "intermediate_size": (10**7, 1, "x", -3),
    "vocab_size": (3 * 10**7, 1, 0, "x"),
    "num_labels": (10**6, -1, "x"),
    "id2label": ({str(n): "x" for n in range(100_000)}, [1], "x"),
    "hidden_act": ("nope", 3, ["silu"]),
    "attention_bias": ("yes", True),
    "mlp_bias": (True, "x"),
    "attention_dropout": ("x", 2.0, -1),
    "initializer_range": ("x", -1),
    "max_position_embeddings": (0, -1, 10**12, "x", 1),
    "tie_word_embeddings": ("x", True),
    "architectures": (3, ["Nope"], "LlamaForMaskedLM"),
    "torch_dtype": ("int4", 3),
    "dtype": ({}, "float99"),
    "pretraining_tp": (10**9, 0, "x"),
    "sliding_window": (-1, "x"),
    "transformers_version": (3, []),
    "attn_implementation": ("flash_attention_2", "../../x"),
    "auto_map": ({"AutoModel": "evil.Model"},),
    "pruned_heads": ({"0": [0]}, "x"),
    "chunk_size_feed_forward": (-1, 10**9),
    "add_cross_attention": (True, "x"),
    "_name_or_path": ("/etc/passwd",),
}


def _explode(tokenizer: dict[str, Any]) -> None:
    rule = {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [rule] * 40}


def _insert(tokenizer: dict[str, Any]) -> None:
    rule = {"type": "Replace", "pattern": {"Regex": ""}, "content": "x" * 100_000}
    tokenizer["normalizer"] = rule


def _change(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(tokenizer: dict[str, Any]) -> None:
        inner = tokenizer
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value

    return change


TOKENIZERS: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "rules that double a text forty times": _explode,
    "a rule that matches everywhere": _insert,
    "no model": _change("model", value=None),
    "a model nobody knows": _change("model", "type", value="Nope"),
    "an empty vocabulary": _change("model", "vocab", value={}),
    "ids beyond all tables": _change("model", "vocab", value={"a": 2**31, "b": 2**32 - 1}),
    "negative ids": _change("model", "vocab", value={"a": -1}),
    "merges of nothing": _change("model", "merges", value=[["a", "b"], "c", 3]),
    "padding without end": _change("padding", value={
        "strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "x"}),
    "truncation to nothing": _change("truncation", value={
        "max_length": 0, "strategy": "LongestFirst", "stride": 5, "direction": "Right"}),
    "added tokens as text": _change("added_tokens", value="x"),
    "an added token without text": _change("added_tokens", value=[
        {"id": 0, "content": "", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}]),
    "a pre-tokenizer nobody knows": _change("pre_tokenizer", value={"type": "Nope"}),
    "an expression that never ends": _change("pre_tokenizer", value={
        "type": "Split", "pattern": {"Regex": "(a|a|e)*(e|e)*$"}, "behavior": "Isolated", "invert": False}),
    "an expression that is none": _change("pre_tokenizer", value={
        "type": "Split", "pattern": {"Regex": "((("}, "behavior": "Isolated", "invert": False}),
    "a template of tokens that are not there": _change("post_processor", value={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "nope", "type_id": 0}}], "pair": [],
        "special_tokens": {}}),
    "a version of tomorrow": _change("version", value="9.0"),
}  # fmt: skip
TOKENIZER_CONFIGS: Mapping[str, Any] = {
    "tokenizer_class": "Nope",
    "model_max_length": "x",
    "auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]},
    "bos_token": ["a", 3],
    "eos_token": {"__type": "AddedToken"},
    "extra_special_tokens": "x",
    "additional_special_tokens": {"a": 1},
    "added_tokens_decoder": {"99999999999": {"content": "x"}},
    "clean_up_tokenization_spaces": "x",
    "padding_side": "up",
}


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def _config_case(name: str, value: Any) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        _write_json(folder / "config.json", {**content, name: value})

    return fill


def _tokenizer_case(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        _write_json(folder / "tokenizer.json", content)

    return fill


def _tokenizer_config_case(name: str, value: Any) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        content = json.loads((folder / "tokenizer_config.json").read_text())
        _write_json(folder / "tokenizer_config.json", {**content, name: value})

    return fill


def _replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return fill


def cases() -> dict[str, Callable[[Path], None]]:
    """Every case by name: what it does to a folder with an intact model."""
    configs = {
        f"{name} = {json.dumps(value)[:40]}": _config_case(name, value)
        for name, values in CONFIG_VALUES.items()
        for value in values
    }
    tokenizers = {name: _tokenizer_case(change) for name, change in TOKENIZERS.items()}
    settings = {
        f"tokenizer {name} = {json.dumps(value)[:40]}": _tokenizer_config_case(name, value)
        for name, value in TOKENIZER_CONFIGS.items()
    }
    files = {
        "a tokenizer that is a pipe": _replaced("tokenizer.json", os.mkfifo),
        "a tokenizer without end": _replaced("tokenizer.json", lambda path: path.symlink_to("/dev/zero")),
        "settings that are a pipe": _replaced("tokenizer_config.json", os.mkfifo),
        "a tokenizer of brackets": _replaced("tokenizer.json", lambda path: path.write_text("[" * 10**6)),
    }
    return {**configs, **tokenizers, **settings, **files}


def ending(action: Callable[[], Any]) -> str:
    """`fine`, the one line that refuses, or what should never come out."""
    try:
        action()
    except HeadspanError as refusal:
        return f"refused: {refusal}"
    except BaseException as problem:  # noqa: BLE001 - panics are no Exceptions
        return f"ESCAPED {type(problem).__name__}: {problem}"
    return "fine"


def report(place: Path, whole: bool) -> None:
    """A report on the model in a folder, of all chapters or of two."""
    import headspan
    from headspan.explorer import reports

    run = reports.run

    def narrow(lens: Any, *rest: Any, **more: Any) -> Any:
        if lens.name not in CHAPTERS:
            raise reports.NotRun("left out to be quick")
        return run(lens, *rest, **more)

    reports.run = run if whole else narrow
    try:
        headspan.report(str(place), place / "report.html", progress=False)
    finally:
        reports.run = run


def main(folder: Path, reported: bool) -> None:
    """Try every case and print how it ended."""
    import headspan

    warnings.simplefilter("ignore")
    found = {}
    for number, (name, fill) in enumerate(cases().items()):
        place = folder / str(number)
        shutil.copytree(demo_folder(), place)
        fill(place)
        ways: dict[str, Callable[[], Any]] = {
            "attention": lambda place=place: headspan.attention(str(place), "the cat sat on the mat").to_json(),
            "detect": lambda place=place: headspan.detect(str(place), progress=False).to_json(),
        }
        if reported:
            ways["report"] = lambda place=place, whole=number % REPORTED == 0: report(place, whole)
        found[name] = {way: ending(action) for way, action in ways.items()}
        shutil.rmtree(place)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "report" in sys.argv[2:])
