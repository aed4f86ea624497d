"""Sphinx settings. `make docs` builds with warnings as errors."""

import sys
from pathlib import Path

from headspan import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "headspan"
copyright = "2026, the headspan developers"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "family_table",
]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "headspan"
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
nitpicky = False
