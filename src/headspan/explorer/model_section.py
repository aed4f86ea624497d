"""What a model is, from its headers: one line of facts, and all of them."""

from __future__ import annotations

from collections.abc import Mapping

from headspan.checkpoint import StackSummary, Summary
from headspan.explorer.html import Markup, element, facts, table

BINARY_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_text(n_bytes: int) -> str:
    """A number of bytes as a person reads it."""
    amount, unit = float(n_bytes), 0
    while amount >= 1024 and unit < len(BINARY_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{n_bytes} bytes" if unit == 0 else f"{amount:.1f} {BINARY_UNITS[unit]}"


def model_facts(about: Summary) -> list[tuple[str, str]]:
    """Facts about the checkpoint as a whole, as the command line and the report both show them."""
    rows = [
        ("Model", about.model),
        ("Family", about.family),
        ("Parameters", f"{about.n_parameters:,} in {about.n_tensors:,} tensors"),
        ("Stored as", ", ".join(f"{dtype} ({count})" for dtype, count in about.dtypes.items())),
        _size(about),
    ]
    if about.revision:
        rows.insert(1, ("Revision", about.revision))
    if about.packing:
        rows.append(("Quantization", about.packing))
    return rows


def _size(about: Summary) -> tuple[str, str]:
    if about.bytes_on_disk is None:
        return "Size on disk", "in memory"
    size = size_text(about.bytes_on_disk)
    if about.bytes_transferred is None:
        return "Size on disk", size
    return "Size on the Hub", f"{size}, of which {size_text(about.bytes_transferred)} read now"


def stack_facts(stack: StackSummary) -> list[tuple[str, str]]:
    """Facts about one stack."""
    grouped = stack.n_kv_heads < stack.n_heads
    widths = f"{stack.d_head}" if stack.d_head == stack.d_value else f"{stack.d_head} (values {stack.d_value})"
    rows = [
        ("Stack", f"{stack.name}, {'causal' if stack.causal else 'bidirectional'}"),
        ("Layers", str(stack.n_layers)),
        ("Heads per layer", f"{stack.n_heads} sharing {stack.n_kv_heads} kv heads" if grouped else str(stack.n_heads)),
        ("d_model", str(stack.d_model)),
        ("d_head", widths),
        ("Positions", stack.positions),
        ("Norm", f"{stack.norm}, {stack.norm_place} the attention"),
        *_storage(stack),
        *(("Note", note) for note in stack.notes),
        ("Missing", ", ".join(stack.missing) or "nothing"),
    ]
    if stack.unclaimed:
        rows.append(("Not understood", f"{len(stack.unclaimed)} attention tensors, such as {stack.unclaimed[0]}"))
    return rows


def _storage(stack: StackSummary) -> list[tuple[str, str]]:
    """How each kind of tensor is stored, where they differ in that."""
    if len(set(map(tuple, stack.stored_as.values()))) < 2:
        return []
    return [(f"{kind} stored as", ", ".join(ways)) for kind, ways in stack.stored_as.items()]


def analyses_rows(reasons: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """Each analysis with whether it applies, and why not."""
    return [(name, "applies" if reason is None else f"skipped: {reason}") for name, reason in reasons.items()]


def facts_line(about: Summary, stack: str | None) -> str:
    """The facts in one line: family, shape and size; of all stacks, or of one."""
    of: dict[str, list[str]] = {}
    for one in about.stacks:
        if stack is None or one.name == stack:
            of.setdefault(_shape(one), []).append(one.name)
    several = len(about.stacks) > 1
    shapes = [f"{', '.join(names)}: {shape}" if several else shape for shape, names in of.items()]
    return f"{about.family} · {'; '.join(shapes)} · {about.n_parameters:,} parameters"


def _shape(stack: StackSummary) -> str:
    shared = f" on {stack.n_kv_heads} kv heads" if stack.n_kv_heads < stack.n_heads else ""
    positions = "" if stack.positions == "none" else f", {stack.positions} positions"
    return (
        f"{stack.n_layers} layers of {stack.n_heads} heads{shared}, d_model {stack.d_model}, d_head {stack.d_head}"
        f"{positions}"
    )


def facts_block(about: Summary) -> Markup:
    """Everything `headspan inspect` knows."""
    stacks = [facts(stack_facts(stack)) for stack in about.stacks]
    return element("div", element("h3", "What this model is"), facts(model_facts(about)), *stacks)


def analyses_table(reasons: Mapping[str, str | None]) -> Markup:
    """Every analysis, and whether it applies to this model."""
    return table(("Analysis", "For this model"), analyses_rows(reasons))
