"""Sphinx settings. `make docs` builds with warnings as errors."""

import sys
from importlib.util import find_spec
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
    "mathml",
    "command_options",
    "family_table",
    "lens_reference",
    "notebook_pages",
    "package_reference",
]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "headspan"
exclude_patterns = ["_build"]
html_static_path = ["static"]
html_css_files = ["pages.css"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# What only some functions import, and the extra `docs` does not install.
autodoc_mock_imports = [name for name in ("dask", "distributed", "zarr", "transformers") if find_spec(name) is None]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
toc_object_entries = False  # the sidebar lists pages; with every function in it a build takes a third longer
napoleon_google_docstring = False
napoleon_attr_annotations = False  # shapes are in the signature; an asterisk in one would be read as emphasis
nitpicky = False
suppress_warnings = ["ref.python"]  # short names in annotations that several classes share
