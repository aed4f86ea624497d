"""The packages that a sweep needs beyond headspan's own, refused in one line where they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from headspan.errors import HeadspanError

TO_RUN = ("dask", "distributed", "zarr")
TO_READ = ("zarr",)


def require(packages: tuple[str, ...]) -> None:
    """Refuse to go on without these packages."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise HeadspanError(f"a sweep needs {' and '.join(missing)}: pip install 'headspan[sweep]'")
