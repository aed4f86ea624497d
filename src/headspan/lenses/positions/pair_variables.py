"""Variables about the two tables together: capture, overlaps, corners, principal angles, mean rows."""

from __future__ import annotations

import numpy as np
import torch

from headspan.lenses.positions.capture import capture
from headspan.lenses.positions.chance import kernel_log_p, z_score
from headspan.lenses.positions.overlap import block_averages, block_sd, corners, squared_overlap
from headspan.lenses.positions.spectrum import Spectrum, TableSpectra
from headspan.lenses.positions.table_variables import CENTRING, CENTRINGS, DIRECTION, Variables
from headspan.subspaces import Subspace, angle_null, principal_angles

CHOICES = ("given", "energy_90")
"""How k is chosen: as asked, and as the number of directions that hold 90 % of the position table's energy."""

ROUNDING = 1e-20
"""A mean row with less than this share of its table's energy is what rounding left."""


def chosen_k(P: Spectrum, k: int) -> dict[str, int]:
    """k by each choice, never more than the table's rank."""
    return {"given": min(k, P.rank), "energy_90": P.energy_rank(0.9)}


def capture_variables(P: TableSpectra, E: TableSpectra, k: int) -> Variables:
    """Capture curves [centring, k_choice, direction] and their deciles."""
    found = [[capture(E[c], P[c], number) for number in chosen_k(P[c], k).values()] for c in CENTRINGS]
    dims = (CENTRING, "k_choice")

    def grid(name: str) -> np.ndarray:
        return np.array([[getattr(item, name) for item in row] for row in found])

    size = grid("k")
    out: Variables = {"capture_k": (dims, size), "capture": ((*dims, DIRECTION), grid("curve"))}
    out["capture_chance"] = (dims, np.where(size > 0, size / P.stored.d, np.nan))
    out["capture_log_p"] = ((*dims, DIRECTION), grid("log_p"))
    for part in ("", "_size", "_chance", "_z", "_log_p"):
        out[f"decile{part}"] = ((*dims, "decile"), grid(f"decile{part}"))
    return out


def overlap_variables(P: TableSpectra, E: TableSpectra, blocks: int, full: bool) -> Variables:
    """Squared overlaps of the directions of E (rows) with those of P (columns): block averages, corners, and all."""
    averages, scores, masses, whole = [], [], [], []
    d = P.stored.d
    for centring in CENTRINGS:
        overlap = squared_overlap(E[centring].directions, P[centring].directions)
        average = block_averages(overlap, (blocks, blocks)).cpu().numpy()
        averages.append(average)
        scores.append(z_score(average, np.full_like(average, 1 / d), block_sd(_counts(overlap), (blocks, blocks), d)))
        masses.append(corners(overlap, d))
        whole.append(_padded(overlap, d))
    dims = (CENTRING, "token_block", "table_block")
    out: Variables = {"table_overlap": (dims, np.stack(averages)), "table_overlap_z": (dims, np.stack(scores))}
    for part, name in (("", "mass"), ("_chance", "chance"), ("_z", "z"), ("_log_p", "log_p")):
        values = np.stack([getattr(corner, name) for corner in masses])
        out[f"table_corner{part}"] = ((CENTRING, "token_side", "table_side"), values)
    if full:
        out["table_overlap_full"] = ((CENTRING, "token_direction", "table_direction"), np.stack(whole))
    return out


def _counts(overlap: torch.Tensor) -> tuple[int, int]:
    return overlap.shape[-2], overlap.shape[-1]


def _padded(overlap: torch.Tensor, d: int) -> np.ndarray:
    whole = np.full((d, d), np.nan, dtype=np.float32)
    whole[: overlap.shape[0], : overlap.shape[1]] = overlap.cpu().numpy()
    return whole


def angle_variables(P: TableSpectra, E: TableSpectra, k: int, seed: int) -> Variables:
    """Principal angles of the top k directions of both tables, with chance; NaN beyond the smaller rank."""
    angles, chance, sd = np.full((3, len(CENTRINGS), k), np.nan)
    for place, centring in enumerate(CENTRINGS):
        p, q = (min(k, spectra[centring].rank) for spectra in (P, E))
        if min(p, q) == 0:
            continue
        spaces = (Subspace.from_orthonormal(T[centring].directions[:, :n]) for T, n in ((P, p), (E, q)))
        found = principal_angles(*spaces).cpu().numpy()
        random = angle_null(P.stored.d, p, q, seed=seed)
        angles[place, : len(found)] = found
        chance[place, : len(found)] = random.angle_mean.numpy()
        sd[place, : len(found)] = random.angle_sd.numpy()
    dims = (CENTRING, "angle")
    kernel = np.where(np.isnan(angles).all(1), np.nan, np.nansum(np.cos(angles) ** 2, axis=1))
    return {
        "angle": (dims, angles),
        "angle_chance": (dims, chance),
        "angle_z": (dims, z_score(angles, chance, sd)),
        "top_kernel": ((CENTRING,), kernel),
        "top_kernel_chance": ((CENTRING,), np.array([_kernel_chance(P[c], E[c], k) for c in CENTRINGS])),
        "top_kernel_log_p": ((CENTRING,), np.array([_kernel_log_p(P[c], E[c], k, kernel[i]) for i, c in _numbered()])),
    }


def _numbered() -> list[tuple[int, str]]:
    return list(enumerate(CENTRINGS))


def _kernel_chance(P: Spectrum, E: Spectrum, k: int) -> float:
    p, q = min(k, P.rank), min(k, E.rank)
    return p * q / P.d if p and q else float("nan")


def _kernel_log_p(P: Spectrum, E: Spectrum, k: int, kernel: float) -> float:
    p, q = min(k, P.rank), min(k, E.rank)
    return float(kernel_log_p(np.array([kernel]), np.array([p]), np.array([q]), P.d)[0])


def mean_variables(P: TableSpectra, E: TableSpectra, k: int) -> Variables:
    """Where the mean rows lie: their cosine, and the share of E's mean row in the top k directions of P as stored.

    By chance the squared cosine is 1/d and the share k/d; both have exact Beta laws. NaN where a mean row is rounding.
    """
    d, number = P.stored.d, min(k, P.stored.rank)
    first, second = (spectra.mean_row / spectra.mean_row.norm() for spectra in (P, E))
    if min(P.mean_share, E.mean_share) < ROUNDING:
        first, second = first * torch.nan, second * torch.nan
    cosine = float(first @ second)
    share = float((second @ P.stored.directions[:, :number]).square().sum())
    values = np.array([cosine**2, share])
    log_p = kernel_log_p(values, np.array([1, number]), np.array([1, 1]), d)
    return {
        "mean_cosine": ((), np.array(cosine)),
        "mean_cosine_sd_chance": ((), np.array(d**-0.5)),
        "mean_cosine_log_p": ((), log_p[0]),
        "mean_capture": ((), np.array(share)),
        "mean_capture_chance": ((), np.array(number / d)),
        "mean_capture_log_p": ((), log_p[1]),
    }
