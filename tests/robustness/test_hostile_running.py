"""Configs and tokenizers that headspan opens never take down the process that runs the model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headspan
from headspan.demo import demo_folder
from headspan.errors import HeadspanError, UnsupportedModel
from headspan.runtime.boundary import check_tokenizer, library_boundary
from tests.robustness.hostile_running import cases, ending

MOST_MEMORY = 3 * 2**30
FEW = {
    'use_cache = "x"': "fine",
    "return_dict = false": "fine",
    "pad_token_id = 1000000": "fine",
    'layer_types = "full_attention"': "refused: transformers cannot run",
    "rms_norm_eps = -1.0": "refused: the attention of layer 0 of .* is NaN",
    "intermediate_size = 10000000": "refused: config.json: 'intermediate_size' is 10000000",
    "vocab_size = 30000000": "refused: config.json: 'vocab_size' is 30000000",
    "rules that double a text forty times": "fine",
    "a template of tokens that are not there": "refused: .*PanicException",
}


def filled(name: str, folder: Path) -> Path:
    shutil.copytree(demo_folder(), folder)
    cases()[name](folder)
    return folder


@pytest.mark.parametrize("name", FEW)
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_config_or_tokenizer_is_run_without_harm_or_refused(name: str, tmp_path: Path) -> None:
    import re

    place = filled(name, tmp_path / "model")
    found = ending(lambda: headspan.attention(str(place), [1, 5, 7], progress=False))
    if name.startswith("a template"):
        found = ending(lambda: headspan.attention(str(place), "the cat", progress=False))
    assert re.match(FEW[name], found), found
    assert "\n" not in found


def test_rules_of_a_tokenizer_that_multiply_a_text_are_refused_by_their_product(tmp_path: Path) -> None:
    rule = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    harmless = {"normalizer": {"type": "Sequence", "normalizers": [rule] * 40}}
    (tmp_path / "fine.json").write_text(json.dumps(harmless))
    check_tokenizer(tmp_path / "fine.json")
    rule["content"] = "▁▁"
    (tmp_path / "tokenizer.json").write_text(json.dumps(harmless))
    with pytest.raises(HeadspanError, match=r"normalizer that can make a text 1,000,000,000,000 times longer"):
        check_tokenizer(tmp_path / "tokenizer.json")


def test_the_boundary_turns_a_library_error_into_a_line_and_leaves_ours_alone() -> None:
    import transformers

    with pytest.raises(UnsupportedModel, match=r"cannot run 'x' \(\w*Error"), library_boundary("'x'"):
        transformers.AutoConfig.for_model("no such family")
    with pytest.raises(ZeroDivisionError), library_boundary("'x'"):
        _ = 1 // 0


@pytest.mark.slow
def test_all_hostile_configs_and_tokenizers_end_in_a_result_or_in_one_line(tmp_path: Path) -> None:
    program = (
        "import resource, runpy, sys; "
        "sys.argv = ['hostile_running', sys.argv[1], 'report']; "
        "runpy.run_module('tests.robustness.hostile_running', run_name='__main__'); "
        "print(); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document, peak = done.stdout.rsplit("\n", 2)[0], done.stdout.split()[-1]
    found = json.loads(document)
    assert len(found) >= 100
    escaped = {name: ways for name, ways in found.items() if "ESCAPED" in json.dumps(ways) or "\\n" in json.dumps(ways)}
    assert not escaped
    assert all(ways["report"] == "fine" or "refused: config.json" in ways["report"] for ways in found.values())
    assert int(peak) * 1024 < MOST_MEMORY
