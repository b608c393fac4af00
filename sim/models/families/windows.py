"""Which layers see only a window, in every way configs say so."""

from __future__ import annotations

from sim.models.fields import Fields

LOCAL = ("sliding_attention", "chunked_attention")
GLOBAL = "full_attention"


def shorter(window: int | None, fields: Fields) -> int | None:
    """A window that really cuts something off: one as long as the model's longest context is none."""
    longest = fields.optional("max_position_embeddings")
    return None if window is None or (longest is not None and window >= longest) else window


def layer_windows(
    fields: Fields, depth: int, *, full_every: int | None = None, off_by_default: bool = False
) -> list[int | None]:
    """The window of every layer, None where it sees all.

    ``full_every``: the architecture's own pattern, all but every n-th layer slide. ``off_by_default``: a
    ``sliding_window`` counts only with ``use_sliding_window`` true, from layer ``max_window_layers`` on (Qwen).
    """
    if not fields.flag("use_sliding_window", default=not off_by_default):
        return [None] * depth
    if full_every is None and not has_pattern(fields):
        window = fields.optional("sliding_window")
        first = fields.amount("max_window_layers") if off_by_default else 0
        return [shorter(window, fields) if index >= first else None for index in range(depth)]
    local = local_layers(fields, depth, full_every)
    window = fields.count("sliding_window") if any(local) else None
    return [shorter(window, fields) if slides else None for slides in local]


def has_pattern(fields: Fields) -> bool:
    """Whether the config itself says which layers slide."""
    return fields.get("layer_types", "sliding_window_pattern", "_sliding_window_pattern") is not None


def local_layers(fields: Fields, depth: int, full_every: int | None) -> list[bool]:
    """Local or not, layer by layer: as the config says, else all but every ``full_every``-th."""
    kinds = fields.words("layer_types", depth, (*LOCAL, GLOBAL))
    if kinds is not None:
        return [kind in LOCAL for kind in kinds]
    pattern = fields.get("sliding_window_pattern", "_sliding_window_pattern", default=full_every)
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1:
        raise fields.wrong("sliding_window_pattern", pattern, "a positive whole number")
    return [(index + 1) % pattern != 0 for index in range(depth)]
