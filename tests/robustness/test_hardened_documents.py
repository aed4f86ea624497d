"""Cases that once ended in a traceback, a hang or a full memory, each through the function that reads the document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.demo import demo_folder
from headspan.errors import DamagedFile, HeadspanError, LongWork, MemoryBudgetError, StoreError
from headspan.lab.run_folder import RunFolder
from headspan.lab.session import train
from headspan.lenses.affinity import costs
from headspan.seal import check_archive, sealed, sealed_archive, unsealed
from headspan.storage import write_netcdf
from headspan.sweeps.checkpoints import Settings
from headspan.sweeps.specification import parse_series
from headspan.sweeps.store import Store
from tests.robustness import hostile
from tests.unit.lab.small import tiny_recipe

DEEP = "[" * 5000


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_list_that_includes_itself_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.yaml", "[b.yaml]")
    written(tmp_path / "b.yaml", "[a.yaml]")
    with pytest.raises(HeadspanError, match="includes itself"):
        parse_series(path)
    written(tmp_path / "b.yaml", "[demo]")
    assert [each.model for each in parse_series(path)] == ["demo"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("- ~nosuchuser/x", "is no path"),
        ("- 2001-01-01\n- 3", "names a checkpoint by 3"),
        ('- "\\ud800"', "half of a surrogate pair"),
        ("a: {99999999999999999999: demo}", "at steps from 0 to"),
        ("a: {true: demo}", "is not a whole number"),
        (DEEP, "nested more than"),
    ],
    ids=range(6),
)
def test_a_hostile_list_of_checkpoints_is_refused(content: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(HeadspanError, match=reason):
        parse_series(written(tmp_path / "a.yaml", content))


def test_a_list_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(HeadspanError, match="is a pipe"):
        parse_series(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 3}, "its 'schema' is 3"),
        ({"schema": "headspan.sweep/2x"}, "its 'schema' is"),
        ({"series": []}, "'series' is wrong"),
        ({"series": {"a": {"x": "demo"}}}, "the step 'x' is not a whole number"),
        ({"series": {"a": {"1": 3}}}, "'series"),
        ({"settings": {"fold": 3}}, "'settings.fold' is wrong"),
        ({"lenses": None}, "'lenses' is wrong"),
        ({"failures": [[]]}, "'failures"),
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused_by_its_name(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    store = Store.claim(tmp_path / "store", Settings())
    record = json.loads(store.manifest_file.read_text())
    store.manifest_file.write_text(json.dumps({**record, **change}))
    with pytest.raises(StoreError, match=reason):
        Store.found(tmp_path / "store")


def test_an_adapter_that_names_itself_or_holds_no_plain_numbers_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    settings = {"peft_type": "LORA", "r": 1, "base_model_name_or_path": str(folder)}
    written(folder / "adapter_config.json", json.dumps(settings))
    with pytest.raises(HeadspanError, match="adapts another adapter"):
        open_checkpoint(folder)
    base = open_checkpoint("demo")
    name = "model.layers.0.self_attn.q_proj"
    n_out, n_in = base.store.infos[f"{name}.weight"].shape
    for dtype in (torch.float8_e4m3fn, torch.complex64):
        parts = {"lora_A": torch.zeros(1, n_in), "lora_B": torch.zeros(n_out, 1)}
        tensors = {f"base_model.model.{name}.{part}.weight": each.to(dtype) for part, each in parts.items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        written(folder / "adapter_config.json", json.dumps({**settings, "base_model_name_or_path": str(demo_folder())}))
        with pytest.raises(HeadspanError, match="is stored as"):
            open_checkpoint(folder)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b'{"x": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}', "5,000 digits"),
        (b'{"\\ud800": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}', "surrogate"),
        (b'{"x": {"dtype": "F32", "shape": [' + b"1," * 200_000 + b'1], "data_offsets": [0, 4]}}', "200,001 dims"),
        (b'{"x": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "nested more than"),
    ],
)
def test_a_hostile_header_is_refused_at_once(header: bytes, reason: str, tmp_path: Path) -> None:
    hostile.write(tmp_path, len(header).to_bytes(8, "little") + header + b"0000")
    with pytest.raises(HeadspanError, match=reason):
        open_checkpoint(tmp_path)


def test_a_prompt_that_never_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(HeadspanError, match="not a regular file"):
            headspan.attention("demo", few_shot=path)


@pytest.mark.parametrize("seed", [2**63, -1, 10**30])
def test_a_seed_beyond_its_bits_is_refused(seed: int) -> None:
    with pytest.raises(HeadspanError, match="seed needs to be a whole number in 0"):
        headspan.affinity("demo", seed=seed)


def test_what_does_not_fit_is_refused_with_its_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HeadspanError, match="at most 12"):
        headspan.open("synthetic:tiny?planted=1000000000")
    heads = headspan.synthetic("tiny", layers=2000).heads()
    exact = costs.affinity_plan(heads, ("OQ", "OK", "OV"), 2, 4 * 10**9, "exact")
    monkeypatch.setattr(costs, "machine_memory", lambda: 16 * 10**9)
    with pytest.raises(MemoryBudgetError, match=r"needs about 1\d\d GB of memory, and there are 16"):
        costs.check_affordable(exact, 4 * 10**9, heads.dtype)
    plan = costs.affinity_plan(heads, ("OQ", "OK", "OV"), 2, 4 * 10**9)
    assert plan.chosen.algorithm == "sketch"
    with pytest.warns(LongWork, match="takes about .* minutes"):
        costs.check_affordable(plan, 4 * 10**9, heads.dtype)


def test_every_flipped_bit_of_a_sealed_file_is_noticed() -> None:
    import io

    import numpy as np

    state = sealed(b"PKcontent")
    assert unsealed(state, b"PK") == b"PKcontent"
    assert unsealed(b"PKolder", b"PK") == b"PKolder"
    buffer = io.BytesIO()
    np.savez(buffer, header=np.arange(3))
    archive = sealed_archive(buffer.getvalue())
    assert check_archive(archive)
    assert not check_archive(buffer.getvalue())
    for content, read in ((state, lambda flipped: unsealed(flipped, b"PK")), (archive, check_archive)):
        for place in range(len(content)):
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            with pytest.raises(HeadspanError, match="checksum"):
                read(bytes(flipped))


def flip(path: Path, place: int = -50) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_a_training_state_with_a_flipped_bit_gives_way_to_the_one_before(tmp_path: Path) -> None:
    def stop(*_: Any, done: int = 0, **more: Any) -> None:
        if done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny_recipe(), tmp_path / "run", stop)
    files = RunFolder(tmp_path / "run")
    flip(files.state_file)
    with pytest.warns(DamagedFile, match="goes on from the state before it"):
        found = train(tiny_recipe(), tmp_path / "run")
    for name, tensor in train(tiny_recipe()).model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor)


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    run = RunFolder.claim(tmp_path / "run", recipe)
    with run.writing(recipe), pytest.raises(HeadspanError, match="another training run is writing to"):
        train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run")


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import headspan
result = headspan.ranks("demo")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    result.save(Path(sys.argv[1]) / "ranks.nc")
except headspan.HeadspanError as problem:
    sys.exit(str(problem))
"""


@pytest.mark.slow
def test_a_full_disk_while_netcdf_is_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done.stderr  # not killed by a signal
    assert done.stderr.strip().endswith("File too large")
    assert list(tmp_path.iterdir()) == []


def test_a_large_netcdf_file_is_written_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = headspan.ranks("demo").data
    write_netcdf(data, tmp_path / "small.nc")
    monkeypatch.setattr("headspan.storage.IN_MEMORY", 0)
    write_netcdf(data, tmp_path / "large.nc")
    one, other = (headspan.load(tmp_path / name) for name in ("small.nc", "large.nc"))
    assert one.data.identical(other.data)
