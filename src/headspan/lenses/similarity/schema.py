"""The variables of a similarity result, and the choices that its function knows."""

from __future__ import annotations

from headspan.dims import HEAD, LAYER
from headspan.schema import Schema, Table, Variable

SPACES = ("sum", "intersection", "qk")
"""What stands for a head when heads are compared."""
DISTANCES = ("grassmann", "chordal", "projection", "fubini-study", "binet-cauchy", "spectral", "procrustes")
COMBINATIONS = ("RQ_RK", "NQ_NK", "RQ_NK", "NQ_RK")
"""Families of principal angles: read spaces R and null spaces N of query and key."""
FOUR_SPACES = ("R_Q", "R_K", "N_Q", "N_K")

HAAR = "Independent uniformly random subspaces of the same dimensions"
ANGLES = "[0, π/2] radians, ascending; NaN beyond the smaller dimension"
BJORCK = "Björck and Golub (1973), Numerical methods for computing angles between linear subspaces"
YE = "Ye and Lim (2016), Schubert varieties and distances between subspaces of different dimension"

QUERY_KEY = (
    Variable(
        "angles_RQ_RK",
        (HEAD, "angle"),
        "principal angles of query and key read space",
        range=ANGLES,
        null=f"{HAAR}: the mean of each angle over seeded draws.",
        formula="cos θ_i = σ_i ( U^⊤ V )",
        text="Between two subspaces, from the singular values of the product of their bases; small angles are computed "
        "from sines.",
        reference=BJORCK,
        derived=("null",),
        card="Principal angles of query and key space",
    ),
    Variable(
        "angles_NQ_NK",
        (HEAD, "null_angle"),
        "principal angles of query and key null space",
        range=ANGLES,
        null=f"{HAAR}: d - p - q angles are 0, the others are those of the read spaces.",
    ),
    *(
        Variable(
            f"angles_{name}",
            (HEAD, "angle"),
            f"principal angles of {first} and {second}",
            range=ANGLES,
            null=f"{HAAR}: small, since read spaces are nearly orthogonal.",
        )
        for name, first, second in (
            ("RQ_NK", "query read space", "key null space"),
            ("NQ_RK", "query null space", "key read space"),
        )
    ),
    Variable("smallest_angle", (HEAD,), "smallest angle of query and key read space", range="[0, 90] degrees"),
    Variable("largest_angle", (HEAD,), "largest angle of query and key read space", range="[0, 90] degrees"),
    Variable(
        "projection_kernel",
        (HEAD,),
        "projection kernel of query and key read space",
        range="[0, min(p, q)]",
        null=f"{HAAR}: mean pq/d, exact variance, two-sided p from a fitted Beta law.",
        formula="K = ∑_i cos^2 θ_i",
        text="The number of dimensions that query and key read space share: 0 if they are orthogonal, the smaller "
        "dimension if one contains the other.",
        derived=("null", "null_sd", "z", "log_p", "p", "q"),
        card="Query and key spaces share",
    ),
    Variable(
        "projection_kernel_others",
        (HEAD,),
        "mean projection kernel of the query with the other keys of its layer",
        range="[0, min(p, q)]",
        null=f"{HAAR}: pq/d.",
    ),
    Variable(
        "own_key_place",
        (HEAD,),
        "place of the own key among all keys of the layer, 1 is nearest",
        range="1 to n_kv_heads",
        null="Every key of a layer is equally likely to be the nearest: (n_kv_heads + 1) / 2.",
        derived=("null",),
    ),
    Variable(
        "grassmann",
        (HEAD,),
        "Grassmann distance of query and key read space",
        range="[0, π/2 √min(p, q)]",
        null=f"{HAAR}: mean and standard deviation over seeded draws.",
        formula="δ = sqrt{∑_i θ_i^2}",
        text="Between 0 and π/2 times the root of the dimension; compared with random spaces of the same dimensions.",
        reference=YE,
        derived=("null", "null_sd", "z"),
    ),
    Variable(
        "shared_null_dimension",
        (HEAD,),
        "dimension of the intersection of query and key null space",
        range="[0, d_model]",
        null=f"{HAAR}: max(0, d - p - q).",
        derived=("null",),
    ),
    Variable("rank_Q", (HEAD,), "dimension of the query read space", range="[0, d_head]", null="d_head."),
    Variable("rank_K", (HEAD,), "dimension of the key read space", range="[0, d_head]", null="d_head."),
    Variable("degenerate", (HEAD,), "no query or no key space", range="true or false", null="False."),
    Variable("deficient", (HEAD,), "W_Q or W_K below full rank", range="true or false", null="False."),
    *(
        Variable(
            f"{part}_change",
            (HEAD,),
            f"relative change of random logits by vectors from {source}",
            range="≥ 0",
            null="random_change: vectors of the same length in random directions.",
        )
        for part, source in (("null", "the null spaces"), ("read", "the read spaces"), ("random", "anywhere"))
    ),
    Variable(
        "angle_count",
        ("combination", "bin"),
        "angles per head in a bin of 2 degrees",
        range="≥ 0",
        null=f"{HAAR}: seeded draws.",
        derived=("null",),
    ),
    Variable("forced_zeros", ("combination",), "angles per head that the dimensions force to be 0", range="≥ 0"),
)

HEAD_PAIRS = (
    Variable("dimension", (HEAD,), "dimension of the attention space", range="[0, 2 d_head]"),
    Variable(
        "layer_distance",
        (HEAD, "peer"),
        "distance of the attention spaces of two heads of one layer",
        range="≥ 0, 0 for equal spaces",
        null=f"{HAAR}, which share the key space where two heads read one kv head.",
        reference=YE,
        derived=("null", "z"),
    ),
    Variable("typical_distance", (), "median over pairs of the distance expected under the null", range="≥ 0"),
    Variable(
        "diversity",
        (LAYER,),
        "mean distance of the attention spaces of a layer's heads",
        range="≥ 0",
        null=f"{HAAR}; distances of different pairs are uncorrelated.",
        derived=("null", "null_sd", "z"),
    ),
    Variable("layer_cluster", (HEAD,), "cluster within the layer", range="1, 2, ..."),
    Variable("layer_place", (HEAD,), "place in the order of the layer's tree", range="0, 1, ..."),
    Variable(
        "layer_silhouette",
        (LAYER,),
        "mean silhouette of the layer's clusters",
        range="[-1, 1]",
        null="Independent normal distances with the null's moments, clustered the same way.",
        derived=("null",),
    ),
    Variable("closest_src", ("pair",), "first head of a close pair", range="head"),
    Variable("closest_dst", ("pair",), "second head of a close pair", range="head"),
    Variable(
        "closest_distance",
        ("pair",),
        "distance of the attention spaces of a close pair",
        range="≥ 0",
        null=f"{HAAR}, which share the key space where two heads read one kv head.",
        derived=("null", "z"),
    ),
)

ACROSS_LAYERS = (
    Variable(
        "distance",
        ("src", "dst"),
        "distance of the attention spaces of two heads",
        range="≥ 0, 0 for equal spaces",
        null=f"{HAAR}, which share the key space where two heads read one kv head.",
        reference=YE,
        derived=("null", "z"),
        optional=True,
    ),
    Variable("cluster", (HEAD,), "cluster among all heads", range="1, 2, ...", optional=True),
    Variable("place", (HEAD,), "place in the order of the tree of all heads", range="0, 1, ...", optional=True),
    Variable(
        "linkage",
        ("merge", "linkage_part"),
        "average-linkage tree: two groups, their distance, the new size",
        range="≥ 0",
        optional=True,
    ),
    Variable(
        "silhouette",
        (),
        "mean silhouette of the clusters of all heads",
        range="[-1, 1]",
        null="Independent normal distances with the null's moments, clustered the same way.",
        derived=("null",),
        optional=True,
    ),
    Variable("mds", (HEAD, "axis"), "classical scaling of the distances", range="any number", optional=True),
    Variable(
        "mds_share",
        ("axis",),
        "share of the spread that an axis holds",
        range="[0, 1]",
        null="Heads equally far apart: 1 / (n - 1).",
        derived=("null",),
        optional=True,
    ),
    Variable("tsne", (HEAD, "axis"), "t-SNE of the distances", range="any number; no scale", optional=True),
    Variable(
        "sample_tsne",
        ("subspace", "sample", "axis"),
        "t-SNE of directions sampled from the four spaces of one head",
        range="any number; no scale",
        null=f"{HAAR}: the same map.",
        derived=("null",),
        optional=True,
    ),
)

_NULLS = (
    *("grassmann", "projection_kernel", "own_key_place", "shared_null_dimension", "angle_count", "layer_distance"),
    *("diversity", "layer_silhouette", "distance", "silhouette", "mds_share", "sample_tsne"),
)

SCHEMA = Schema(
    version=2,
    nodes={"": (*QUERY_KEY, *HEAD_PAIRS, *ACROSS_LAYERS)},
    tables=(
        Table("heads", "Query and key space of every head", like=("projection_kernel", "rank_Q")),
        Table("layers", "Diversity of every layer", like=("diversity",)),
        Table("closest_pairs", "Closest attention spaces", like=("closest_distance",)),
        Table("layer_distances", "Distances within layers", like=("layer_distance",)),
        Table("angle_counts", "Principal angles", like=("angle_count",)),
        Table("maps", "Map of heads", like=("mds", "tsne")),
        Table("directions", "Sampled directions", like=("sample_tsne",)),
    ),
    metrics=("projection_kernel", "grassmann"),
    two_sided=True,
    renamed={
        **{f"{name}_chance": f"{name}_null" for name in _NULLS},
        **{f"{name}_sd": f"{name}_null_sd" for name in ("grassmann", "projection_kernel", "diversity")},
        "angles_chance": "angles_RQ_RK_null",
        "typical_chance": "typical_distance",
        "p_value": "projection_kernel_p",
        "q_value": "projection_kernel_q",
        "log_p_value": "projection_kernel_log_p",
    },
)
