"""The SimPy processes: clients, router, replica loops. The only importer of simpy."""

from sim.fleet.simulation import RunRecord, simulate

__all__ = ["RunRecord", "simulate"]
