"""What the user writes (YAML), as frozen, validated specs; errors that name file, line, key and cure."""

from sim.scenario.document import parse_set, parse_value
from sim.scenario.load import Loaded, load_scenario
from sim.scenario.schema import scenario_schema, starter_yaml

__all__ = ["Loaded", "load_scenario", "parse_set", "parse_value", "scenario_schema", "starter_yaml"]
