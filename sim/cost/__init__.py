"""Pure functions from a step's work and the specs to seconds, and from memory to KV blocks."""

from sim.cost.linear import LinearCost
from sim.cost.memory import KvCapacity, kv_capacity, longest_request_tokens
from sim.cost.operators import Operator
from sim.cost.roofline import RooflineCost
from sim.cost.speculation import SpeculativeCost

__all__ = [
    "KvCapacity",
    "LinearCost",
    "Operator",
    "RooflineCost",
    "SpeculativeCost",
    "kv_capacity",
    "longest_request_tokens",
]
