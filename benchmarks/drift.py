"""What the drift of two checkpoints costs beside the singular value decompositions of both, on heads of GPT-2.

Same weights, float64, one thread. The null is timed beside the direct way: random changes of the whole matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor

import headspan
from benchmarks.measure import models_folder, ratio
from headspan.dims import ROLES
from headspan.lenses.drift.motion import Motion, motion, motion_variables, null_variables
from headspan.subspaces import grassmann_distance, orthonormal_basis, principal_angles

DRAWS, LAYER, CHANGE = 16, 5, 0.05


def main() -> None:
    """Print every figure."""
    torch.set_num_threads(1)
    folder = models_folder() / "gpt2-attention"
    if not folder.is_dir():
        print(f"GPT-2 attention is not at {folder}: set HEADSPAN_MODELS")
        return
    block = headspan.open(folder).heads(dtype=torch.float64).layer(LAYER)
    before = torch.cat([block.weight(role)[0].mT if role == "O" else block.weight(role)[0] for role in ROLES])
    noise = torch.randn(before.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    after = before + CHANGE * before.std() * noise
    found = motion(before, after, 1e-12)
    _measuring(before, after)
    _null(before, found)


def _measuring(before: Tensor, after: Tensor) -> None:
    """Angles, distances, spectra and shares against the bare decompositions of both sides."""
    d = before.shape[-2]

    def bare() -> list[object]:
        return [torch.linalg.svd(W, full_matrices=False) for W in (before, after)]

    ours, theirs, share = ratio(lambda: motion_variables(motion(before, after, 1e-12), d), bare, rounds=3)
    print(f"{len(before)} heads, without the null: {ours:.2f} s, bare SVDs of both {theirs:.2f} s, ratio {share:.2f}")


def _null(before: Tensor, found: Motion) -> None:
    """The null of every head from 2p x p draws, against changes of the whole matrices (four draws, scaled up)."""
    d, few = before.shape[-2], 4

    def direct() -> None:
        for draw in range(few):
            E = torch.randn(before.shape, generator=torch.Generator().manual_seed(draw), dtype=torch.float64)
            E *= (found.size / torch.linalg.matrix_norm(E))[:, None, None]
            perturbed = orthonormal_basis(before + E)
            grassmann_distance(principal_angles(found.before, perturbed))
            torch.linalg.svdvals(before + E)

    ours, theirs, share = ratio(lambda: null_variables(found, d, DRAWS, (0,), True), direct, rounds=3)
    print(
        f"null of {len(before)} heads, {DRAWS} draws: {ours:.2f} s, whole matrices {theirs * DRAWS / few:.2f} s, "
        f"{DRAWS / few / share:.1f} times faster"
    )


if __name__ == "__main__":
    main()
