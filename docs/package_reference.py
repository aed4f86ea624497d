"""The reference of a package, made from the code: every public name, so that none can be forgotten.

`{package-reference} headspan.subspaces` documents a package's `__all__`. With `:modules:` it also documents every
module below the package that is not private: what `__all__` names there, else the public classes and functions it
defines. A thing that a package above offers too stands there alone, one that `headspan` itself offers on the page of
`headspan`; functions of lenses stand in the reference of lenses (`lens_reference`).

Docstrings are written to be read in an editor: `code` between single backquotes, |x| for a norm, x_i for an index. Here
they become reStructuredText that says the same: code as literals, other signs escaped.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import headspan
from headspan.lenses.catalog import lenses

CODE = re.compile(r"(``[^`]+``|`[^`]+`|:[a-z:]+:`[^`]+`)")
HIDDEN_COLON = "\ue000"
"""Napoleon takes what stands before a colon in a property's docstring for a type; it does not see this one."""
SIGNS = re.compile(r"(?<!\\)([|*]|(?<=\w)_(?=\W|$))")


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its `__all__`, else the classes and functions it defines, in order of the source."""
    if module is headspan:
        return list(headspan.VERBS)
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    own = [
        (inspect.getsourcelines(inspect.unwrap(found))[1], name)
        for name, found in vars(module).items()
        if not name.startswith("_") and _has_docstring(found) and found.__module__ == module.__name__
    ]
    return [name for _, name in sorted(own)]


def _has_docstring(found: Any) -> bool:
    """Classes and functions, cached ones too; not plain values, whose docstring is that of their type."""
    return inspect.isclass(found) or inspect.isfunction(inspect.unwrap(found) if callable(found) else found)


def modules_below(package: ModuleType) -> list[ModuleType]:
    """Every module of a package and of those inside it, but for private ones and entry points."""
    if not hasattr(package, "__path__"):
        return []
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [entry.name for entry in found if not any(part.startswith("_") for part in entry.name.split("."))]
    return [import_module(name) for name in sorted(names)]


def listed(package: str, with_modules: bool) -> list[tuple[ModuleType, list[str]]]:
    """Modules and the names to document under each; a thing that two modules offer stands under the first."""
    top = import_module(package)
    seen = {id(lens.function) for lens in lenses().values()}
    if top is not headspan:
        seen |= {id(getattr(headspan, name)) for name in headspan.VERBS}
    found = []
    for module in [top, *(modules_below(top) if with_modules else [])]:
        names = [name for name in public_names(module) if _unseen(getattr(module, name), seen)]
        if names:
            found.append((module, names))
    return found


def _unseen(found: Any, seen: set[int]) -> bool:
    """True the first time a class or function is met; plain values may repeat."""
    if not _has_docstring(found):
        return not inspect.ismodule(found)
    new = id(found) not in seen
    seen.add(id(found))
    return new


class PackageReference(SphinxDirective):
    """`{package-reference} NAME`: see the module."""

    required_arguments = 1
    option_spec: ClassVar = {"modules": directives.flag, "untitled": directives.flag}

    def run(self) -> list[nodes.Node]:
        sections = []
        for module, names in listed(self.arguments[0], "modules" in self.options):
            section = nodes.section(ids=[nodes.make_id(module.__name__)], names=[module.__name__])
            section += nodes.title("", "", nodes.literal("", module.__name__))
            self.state.nested_parse(_source(module, names), self.content_offset, section)
            sections.append(section)
        return list(sections[0].children[1:]) if "untitled" in self.options else list(sections)


def _source(module: ModuleType, names: list[str]) -> StringList:
    lines = [f".. py:module:: {module.__name__}", "", *_paragraph(module), ""]
    for name in names:
        found = getattr(module, name)
        path = f"{module.__name__}.{name}"
        if inspect.isclass(found):
            lines += [f".. autoclass:: {path}", "   :members:", ""]
        elif _has_docstring(found):
            lines += [f".. autofunction:: {path}", ""]
        else:
            lines += [f".. py:data:: {name}", ""]
            if isinstance(found, (int, float, str, tuple)) and len(repr(found)) < 70:
                lines += [f"   ``{found!r}``", ""]
    # myst parses what a directive nests as Markdown; this is reStructuredText.
    body = [f"   {line}" if line else "" for line in lines]
    return StringList(["```{eval-rst}", *(line[3:] for line in body), "```"], source=module.__name__)


def _paragraph(module: ModuleType) -> list[str]:
    """The first paragraph of a module's docstring: its idea."""
    text = (module.__doc__ or "").strip().split("\n\n")[0]
    return plain_signs(text.splitlines())


def plain_signs(lines: list[str]) -> list[str]:
    """Lines of a docstring with code as literals and with signs that reStructuredText would read escaped.

    Examples, each up to the next empty line, are left as they are.
    """
    plain, in_example = [], False
    for line in lines:
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>> "))
        plain.append(line if in_example else _escaped(line))
    return plain


def _escaped(line: str) -> str:
    if line.strip() and set(line.strip()) <= {"-", "="}:
        return line
    parts = CODE.split(line)
    for place, part in enumerate(parts):
        if place % 2 == 0:
            parts[place] = SIGNS.sub(r"\\\1", part).replace("`", "\\`")
        elif part.startswith("`") and not part.startswith("``"):
            parts[place] = f"`{part}`"
    return "".join(parts)


def with_heading(lines: list[str]) -> list[str]:
    """A heading above an example that has none; napoleon would count it to the section before it."""
    first = next((place for place, line in enumerate(lines) if line.startswith(">>>")), None)
    if first is None or "Examples" in lines[:first]:
        return lines
    return [*lines[:first], "Examples", "--------", *lines[first:]]


def _rewrite(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = plain_signs(with_heading(lines))
    if what in ("property", "attribute"):
        lines[:] = [line.replace(":", HIDDEN_COLON) for line in lines]


def _restore(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = [line.replace(HIDDEN_COLON, ":") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive; docstrings are rewritten before napoleon reads their sections."""
    app.add_directive("package-reference", PackageReference)
    app.connect("autodoc-process-docstring", _rewrite, priority=100)
    app.connect("autodoc-process-docstring", _restore, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
