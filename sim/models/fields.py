"""Reading a config.json field by field: a missing one is an error that names it, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import UnsupportedModel

INNER = ("text_config", "llm_config", "language_config")
"""Where multimodal wrappers keep their language model."""
TOWERS = ("vision_config", "audio_config")
LARGEST = 10**15
"""Of any count: more is an accident."""
DEEPEST = 10_000


class Fields:
    """A config's language model: its own fields, then the wrapper's."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        inner = next((config[key] for key in INNER if isinstance(config.get(key), Mapping)), None)
        self.name = name
        self.has_towers = inner is not None or any(isinstance(config.get(key), Mapping) for key in TOWERS)
        self.model_type = str((inner or config).get("model_type") or config.get("model_type") or "")
        self._outer = config
        self._fields: dict[str, Any] = dict(inner) if inner is not None else dict(config)

    def fill(self, defaults: Mapping[str, Any]) -> list[str]:
        """Take the architecture's own defaults for fields that are left out; returns which."""
        left_out = [name for name in defaults if self._fields.get(name) is None]
        self._fields.update({name: defaults[name] for name in left_out})
        return left_out

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these fields that is set."""
        for name in names:
            value = self._fields.get(name)
            if value is not None:
                return value
        return default

    def outer(self, *names: str, default: Any = None) -> Any:
        """As ``get``, looking in the wrapper too."""
        found = self.get(*names)
        if found is not None:
            return found
        return next((self._outer[name] for name in names if self._outer.get(name) is not None), default)

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number above 0. Raises UnsupportedModel where none of the names is set and there is no default."""
        value = self.get(*names, default=default)
        if value is None:
            raise self.missing(" or ".join(names))
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST:
            raise self.wrong(names[0], value, "a positive whole number")
        if names[0] == "num_hidden_layers" and value > DEEPEST:
            raise self.wrong(names[0], value, f"at most {DEEPEST:,} layers")
        return value

    def optional(self, *names: str) -> int | None:
        """A whole number above 0, or None where the config leaves it out."""
        return None if self.get(*names) is None else self.count(*names)

    def amount(self, *names: str) -> int:
        """A whole number that may be 0, or left out to mean 0."""
        value = self.get(*names, default=0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise self.wrong(names[0], value, "a whole number")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A true-or-false field."""
        value = self.get(name, default=default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def per_layer(self, name: str, depth: int) -> list[Any] | None:
        """A list with one entry per layer; None where the config has none."""
        values = self.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or len(values) < depth:
            raise self.wrong(name, values, f"a list of {depth} entries, one per layer")
        return values[:depth]

    def words(self, name: str, depth: int, allowed: tuple[str, ...]) -> list[str] | None:
        """A list with one of the ``allowed`` words per layer; None where the config has none."""
        values = self.per_layer(name, depth)
        for value in values or []:
            if value not in allowed:
                raise self.wrong(name, value, f"one of {', '.join(allowed)} for {self.model_type}")
        return values

    def indices(self, name: str) -> list[int]:
        """A list of layers; empty where the config has none."""
        values = self.get(name, default=[])
        if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
            raise self.wrong(name, values, "a list of layer numbers")
        return values

    def head_dim(self, *, derived: bool = True) -> int:
        """Explicit, or hidden / heads where the architecture derives it and the config leaves it out."""
        if not derived or self.get("head_dim", "attention_head_dim") is not None:
            return self.count("head_dim", "attention_head_dim")
        hidden, heads = self.count("hidden_size"), self.count("num_attention_heads")
        if hidden % heads:
            raise self.missing("head_dim", f"; hidden_size {hidden} is not a multiple of {heads} heads")
        return hidden // heads

    def missing(self, what: str, why: str = "") -> UnsupportedModel:
        """The error for a field that is not there."""
        return UnsupportedModel(
            f"{self.name}: the config ({self.model_type or 'no model_type'}) states no {what}{why}",
            f"use the model's complete config.json, or add {what.split(' or ', maxsplit=1)[0]}",
        )

    def wrong(self, what: str, value: Any, wanted: str) -> UnsupportedModel:
        """The error for a field that cannot be what it says."""
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return UnsupportedModel(f"{self.name}: {what} is {shown}, not {wanted}", f"correct {what} in the config")
