"""The variables of a positions result, and the vocabulary of its axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headspan.dims import LAYER, ROLES, head_axis
from headspan.schema import Schema, Table, Variable, variables

if TYPE_CHECKING:
    import xarray as xr

TABLE, CENTERING, DIRECTION = "table", "centering", "direction"
CENTERINGS = ("stored", "centered")
CHOICES = ("given", "energy_90")
"""How k is chosen: as asked, and as the number of directions that hold 90 % of the position table's energy."""
SIDES = ("top", "bottom")
TERMS = ("token-token", "token-position", "position-token", "position-position", "constant")
"""Parts of a logit of layer 0: query first, key second."""
TABLE_NAMES = {"P": "positions", "E": "tokens"}


def table_width(data: xr.Dataset) -> int:
    """Dimension in which the two tables are compared: d_model, or less where one matrix widens both."""
    return int(data.attrs.get("table_width", data.attrs["d_model"]))


TURNED = "The table's directions turned by a uniformly random rotation of the stream"
NORMAL = "A table of independent normal entries of the same shape and energy"
ROWS = "Independent normal rows"
RANDOM = "A uniformly random direction, from seeded draws"
NOISE = "White noise searched over the same frequencies."
TESTED = ("null", "z", "log_p", "p")
SOURCE = "Insights into GPT-2's positional encodings (2024), a web post"


GRID, NULL = (TABLE, CENTERING), ("null",)
WIDTH, SHARE = "[0, d_model]", "[0, 1]"
TABLES_ALONE = variables(
    (
        ("participation_ratio", GRID, "participation ratio", "[1, d_model]", f"{NORMAL}: nd / (n + d + 1).", NULL),
        ("stable_rank", GRID, "stable rank", "[1, d_model]", f"{NORMAL}: nd / (√n + √d)².", NULL),
        ("rank_90", GRID, "directions that hold 90 % of the energy", WIDTH, f"{NORMAL}: Marchenko-Pastur law.", NULL),
        ("rank_99", GRID, "directions that hold 99 % of the energy", WIDTH, f"{NORMAL}: Marchenko-Pastur law.", NULL),
        ("rank", GRID, "rank", WIDTH, f"{NORMAL}: min(n, d).", NULL),
        ("singular_value", (*GRID, DIRECTION), "singular value", "≥ 0", f"{NORMAL}: Marchenko-Pastur law.", NULL),
        ("rows", (TABLE,), "rows of the table", "≥ 1", "", ()),
        ("mean_share", (TABLE,), "share of the mean row in the energy", SHARE, f"{NORMAL}: 1/n.", NULL),
        ("row_norm", GRID, "mean norm of the rows", "≥ 0", "", ()),
        ("zero_rows", GRID, "rows that are zero", "≥ 0", "", ()),
        ("row_norm_variation", GRID, "variation of the rows' norms", "≥ 0", f"{ROWS}: 1/√(2d).", NULL),
        ("cosine_mean", GRID, "mean cosine of two rows", "[-1, 1]", f"{ROWS}: 0 (isotropic).", ("null", "z")),
        ("cosine_sd", GRID, "standard deviation of the cosines of two rows", SHARE, f"{ROWS}: 1/√d.", NULL),
        ("cosine_density", (*GRID, "cosine"), "density of the cosines of two rows", "≥ 0", f"{ROWS}: exact law.", NULL),
    )
)

TOP, COORDINATE, SHOWN = (CENTERING, "top_direction"), (CENTERING, "coordinate"), (CENTERING, "shown_direction")
SPACE = "A random space of the same dimension"
POSITION_DIRECTIONS = variables(
    (
        *(
            (f"sparsity_{name}", TOP, long_name, span, f"{RANDOM}.", ("null", "z", "p"))
            for name, long_name, span in (
                ("participation", "coordinates that share a position direction's mass", "[1, d_model]"),
                ("coordinates_90", "coordinates that hold 90 % of a position direction", "[1, d_model]"),
                ("gini", "Gini coefficient of a position direction's masses", SHARE),
            )
        ),
        ("coordinate_leverage", COORDINATE, "leverage of a coordinate in the top position directions", SHARE,
         f"{SPACE}: k/d.", NULL),
        ("coordinate_chosen", COORDINATE, "among the fewest coordinates that hold 90 % of the leverage",
         "true or false", "", ()),
        ("coordinate_count", (CENTERING,), "how many coordinates hold 90 % of the leverage", WIDTH,
         f"{SPACE}, from seeded draws.", NULL),
        ("coordinate_energy", (CENTERING,), "share of the token table's energy on these coordinates", SHARE,
         "A random set of as many coordinates: its share of all.", ("null", "z", "p")),
        ("gain", (LAYER, "coordinate"), "gain of the norm before the attention", "any number", "", ()),
        ("gain_carrying", (LAYER,), "median size of the gains on the coordinates that carry positions", "≥ 0", "", ()),
        ("gain_other", (LAYER,), "median size of the gains on all other coordinates", "≥ 0", "", ()),
        ("gain_auc", (LAYER,), "how often the gain of a coordinate that carries positions is the larger one", SHARE,
         "A random set of as many coordinates: 1/2, two-sided Mann-Whitney test.", ("null", "p", "q")),
        ("direction_entry", (*SHOWN, "coordinate"), "entry of a position direction", "[-1, 1]", "", ()),
        ("sorted_mass_null", ("coordinate",), "mass of a random direction's largest coordinates", SHARE, "", ()),
        ("curve", (*SHOWN, "position"), "position direction over positions", "[-1, 1]", "", ()),
        ("wave_frequency", TOP, "cycles per context of the best sinusoid", "[1/2, n/2]", "", ()),
        ("wave_dominant_frequency", TOP, "cycles per context with the largest Fourier power", "[1, n/2]", "", ()),
        ("wave_r2", TOP, "share of a position direction that one sinusoid explains", SHARE, NOISE, ("null", "p")),
        ("wave_concentration", TOP, "share of the Fourier power around its peak", SHARE, NOISE, ("null", "p")),
        ("offset_share", (CENTERING,), "share of the products of positions that depends on their offset alone", SHARE,
         "Independent rows: 2/n.", NULL),
    ),
    optional=True,
)  # fmt: skip

CHOICE = (CENTERING, "k_choice")
BOTH_TABLES = variables(
    (
        ("capture_k", CHOICE, "leading position directions", WIDTH, "", ()),
        ("capture", (*CHOICE, DIRECTION), "share of a token direction in the top position directions", SHARE,
         f"{TURNED}: k/d on average, Beta(k/2, (d - k)/2).", ("null", "log_p", "p")),
        ("decile_size", (*CHOICE, "decile"), "token directions of the decile", "≥ 0", "", ()),
        ("decile_mass", (*CHOICE, "decile"), "mass of the top position directions on a tenth of the token directions",
         "[0, k]", f"{TURNED}: k times the share of the decile.", TESTED),
        ("table_overlap", (CENTERING, "token_block", "table_block"),
         "average squared overlap of token and position directions", SHARE, f"{TURNED}: 1/d.", ("z",)),
        ("table_corner", (CENTERING, "token_side", "table_side"),
         "mass of the first or last tenth of token and position directions", "≥ 0", f"{TURNED}: pq/d.", TESTED),
        ("table_overlap_full", (CENTERING, "token_direction", "table_direction"),
         "squared overlap of a token and a position direction", SHARE, f"{TURNED}: 1/d.", ()),
        ("angles", (CENTERING, "angle"), "principal angles of the top directions of both tables",
         "[0, π/2] radians, ascending", f"{TURNED}: seeded draws.", ("null", "z")),
        ("top_kernel", (CENTERING,), "projection kernel of the top directions of both tables", "[0, k]",
         f"{TURNED}: pq/d.", ("null", "log_p", "p")),
        ("mean_cosine", (), "cosine of the mean rows of both tables", "[-1, 1]",
         "Random directions: 0, with standard deviation 1/√d.", ("null_sd", "log_p", "p")),
        ("mean_capture", (), "share of the tokens' mean row in the top position directions", SHARE, f"{TURNED}: k/d.",
         ("null", "log_p", "p")),
        ("logit_share", ("head", "term"), "share of a part in the variance of layer 0's logits within a query",
         "shares of a head add up to 1; NaN beyond layer 0",
         "A head of independent normal weights that reads the same tokens and positions.", ("null", "null_sd", "z")),
        ("logit_share_se", ("head", "term"), "standard error of the share over samples of tokens and positions",
         "≥ 0; NaN beyond layer 0 and for fewer than 32 samples", "", ()),
        ("logit_sd", ("head",), "standard deviation of layer 0's logits within a query", "≥ 0", "", ()),
    ),
    optional=True,
)  # fmt: skip

CELL = (LAYER, "matrix", TABLE)
LAYERS = (
    Variable(
        "alignment",
        CELL,
        "share of a matrix in the top directions of a table",
        range=SHARE,
        null=f"{TURNED}: k/d.",
        formula="a = frac{‖ W^⊤ V_k ‖_F^2}{‖ W ‖_F^2}",
        text="The share of a matrix's energy in the k leading directions of the position or token table.",
        derived=TESTED,
    ),
    Variable(
        "energy_alignment",
        CELL,
        "overlap of a matrix and a table, weighted by both spectra",
        range=SHARE,
        null=f"{TURNED}: 1/d.",
        formula="e = ∑_{i j} w_i b_j ( u_i ⋅ v_j )^2",
        text="Squared overlaps of singular directions, each weighted by its share of the energy of matrix and table.",
        reference=SOURCE,
        derived=TESTED,
    ),
    *variables(
        (
            ("matrix_rank", (LAYER, "matrix"), "rank of a matrix", WIDTH, "Full rank.", ()),
            ("overlap", (*CELL, "block", "table_block"),
             "average squared overlap of a matrix's and a table's directions", SHARE, f"{TURNED}: 1/d.", ("null", "z")),
            ("corner", (*CELL, "side", "table_side"),
             "mass of the first or last tenth of a matrix's and a table's directions", "≥ 0", f"{TURNED}: pq/d.",
             TESTED),
            *((f"head_alignment_{role}", (head_axis(role), TABLE),
               f"share of a head's W_{role} in the top directions of a table", SHARE, f"{TURNED}: k/d.", TESTED)
              for role in ROLES),
            *((f"head_overlap_{role}", (head_axis(role), TABLE, "head_block", "table_block"),
               f"average squared overlap of a head's W_{role} and a table's directions", SHARE, f"{TURNED}: 1/d.", ())
              for role in ROLES),
        )
    ),
    *variables(
        (("overlap_full", (*CELL, "matrix_direction", "table_direction"),
          "squared overlap of a matrix's and a table's direction", SHARE, f"{TURNED}: 1/d.", ()),),
        optional=True,
    ),
)  # fmt: skip

VARIABLES = (*TABLES_ALONE, *POSITION_DIRECTIONS, *BOTH_TABLES, *LAYERS)
_OLD = {"null": "chance", "p": "p_value"}

SCHEMA = Schema(
    version=2,
    nodes={"": VARIABLES},
    tables=(
        Table("matrices", "Every matrix against the tables", like=("alignment", "energy_alignment")),
        Table("heads", "Queries and outputs of every head", like=("head_alignment_Q", "head_alignment_O")),
        Table("kv_heads", "Keys and values of every kv head", like=("head_alignment_K", "head_alignment_V")),
        Table(
            "tables",
            "The two tables",
            like=("participation_ratio", "rank"),
            also=("rows", "mean_share", "mean_share_null"),
        ),
        Table("deciles", "Capture by tenths of the token directions", like=("decile_mass",), also=("capture_k",)),
        Table("corners", "First and last directions of both tables", like=("table_corner",)),
        Table("angles", "Principal angles of both tables", like=("angles",)),
        Table("position_directions", "Position directions", like=("sparsity_gini",)),
        Table("gains", "Gains on the coordinates that carry positions", like=("gain_auc",)),
        Table("logits", "Logits of layer 0", like=("logit_share",), also=("logit_sd",)),
        Table("spectra", "Spectra of the tables", like=("singular_value",)),
        Table("cosines", "Angles between rows", like=("cosine_density",)),
    ),
    metrics=("energy_alignment", "alignment"),
    two_sided=True,
    renamed={
        **{
            f"{one.name}_{_OLD[suffix]}": f"{one.name}_{suffix}"
            for one in VARIABLES
            for suffix in one.derived
            if suffix in _OLD
        },
        "centring": CENTERING,
        "sorted_mass_chance": "sorted_mass_null",
        "mean_cosine_sd_chance": "mean_cosine_null_sd",
        "logit_share_sd": "logit_share_null_sd",
    },
)
