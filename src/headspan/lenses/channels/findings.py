"""What channels say of a model or of a pair, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import xarray as xr

from headspan.finding import Finding, percent, significance
from headspan.lenses.channels.schema import ELHAGE, LEADING, NOTHING, RANDOM_READ, RANDOM_SENT, SHARED, WHOLE, top_nodes
from headspan.result import Result

LENS = "channels"
COMPOSITION = {"OQ": "Q-composition", "OK": "K-composition", "OV": "V-composition"}
LEVEL = 0.05
MATTERS, ERRORS, NEARLY = 0.05, 3.0, 0.9
"""Copying depends on a message that changes it by this much and by so many standard errors of a difference of two
shares; channels carry it that account for the last share of the change."""
SPECTRUM, PAIRS, USE = "Spectrum of the pair", "Channels of all pairs", "Without the channels"


def findings(result: Result) -> list[Finding]:
    """The strongest channels, how many stand out, and whether they are used."""
    found = list(_pair(result) if "pair" in result else _model(result))
    return [*found, *(_use(result) if "use" in result else ())]


def _model(result: Result) -> Iterator[Finding]:
    """Of every pairing the most remarkable leading channel, and how many pairs have one."""
    silent = []
    for pairing, node in top_nodes(result).items():
        best, null = node.isel(channel=0, null=0), str(node["null"].values[0])
        q = float(best["coupling_q"])
        if not q < LEVEL:
            silent.append(pairing)
            continue
        expected, z = float(best["coupling_null"]), float(best["coupling_z"])
        yield Finding(
            LENS,
            f"{best['src'].item()} → {best['dst'].item()} has the {COMPOSITION[pairing]} channel that stands out most: "
            f"its coupling is {float(best['coupling']):.3f} (expected {expected:.3f}, z = {z:.1f}, "
            f"{significance('q', q)}), and it carries {100 * float(best['share']):.0f} % of what the pair can pass.",
            value=float(best["coupling"]),
            expected=expected,
            q=q,
            evidence=f"Leading singular value over both circuits' norms; null: {null}. {_counted(result, pairing)}",
            reference=ELHAGE,
            weight=0.6,
            figure=PAIRS,
        )
    yield from _strongest(result)
    if silent:
        named = ", ".join(COMPOSITION[pairing] for pairing in silent)
        yield Finding(LENS, f"No {named} channel stands out.", value=0.0, weight=0.05, figure=PAIRS)


def _counted(result: Result, pairing: str) -> str:
    if pairing not in result:
        return "Pairs of high affinity alone were decomposed."
    grid = result[pairing]
    return f"{int(grid['n_significant'][0]):,} of {int(grid['n_pairs']):,} pairs have q < 0.05."


def _strongest(result: Result) -> Iterator[Finding]:
    """The source of most of the strongest significant channels, by strength alone, where one source leads."""
    rows = result.table()
    rows = rows[rows["coupling_q"] < LEVEL].nlargest(6, "strength")
    if len(rows) < 6 or rows["src"].nunique() > 1 or rows["pairing"].nunique() > 1:
        return
    src, pairing = rows["src"].iloc[0], rows["pairing"].iloc[0]
    yield Finding(
        LENS,
        f"The six strongest channels all lead from {src}, by {COMPOSITION[pairing]} into {', '.join(rows['dst'])}: "
        f"strengths {rows['strength'].min():.1f} to {rows['strength'].max():.1f}.",
        value=float(rows["strength"].iloc[0]),
        evidence="By singular value, among listed channels with q < 0.05.",
        weight=0.65,
        figure=PAIRS,
    )


def _pair(result: Result) -> Iterator[Finding]:
    """Of every pairing how much its leading channel stands out, and how many channels there are."""
    src, dst = result.attrs["src"], result.attrs["dst"]
    for pairing, node in top_nodes(result).items():
        best = node.isel(channel=0, null=0)
        p, strength = float(best["coupling_p"]), float(best["strength"])
        expected = strength * float(best["coupling_null"]) / float(best["coupling"]) if strength else 0.0
        if not p < LEVEL:
            yield Finding(
                LENS,
                f"The leading {COMPOSITION[pairing]} channel from {src} to {dst} is not significant "
                f"({significance('p', p)}).",
                value=strength,
                expected=expected,
                p=p if p == p else None,
                weight=0.1,
                figure=SPECTRUM,
            )
            continue
        yield Finding(
            LENS,
            f"{src} → {dst}, {COMPOSITION[pairing]}: the leading channel has strength {strength:.2f} (expected "
            f"{expected:.2f}, {significance('p', p)}) and {percent(float(best['share']))} of the energy; "
            f"{float(best['carrying']):.0f} channels carry 90 %.{_signed(best, pairing)}",
            value=strength,
            expected=expected,
            p=p,
            evidence="Null: random rotations between what is written and what is read, which keep both spectra.",
            reference=ELHAGE,
            weight=0.5,
            figure=SPECTRUM,
        )


def _signed(best: xr.Dataset, pairing: str) -> str:
    sign = str(best["sign"].values)
    if sign == "neutral":
        return ""
    does = {"excites": ("more", "copies"), "inhibits": ("less", "writes the opposite of")}[sign]
    if pairing == "OV":
        return f" It {does[1]} what the source reads (cosine {float(best['alignment']):.2f})."
    side = "query" if pairing == "OK" else "key"
    return (
        f" A {side} that holds what the source reads is attended to {does[0]} (cosine {float(best['alignment']):.2f})."
    )


def _use(result: Result) -> Iterator[Finding]:
    """Whether one channel carries the copying, or how many do."""
    rows = result.table("use")
    for pairing, own in rows[rows["untrained"] == 0].groupby("pairing", sort=False):
        copied = own.groupby(["removed", "channels"])["copied"].mean()
        plain, whole = (float(copied[removed].iloc[0]) for removed in (NOTHING, WHOLE))
        path = f"from {result.attrs['src']} to {result.attrs['used']} ({pairing})"
        if plain - whole < max(MATTERS, ERRORS * (0.5 / _counted_tokens(result)) ** 0.5):
            told = f"Copying of repeated tokens is not measurably changed without the message {path}:"
            told = f"{told} {plain:.2f} with it, {whole:.2f} without."
            yield Finding(LENS, told, value=whole, expected=plain, weight=0.2, figure=USE)
            continue
        leading = copied[LEADING]
        enough = leading.index[(plain - leading >= NEARLY * (plain - whole)).to_numpy()]
        many = int(enough[0] if len(enough) else leading.index[-1])
        sent, read = (float(copied[removed, many]) for removed in (RANDOM_SENT, RANDOM_READ))
        untrained = rows[(rows["untrained"] == 1) & (rows["pairing"] == pairing)]["copied"].mean()
        yield Finding(
            LENS,
            f"{_carriers(many)} {path}. Copied of repeated tokens: {plain:.2f}, without "
            f"{'it' if many == 1 else 'these'} {float(leading[many]):.2f}, without the leading one alone "
            f"{float(leading[1]):.2f}{_shared(copied)}; without random directions of equal read energy "
            f"{sent:.2f} (of the message) and {read:.2f} (of what is read). Untrained: {untrained:.2f} throughout.",
            value=float(leading[many]),
            expected=sent,
            evidence="Removed from the destinations' input at the norm's unmodified scale, on repeated random tokens.",
            weight=0.7,
            figure=USE,
        )


def _shared(copied: pd.Series) -> str:
    """What is left without the one direction that carries most to several destinations together."""
    if SHARED not in copied:
        return ""
    return f", without the leading direction that these heads share {float(copied[SHARED, 1]):.2f}"


def _counted_tokens(result: Result) -> int:
    return int(result.attrs["sequences"]) * (int(result.attrs["half"]) - 1)


def _carriers(many: int) -> str:
    return "One channel carries the copying" if many == 1 else f"It takes {many} channels to carry the copying"
