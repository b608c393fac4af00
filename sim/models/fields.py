"""Reading a config.json field by field: a missing one is an error that names it, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import UnsupportedModel

INNER = ("text_config", "llm_config", "language_config")
"""Where multimodal wrappers keep their language model."""


class Fields:
    """A config's language model: its own fields, then the wrapper's."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        inner = next((config[key] for key in INNER if isinstance(config.get(key), Mapping)), None)
        self.name = name
        self.wrapped = inner is not None
        self.model_type = str((inner or config).get("model_type") or config.get("model_type") or "")
        self._outer = config
        self._fields: dict[str, Any] = dict(inner) if inner is not None else dict(config)

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

    def count(self, *names: str) -> int:
        """A required whole number. Raises UnsupportedModel where none of the names is set, or it is not positive."""
        value = self.get(*names)
        if value is None:
            raise UnsupportedModel(
                f"{self.name}: the config ({self.model_type or 'no model_type'}) states no {' or '.join(names)}",
                "use the model's complete config.json",
            )
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise UnsupportedModel(f"{self.name}: {names[0]} is {value!r}, not a positive whole number", "mend the config")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A true-or-false field."""
        return bool(self.get(name, default=default))

    @property
    def head_dim(self) -> int:
        """Explicit, or hidden / heads where the config leaves it out."""
        explicit = self.get("head_dim", "attention_head_dim")
        return int(explicit) if explicit else self.count("hidden_size") // self.count("num_attention_heads")
