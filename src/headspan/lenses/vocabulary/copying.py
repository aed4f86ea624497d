r"""Whether a head copies tokens (OV) or matches equal ones (QK): the eigenvalues of its circuit over tokens.

With W_OV = A B^T (A = W_V, B = W_O^T) the circuit from token to logits is W_E W_OV W_U, tokens x tokens. Those of its
eigenvalues that need not be 0 are those of the d_head x d_head matrix B^T C A with C = W_U W_E; likewise for
W_E W_QK W_E^T with A = W_Q, B = W_K and C = W_E^T W_E. Both sums over tokens are centered: what a head adds to all
logits alike, or to the scores of all keys alike, drops out of the softmax.

The positivity sum Re(lambda) / sum |lambda| in [-1, 1] is 1 where a head raises (or attends to) the token it reads.

Null: A turned by a random rotation Q of the stream, which keeps the singular values of A, B and C. The trace then has
mean 0 and variance |A B^T C|_F^2 / d exactly. The spread of the positivity comes from a few draws, with the squared
trace, whose mean is known, as control variate: that takes out most of the noise of so few. p-values are those of a
normal law, two-sided. For a Ginibre matrix of d_head x d_head (independent normal entries) the spread is
3 / (2 d_head), a reference line.

References
----------
Elhage et al. (2021), A mathematical framework for transformer circuits. Ginibre (1965), Statistical ensembles of
complex, quaternion and real matrices.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Complex, Float
from scipy import special  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.lenses.token_reading import TokenTable
from headspan.statistics import q_values
from headspan.subspaces.grams import row_gram
from headspan.threads import one_thread

DRAWS = 10
SCORES = {"OV": "copying", "QK": "matching"}
Arrays = dict[str, np.ndarray]


def cross_covariance(first: TokenTable, second: TokenTable) -> Float[Tensor, "d_model d_model"]:
    """Mean over tokens of u_t e_t^T, less that of the means, with rows u of `first` and e of `second`; float64.

    Over all tokens that both tables have, special ones too: the model copies those as well.
    """
    u, e = first.rows, second.rows
    n = min(u.n_tokens, e.n_tokens)
    both = torch.arange(n, device=u.stored.device)
    total = torch.zeros(u.stored.shape[1], e.stored.shape[1], dtype=torch.float64, device=u.stored.device)
    means = [torch.zeros(rows.stored.shape[1], dtype=torch.float64, device=rows.stored.device) for rows in (u, e)]
    same = u.stored.data_ptr() == e.stored.data_ptr()
    step = max(1, min(first.entries, second.entries) // max(total.shape))
    for start in range(0, n, step):
        part = both[start : start + step]
        left = u.stored[part].to(first.dtype)
        right = left if same else e.stored[part].to(second.dtype)
        total += row_gram(left.mT) if same else left.mT @ right
        for mean, block in zip(means, (left, right), strict=True):
            mean += block.sum(0, dtype=torch.float64)
    total = total / n - torch.outer(means[0], means[1]) / n**2
    if u.pull is not None:
        total = u.pull.double() @ total
    return total if e.pull is None else total @ e.pull.double().mT


def circuit_eigenvalues(
    A: Float[Tensor, "head d r"], B: Float[Tensor, "head d r"], C: Float[Tensor, "d d"]
) -> Complex[Tensor, "head r"]:
    """Eigenvalues of B^T C A, which are those of the circuit over tokens, largest first."""
    return _eigenvalues(B.double().mT @ C, A.double())


def _eigenvalues(left: Float[Tensor, "head r d"], A: Float[Tensor, "head d r"]) -> Complex[Tensor, "head r"]:
    with one_thread():
        values: Tensor = torch.linalg.eigvals(left @ A)
    order = values.abs().argsort(-1, descending=True)
    return values.gather(-1, order)


def positivity(eigenvalues: Complex[Tensor, "*batch r"]) -> Float[Tensor, "*batch"]:
    """sum Re(lambda) / sum |lambda|, in [-1, 1]; 0 under the null, NaN for a matrix of zeros."""
    return eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1)


def copying_scores(
    A: Float[Tensor, "head d r"], B: Float[Tensor, "head d r"], C: Float[Tensor, "d d"], seed: int
) -> Arrays:
    """[head]: `score`, its `null_sd` under rotation, and the eigenvalues [head, eigenvalue], real and imaginary."""
    A, B, C = A.double(), B.double(), C.double()
    left = B.mT @ C
    values = _eigenvalues(left, A)
    with one_thread():
        R = torch.linalg.qr(A, mode="r").R
    # |A B^T C|_F^2 = tr((B^T C)(B^T C)^T A^T A)
    variance = ((left @ left.mT) * (A.mT @ A)).sum((-2, -1)) / A.shape[-2]
    generator = torch.Generator(device="cpu").manual_seed(seed)
    squares, traces = [], []
    for _ in range(DRAWS):
        # One rotation for all heads: each head by itself sees a random one.
        frame = torch.randn(A.shape[-2:], generator=generator, dtype=torch.float64)
        with one_thread():
            drawn = torch.linalg.eigvals((left @ torch.linalg.qr(frame).Q.to(A.device)) @ R)
        squares.append(positivity(drawn).square())
        traces.append(drawn.real.sum(-1).square() / variance)
    return {
        "score": positivity(values).numpy(force=True),
        "null_sd": _controlled_mean(torch.stack(squares), torch.stack(traces)).sqrt().numpy(force=True),
        "eigenvalue_real": values.real.numpy(force=True),
        "eigenvalue_imag": values.imag.numpy(force=True),
    }


def _controlled_mean(values: Float[Tensor, "draw head"], control: Float[Tensor, "draw head"]) -> Float[Tensor, " head"]:
    """The mean of values in [0, 1] over few draws, with a control whose mean is 1; NaN for a head of zeros."""
    mean, known = values.mean(0), control - control.mean(0)
    slope = (known * (values - mean)).sum(0) / known.square().sum(0)
    return (mean - slope * (control.mean(0) - 1)).clamp(0.25 * mean, torch.ones_like(mean))


def copying_variables(kind: str, parts: list[Arrays], r: int) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The variables of one circuit's scores, all heads together: null, spread, z, p and q beside the score."""
    name = SCORES[kind]
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    with np.errstate(invalid="ignore", divide="ignore"):
        z = joined["score"] / joined["null_sd"]
    p = special.erfc(np.abs(z) / np.sqrt(2))
    heads, eigenvalues = ("head",), ("head", f"{name}_eigenvalue")
    return {
        name: (heads, joined["score"]),
        f"{name}_null": ((), np.asarray(0.0)),
        f"{name}_null_sd": (heads, joined["null_sd"]),
        f"{name}_z": (heads, z),
        f"{name}_p": (heads, p),
        f"{name}_q": (heads, q_values(p)),
        f"{name}_ginibre_sd": ((), np.asarray(3 / (2 * r))),
        f"{name}_eigenvalue_real": (eigenvalues, joined["eigenvalue_real"]),
        f"{name}_eigenvalue_imag": (eigenvalues, joined["eigenvalue_imag"]),
    }
