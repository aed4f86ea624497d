"""The variables of a spectra result: a node per kind of matrix, `alignment` by head and `layer` by layer."""

from __future__ import annotations

from collections.abc import Iterator

from headspan.dims import HEAD, LAYER, head_axis
from headspan.lenses.spectra.kinds import KINDS, PER_HEAD, PRODUCTS, TABLES, head_role
from headspan.schema import Schema, Table, Variable

NOISE = (
    "Independent normal entries of one standard deviation (products: two such factors); mean over draws of this shape."
)
UNIFORM = "Independent normal entries with the scale of the matrix's own middle half; uniform."
FACTORS = (
    "W_Q and W_K (null factors) or W_QK (null product) keep their singular values and get random singular vectors; 0."
)
PRODUCT = "W_QK keeps its singular values and gets independent random singular vectors"
LAW = "Marchenko and Pastur (1967)"
ROY = "Roy and Vetterli (2007), The effective rank"
SUMMARIES = {
    "energy_ratio": ("squared norm over its expectation at initialization", "at least 0"),
    "largest_share": ("share of the largest singular value in the squared norm", "[1/k, 1]"),
    "stable_rank": ("stable rank, squared norm over the largest squared singular value", "[1, k]"),
    "effective_rank": ("effective rank, exponential of the entropy of the singular values", "[1, k]"),
    "entropy": ("entropy of the squared singular values (nats)", "[0, log k]"),
    "log_condition": ("logarithm of the condition number", "at least 0, infinite for a singular matrix"),
    "ks": ("Kolmogorov-Smirnov distance from the law at the scale of the bulk", "[0, 1]"),
    "ks_init": ("Kolmogorov-Smirnov distance from the law at the scale of initialization", "[0, 1]"),
    "above": ("share of singular values above their quantile, at the scale of the bulk", "[0, 1]"),
    "above_init": ("share of singular values above their quantile, at the scale of initialization", "[0, 1]"),
    "spikes": ("singular values beyond the largest of a random matrix (p < 0.01)", "0 to k"),
}
PLAIN = {
    "energy": ("squared norm", "at least 0"),
    "rms": ("root mean square of the entries", "at least 0"),
    "sigma": ("standard deviation of entries, fitted to the middle half of the spectrum", "at least 0"),
    "edge": ("upper edge of the law at the scale of the bulk", "at least 0"),
    "smallest": ("smallest singular value", "at least 0"),
    "numerical_rank": ("singular values above the noise of the stored dtype, or the tolerance", "0 to k"),
}
SHAPE = {
    "sigma_init": "standard deviation of entries at initialization",
    "edge_init": "upper edge of the law at the scale of initialization",
    "rows": "rows of the matrix",
    "columns": "columns of the matrix",
}
POWER_LAW = {
    "power_law_alpha": ("exponent of a power law fitted to the tail", "above 1"),
    "power_law_xmin": ("squared singular value where the fitted tail begins", "above 0"),
    "power_law_ks": ("Kolmogorov-Smirnov distance of the tail from its fit", "[0, 1]"),
    "power_law_values": ("singular values in the fitted tail", "0 to k"),
    "power_law_over_lognormal": ("log-likelihood ratio of power law and log-normal tail", "any number"),
}


def kind_axes(kind: str) -> tuple[str, ...]:
    """The public axes along which the matrices of a kind run."""
    if kind in TABLES:
        return ()
    if kind in PER_HEAD:
        return (head_axis(head_role(kind)),)
    return (HEAD,) if kind in PRODUCTS else (LAYER,)


def _kind_variables(kind: str) -> Iterator[Variable]:
    axes, first = kind_axes(kind), kind == KINDS[0]
    yield Variable(
        "singular_value",
        (*axes, "rank"),
        "singular value",
        range="at least 0, descending",
        null="Independent normal entries: sigma times typical, the quantiles of the law.",
        formula="ρ ( λ ) = frac{sqrt{( λ_+ − λ ) ( λ − λ_- )}}{2 π s^2 γ λ} , λ_± = s^2 ( 1 ± sqrt{γ} )^2"
        if first
        else "",
        text="Marchenko–Pastur law: the density of the squared singular values of a random matrix, with γ the ratio of "
        "its sides and s the scale of its entries. A spike is a singular value above the upper edge."
        if first
        else "",
        reference=LAW,
        card="Singular values" if kind in PER_HEAD else "",
    )
    yield Variable("largest", axes, "largest singular value", "at least 0", UNIFORM, derived=("p",))
    for name, (text, values) in SUMMARIES.items():
        reference = ROY if name == "effective_rank" else ""
        yield Variable(name, axes, text, values, NOISE, reference=reference, derived=("null", "null_sd", "z"))
    yield from (Variable(name, axes, text, values) for name, (text, values) in PLAIN.items())
    yield from (Variable(name, (), text, "above 0") for name, text in SHAPE.items())
    yield Variable("typical", ("rank",), "expected singular value of entries of standard deviation 1", "at least 0")
    of_leading = "{} of a leading singular value: that the largest of a random matrix reaches it"
    yield Variable("leading_p", (*axes, "leading"), of_leading.format("p-value"), "[0, 1]", UNIFORM)
    log_p = of_leading.format("natural logarithm of the p-value")
    yield Variable("leading_log_p", (*axes, "leading"), log_p, "at most 0", UNIFORM)
    if kind in PRODUCTS:
        text = "squared norm of the product over that of independent factors with the same norms"
        yield Variable("energy_given_factors", axes, text, "[0, d_head]", "Independent factors: 1.", derived=("null",))
    elif kind not in PER_HEAD:
        for name, (text, values) in POWER_LAW.items():
            yield Variable(name, axes, text, values, NOISE, derived=("null",), optional=True)


ALIGNMENT = (
    Variable("trace", (HEAD,), "trace of W_QK", "any number", FACTORS, derived=("null", "null_sd", "p", "q")),
    Variable(
        "trace_z",
        (HEAD,),
        "trace of W_QK, standard deviations from 0",
        range="any number, 0 expected",
        null=FACTORS,
        formula="z = frac{tr ( W_Q W_K^⊤ )}{sd}",
        text="Base alignment: whether queries match keys of the same direction; 0 ± 1 when the singular vectors of W_Q "
        "and W_K are random.",
        card="z of the trace of W_QK",
    ),
    Variable("nuclear_norm", (HEAD,), "nuclear norm of W_QK, the largest possible trace", "at least 0"),
    Variable(
        "trace_share",
        (HEAD,),
        "trace of W_QK as a share of its nuclear norm",
        "[-1, 1]",
        f"{PRODUCT}: 0.",
        derived=("null", "null_sd"),
    ),
    Variable(
        "symmetric_share",
        (HEAD,),
        "share of the squared norm of W_QK in its symmetric part",
        "[0, 1]",
        f"{PRODUCT}: (1 + 1/d) / 2.",
        derived=("null", "null_sd"),
    ),
    Variable(
        "skew_share",
        (HEAD,),
        "share of the squared norm of W_QK in its antisymmetric part",
        "[0, 1]",
        f"{PRODUCT}: (1 - 1/d) / 2.",
        derived=("null",),
    ),
    Variable(
        "positive_mass",
        (HEAD,),
        "positive share of the eigenvalues of the symmetric part of W_QK",
        "[0, 1]",
        f"{PRODUCT}: 1/2.",
        derived=("null", "null_sd"),
        card="Positive share of the symmetric part of W_QK",
    ),
)
LAYERS = (
    Variable(
        "trace",
        (LAYER,),
        "trace of W_QK, summed over the heads of the layer",
        "any number",
        "W_Q and W_K of every head keep their singular values and get random singular vectors; 0.",
        derived=("null", "null_sd", "z", "p"),
    ),
    Variable("heads_defined", (LAYER,), "heads that the sum runs over", "0 to n_heads"),
)

SCHEMA = Schema(
    version=2,
    nodes={
        **{kind: tuple(_kind_variables(kind)) for kind in KINDS},
        "alignment": ALIGNMENT,
        "layer": LAYERS,
    },
    tables=(
        Table("matrices", "Spectrum of every matrix", like=("energy",), nodes="W_*", key="matrix", also=tuple(SHAPE)),
        Table("heads", "Trace and symmetric part of W_QK by head", like=("trace", "nuclear_norm"), nodes="alignment"),
        Table("layers", "Trace of W_QK by layer", like=("heads_defined", "trace"), nodes="layer"),
    ),
    metrics=("ks", "spikes", "effective_rank", "stable_rank", "energy_ratio", "entropy", "log_condition"),
    two_sided=True,
)
