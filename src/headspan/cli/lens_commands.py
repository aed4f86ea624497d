"""One command per lens, made from its function, its `command.py` and the shared options.

1. The signature: positional arguments, the lens's own options, shared ones, how the model is opened, where the result
   goes. Defaults are those of the lens's function and of its `show`.
2. The command refuses an output that could not be written, runs the lens, then writes figures and file and prints.

A lens without `command.py` has a command too: its strongest rows, or its first table, and its findings.

Where a command takes its prompt from: text, a file, token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli import options as shared
from headspan.command import COMPARE, LOOK, RUN, Answer, Command, Option, Rows
from headspan.errors import ArgumentError
from headspan.input_files import file_text
from headspan.result import ENDINGS, Lens

if TYPE_CHECKING:
    from headspan.result import Result


SHOWN = 20
DELIVERY = {
    "figures": (shared.Figures, None),
    "figure_format": (shared.FigureFormat, "svg"),
    "dark": (shared.Dark, False),
    "force": (shared.Force, False),
    "as_json": (shared.AsJSON, False),
}


def declared_command(lens: Lens) -> Command:
    """What the lens says of its command, or a plain one."""
    part = lens.part("command")
    if part is not None:
        found: Command = part.COMMAND
        return found
    return Command(
        f"{lens.summary[0].upper()}{lens.summary[1:]}.", RUN if lens.runs else LOOK if lens.subjects == 1 else COMPARE
    )


def lens_command(lens: Lens, name: str = "") -> Callable[..., None]:
    """The function that typer makes a command of; under the name of a view, positional arguments are required."""
    declared, part = declared_command(lens), lens.part("command")
    show = getattr(part, "show", default_show)
    own = _own_parameters(lens)
    view = _keywords(show)
    known = {**own, **view, **shared.OPENING}
    extra = {name: _empty(option) for name, option in declared.options.items() if name not in known}
    endings = (*ENDINGS, *getattr(part, "ENDINGS", {}))

    def command(**given: Any) -> None:
        _perform(lens, show, {name: given[name] for name in view}, given)

    parameters = [*_arguments(lens, declared, name in declared.views)]
    options = {**view, **own, **extra}
    parameters += [_option(name, declared, one) for name, one in options.items() if name not in declared.arguments]
    defaults = shared.OPENING_DEFAULTS | ({} if lens.fold == "none" else {"fold": None})
    parameters += [_shared(name, option, declared, defaults) for name, option in _opening(lens, own).items()]
    parameters.append(_parameter("output", shared.output(endings), None))
    parameters += [_parameter(name, *kind) for name, kind in DELIVERY.items()]
    command.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__, command.__doc__ = name or lens.name, declared.help
    return command


def default_show(result: Result, *, top: int = SHOWN) -> Iterator[Rows | str]:
    """The strongest rows, or the first table, and what the result says."""
    if result.tables:
        rows = result.top(top) if result.lens.schema.metrics else result.table().head(top)
        yield Rows.of_records(result.title, rows.to_dict("records"))
    yield from (finding.statement for finding in result.findings)


def _perform(lens: Lens, show: Callable[..., Any], view: Mapping[str, Any], given: dict[str, Any]) -> None:
    from headspan.cli.delivery import Delivery, print_all, print_json
    from headspan.heads.memory import working_memory

    to = Delivery.of(
        lens, given["output"], given["figures"], given["figure_format"], given["dark"], given["as_json"], given["force"]
    )
    own = _own_parameters(lens)
    opening = {name: given[name] for name in shared.OPENING if name not in own and given.get(name) is not None}
    subjects = [given[name] for name in _subject_names(lens)]
    options = {name: given[name] for name in own if name in given}
    prompts = {name: given[name] for name in shared.PROMPT if name in given}
    if prompts:
        options["prompt"] = chosen_prompt(**prompts)
    if "memory" in options:
        options["memory"] = working_memory(options["memory"])
    prepare = getattr(lens.part("command"), "prepare", None)
    if prepare is not None:
        options = prepare(options, given)
    if isinstance(options, Answer):
        print_json(options.document) if to.as_json else print_all(options.printed)
        return
    result = lens.function(*subjects, **options, **opening)
    to.deliver(result, show, view)


def _empty(option: Option) -> Any:
    """The default of an option that only the lens's `prepare` reads."""
    return False if option.type is bool else None


def _subject_names(lens: Lens) -> tuple[str, ...]:
    return ("model",) if lens.subjects == 1 else ("before", "after")


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameters of a function with their defaults, but for the first and for **opening."""
    listed = list(signature(function).parameters.values())[1:]
    return {one.name: one.default for one in listed if one.kind is not Parameter.VAR_KEYWORD}


def _own_parameters(lens: Lens) -> dict[str, Any]:
    """Parameters of the lens's function that the command line can give, but for its subjects."""
    left_out = {*_subject_names(lens), *declared_command(lens).python_only}
    return {name: default for name, default in _keywords(lens.function).items() if name not in left_out}


def _arguments(lens: Lens, declared: Command, required: bool) -> Iterator[Parameter]:
    for name in _subject_names(lens):
        help_text = shared.MODEL_HELP if lens.subjects == 1 else f"The checkpoint {name}: {shared.MODEL_HELP}"
        yield _parameter(name, Annotated[str, typer.Argument(metavar=name.upper(), help=help_text)], Parameter.empty)
    defaults = _keywords(lens.function)
    for name, option in declared.arguments.items():
        default = Parameter.empty if required else defaults[name]
        kind = str if default is Parameter.empty else str | None
        yield _parameter(name, Annotated[kind, typer.Argument(metavar=option.metavar, help=option.help)], default)


def _option(name: str, declared: Command, default: Any) -> Parameter:
    if name == "prompt":
        return _shared("prompt", shared.PROMPT["prompt"], declared)
    option = declared.options.get(name) or shared.SHARED[name]
    if isinstance(default, tuple | list):
        default = ",".join(map(str, default))
    return _parameter(name, shared.annotated(name, option, default), default)


def _opening(lens: Lens, own: Mapping[str, Any]) -> dict[str, Option]:
    """Options of opening, and of a prompt for a lens that takes one."""
    prompts = {name: one for name, one in shared.PROMPT.items() if "prompt" in own and name != "prompt"}
    return {**prompts, **{name: one for name, one in shared.OPENING.items() if name not in own}}


def _shared(
    name: str, option: Option, declared: Command, defaults: Mapping[str, Any] = shared.OPENING_DEFAULTS
) -> Parameter:
    """An option of opening; what a lens says of it itself goes before, and then the lens decides on the default."""
    own = declared.options.get(name)
    option, default = (option, defaults.get(name)) if own is None else (own, None)
    return _parameter(name, shared.annotated(name, option, default), default)


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def chosen_prompt(
    prompt: str | list[str] | None, prompt_file: Path | None, tokens: str | None
) -> str | list[str] | list[int] | None:
    """The prompt of the one source that was given, as text, texts of a batch or token ids; None where none was."""
    given = [source for source in (prompt or None, prompt_file, tokens) if source is not None]
    if len(given) > 1:
        raise ArgumentError("--prompt, --prompt-file and --tokens are three ways to say the same; give one of them")
    if tokens is not None:
        from headspan.runtime import token_ids

        return list(token_ids(tokens))
    return prompt or None if prompt_file is None else file_text(prompt_file)
