"""The variables of a wiring result: one node per kind of edge, and one of all parts."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

PEERS, ROTATION, TWO_WAY, REVERSE = NULLS = ("peers", "rotation", "two-way", "reverse")
"""The first two can be asked for; the others are affinity's, for pairs of heads."""
CENTERINGS = ("stored", "centered")
SIGNIFICANT = 0.05
RELATION = "* to *"
SHARE = Variable(
    "share",
    ("src", "dst"),
    "share of energy",
    range="[0, 1]",
    null="peers: the heads (or neurons) of the same layer with the same partner, geometric mean; the standard "
    "deviation is that of the logarithm. two-way and reverse: of pairs of heads, as in affinity. rotation: a random "
    "rotation that keeps both spectra; mean p/d_model for a subspace of p dimensions, 1/d_model for two matrices.",
    formula="s = frac{tr(U^⊤ C U)}{tr C}",
    text="U is an orthonormal basis of what the head reads (Q, K, V) or writes (O), C the Gram matrix, on the side of "
    "the stream, of the matrix at the other end: the rows of the token or position table, of W_U, or an MLP's input "
    "(gate and up together) or output weights. Between two heads C is the projector on what the destination reads, so "
    "that the share is the projection kernel over its rank. Between two matrices it is tr(A C) / (tr A tr C). Under a "
    "random rotation its mean is p/d and its variance follows from the spectrum of C; tails use four exact moments. "
    "The peers null compares the logarithm with the mean of the layer's heads, over 1.4826 times the median absolute "
    "residual. q-values are those of Benjamini and Hochberg (1995) within a kind of edge. An edge stands out if "
    "q < 0.05 and is strong if its mirror FDR is at most 0.1 too, under peers, two-way or reverse; rotation alone "
    "makes no tier, because trained weights are anisotropic.",
    derived=("null", "null_sd", "z", "p", "q"),
)
EDGES = (
    SHARE,
    Variable(
        "tier",
        ("src", "dst"),
        "how far the edge is above the null; empty where only rotation is known",
        range="strong, stands out, background or empty",
    ),
    Variable(
        "mirror_fdr",
        ("src", "dst"),
        "bound on false discoveries among edges at least as far above the null",
        range="(0, 1]",
        null="any law symmetric about the fit",
        optional=True,
    ),
    Variable("n_edges", (), "edges that exist", range="at least 0"),
    Variable("n_significant", ("null",), "edges with q < 0.05", range="at least 0"),
    Variable("n_strong", (), "strong edges", range="at least 0"),
    Variable("null_reason", (), "why the first null is not the one asked for; empty where it is", range="text"),
)
PARTS = (
    Variable(
        "kind",
        ("part",),
        "what it is",
        range="W_E, W_pos, Q, K, V, O, MLP in, MLP out, logits or neuron; of another stack with its name before it",
    ),
    Variable("label", ("part",), "head, MLP, table or logits that it belongs to", range="text"),
    Variable("part_layer", ("part",), "its layer; NaN for tables and logits", range="at least 0"),
    Variable(
        "dimension",
        ("part",),
        "dimension of a head's subspace; of a matrix 1 / sum of squared energy shares (participation ratio)",
        range="[0, d_model]",
        null="",
    ),
)
SCHEMA = Schema(
    version=1,
    nodes={"parts": PARTS, RELATION: EDGES},
    tables=(
        Table("edges", "Edges of the wiring", like=("share",), nodes=RELATION, key="relation"),
        Table("parts", "Parts of the model", like=("kind",), nodes="parts"),
    ),
    metrics=("share",),
)
