"""What arrives at the fleet: times, lengths, prefixes and priorities, drawn or read from a trace."""

from sim.traffic.load import Arrival, Traffic, open_traffic

__all__ = ["Arrival", "Traffic", "open_traffic"]
