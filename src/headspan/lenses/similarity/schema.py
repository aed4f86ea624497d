"""The variables of a similarity result, and the choices that its function knows."""

from __future__ import annotations

from headspan.dims import HEAD, LAYER
from headspan.schema import Schema, Table, Variable, variables

SPACES = ("sum", "intersection", "qk")
"""What stands for a head when heads are compared."""
DISTANCES = ("grassmann", "chordal", "projection", "fubini-study", "binet-cauchy", "spectral", "procrustes")
"""Distances between subspaces (`headspan.subspaces.distances`)."""
DISTANCE_NAMES = {
    name: "-".join(part.capitalize() for part in name.split("-"))
    if name not in ("chordal", "projection", "spectral")
    else name
    for name in DISTANCES
}
"""As they are written within a sentence: those of people with capitals."""
COMBINATIONS = ("RQ_RK", "NQ_NK", "RQ_NK", "NQ_RK")
"""Families of principal angles: read spaces R and null spaces N of query and key."""
FOUR_SPACES = ("R_Q", "R_K", "N_Q", "N_K")

HAAR = "Independent uniformly random subspaces of the same dimensions"
ANGLES = "[0, π/2] radians, ascending; NaN beyond the smaller dimension"
CHANGE = "random_change: vectors of the same length in random directions."
BJORCK = "Björck and Golub (1973), Numerical methods for computing angles between linear subspaces"
YE = "Ye and Lim (2016), Schubert varieties and distances between subspaces of different dimension"

NULL, SCALE = ("null",), "any number; no scale"
KEYS = f"{HAAR}, which share the key space where two heads read one kv head."
NOISE = "Independent normal distances with the null's moments, clustered the same way."

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
        derived=NULL,
        card="Principal angles of query and key space",
    ),
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
    *variables(
        (
            ("angles_NQ_NK", (HEAD, "null_angle"), "principal angles of query and key null space", ANGLES,
             f"{HAAR}: d - p - q angles are 0, the others are those of the read spaces.", ()),
            ("angles_RQ_NK", (HEAD, "angle"), "principal angles of query read space and key null space", ANGLES,
             f"{HAAR}: small, since read spaces are nearly orthogonal.", ()),
            ("angles_NQ_RK", (HEAD, "angle"), "principal angles of query null space and key read space", ANGLES,
             f"{HAAR}: small, since read spaces are nearly orthogonal.", ()),
            ("smallest_angle", (HEAD,), "smallest angle of query and key read space", "[0, 90] degrees", "", ()),
            ("largest_angle", (HEAD,), "largest angle of query and key read space", "[0, 90] degrees", "", ()),
            ("projection_kernel_others", (HEAD,), "mean projection kernel of the query with the layer's other keys",
             "[0, min(p, q)]", f"{HAAR}: pq/d.", ()),
            ("own_key_place", (HEAD,), "place of the own key among all keys of the layer, 1 is nearest",
             "1 to n_kv_heads", "Each key of a layer is equally likely to be nearest: (n_kv_heads + 1) / 2.", NULL),
            ("shared_null_dimension", (HEAD,), "dimension of the intersection of query and key null space",
             "[0, d_model]", f"{HAAR}: max(0, d - p - q).", NULL),
            ("rank_Q", (HEAD,), "dimension of the query read space", "[0, d_head]", "d_head.", ()),
            ("rank_K", (HEAD,), "dimension of the key read space", "[0, d_head]", "d_head.", ()),
            ("degenerate", (HEAD,), "no query or no key space", "true or false", "False.", ()),
            ("deficient", (HEAD,), "W_Q or W_K below full rank", "true or false", "False.", ()),
            ("null_change", (HEAD,), "relative change of random logits by null vectors", "≥ 0", CHANGE, ()),
            ("read_change", (HEAD,), "relative change of random logits by read vectors", "≥ 0", CHANGE, ()),
            ("random_change", (HEAD,), "relative change of random logits by random vectors", "≥ 0", "", ()),
            ("angle_count", ("combination", "bin"), "angles per head in a bin of 2 degrees", "≥ 0",
             f"{HAAR}: seeded draws.", NULL),
            ("forced_zeros", ("combination",), "angles per head that the dimensions force to be 0", "≥ 0", "", ()),
        )
    ),
)  # fmt: skip

HEAD_PAIRS = variables(
    (
        ("dimension", (HEAD,), "dimension of the attention space", "[0, 2 d_head]", "", ()),
        ("layer_distance", (HEAD, "peer"), "distance of the attention spaces of two heads of one layer", "≥ 0", KEYS,
         ("null", "z")),
        ("typical_distance", (), "median over pairs of the distance expected under the null", "≥ 0", "", ()),
        ("diversity", (LAYER,), "mean distance of the attention spaces of a layer's heads", "≥ 0",
         f"{HAAR}; distances of different pairs are uncorrelated.", ("null", "null_sd", "z")),
        ("layer_cluster", (HEAD,), "cluster within the layer", "1, 2, ...", "", ()),
        ("layer_place", (HEAD,), "place in the order of the layer's tree", "0, 1, ...", "", ()),
        ("layer_silhouette", (LAYER,), "mean silhouette of the layer's clusters", "[-1, 1]", NOISE, NULL),
        ("closest_src", ("pair",), "first head of a close pair", "head", "", ()),
        ("closest_dst", ("pair",), "second head of a close pair", "head", "", ()),
        ("closest_distance", ("pair",), "distance of the attention spaces of a close pair", "≥ 0", KEYS, ("null", "z")),
    )
)  # fmt: skip

CHOSEN = variables(
    (
        ("chosen_angle_count", ("combination", "bin"), "angles of the chosen head in a bin of 2 degrees", "≥ 0",
         f"{HAAR}: seeded draws.", NULL),
        ("chosen_forced_zeros", ("combination",), "angles of the chosen head that the dimensions force to be 0", "≥ 0",
         "", ()),
    ),
    optional=True,
)  # fmt: skip

ACROSS_LAYERS = variables(
    (
        ("distance", ("src", "dst"), "distance of the attention spaces of two heads", "≥ 0", KEYS, ("null", "z")),
        ("cluster", (HEAD,), "cluster among all heads", "1, 2, ...", "", ()),
        ("place", (HEAD,), "place in the order of the tree of all heads", "0, 1, ...", "", ()),
        ("linkage", ("merge", "linkage_part"), "average-linkage tree: two groups, their distance, the new size", "≥ 0",
         "", ()),
        ("silhouette", (), "mean silhouette of the clusters of all heads", "[-1, 1]", NOISE, NULL),
        ("mds", (HEAD, "axis"), "classical scaling of the distances", "any number", "", ()),
        ("mds_share", ("axis",), "share of the spread that an axis holds", "[0, 1]",
         "Heads equally far apart: 1 / (n - 1).", NULL),
        ("tsne", (HEAD, "axis"), "t-SNE of the distances", SCALE, "", ()),
        ("sample_tsne", ("subspace", "sample", "axis"), "t-SNE of directions sampled from the four spaces of one head",
         SCALE, f"{HAAR}: the same map.", NULL),
    ),
    optional=True,
)  # fmt: skip

_NULLS = (
    *("grassmann", "projection_kernel", "own_key_place", "shared_null_dimension", "angle_count", "layer_distance"),
    *("diversity", "layer_silhouette", "distance", "silhouette", "mds_share", "sample_tsne"),
)

SCHEMA = Schema(
    version=2,
    nodes={"": (*QUERY_KEY, *HEAD_PAIRS, *CHOSEN, *ACROSS_LAYERS)},
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
