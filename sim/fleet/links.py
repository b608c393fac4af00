"""What a run over several GPUs takes for granted: links that were not measured, and how experts' load is spread."""

from __future__ import annotations

from collections.abc import Iterator

from sim.cost.curves import busiest_share
from sim.cost.device import Device
from sim.fleet.assumptions import Assumption
from sim.hardware import HardwareProfile
from sim.hardware.collectives import node_devices, pcie_all_reduce
from sim.models import ModelSpec
from sim.models.parallel import has_experts
from sim.parallel import Parallelism


def link_assumptions(model: ModelSpec, hardware: HardwareProfile, parallel: Parallelism) -> Iterator[Assumption]:
    """Of calibrated step times; nothing on one GPU."""
    if parallel.tensor > 1:
        yield from _all_reduce(hardware, parallel.tensor)
    if parallel.data > 1:
        yield Assumption(
            "ways to the experts",
            "all-gather and reduce-scatter, or all-to-all where it sends fewer bytes",
            "estimated from the all-reduce over the same links; engines choose by their own rules",
        )
        yield from _network(hardware, parallel.tensor * parallel.data)
    if parallel.pipeline > 1:
        yield Assumption(
            "sends between pipeline stages",
            "hidden states of every token, in 16 bits",
            f"over {_between_stages(hardware, parallel)}; all of the host's time is the first stage's",
        )
    if parallel.expert > 1 and has_experts(model):
        load = busiest_share(Device(hardware, ideal=False).moe(model.weights.experts), parallel.expert)
        yield Assumption(
            "busiest share of experts",
            f"{load:.2g} times the mean of {parallel.expert} shares",
            "from kernel tables under power-law routing; a balanced router or copies of hot experts come nearer to 1",
        )


def _all_reduce(hardware: HardwareProfile, ranks: int) -> Iterator[Assumption]:
    measured, pcie = hardware.efficiency.all_reduce, hardware.pcie_bytes_per_s
    larger = [devices for devices in measured if devices >= ranks]
    if not larger:
        if ranks <= node_devices(hardware):
            said = f"that over {max(measured)} devices, at the same rate of the link"
            yield Assumption("all-reduce", f"estimated for {ranks} devices", said)
        yield from _network(hardware, ranks)
    elif pcie is not None and measured[min(larger)] == pcie_all_reduce(pcie, min(larger)):
        yield Assumption(
            "all-reduce", "estimated over PCIe", "a share of the link's rate and a usual latency: measure it"
        )


def _network(hardware: HardwareProfile, ranks: int) -> Iterator[Assumption]:
    node, network = node_devices(hardware), hardware.network_bytes_per_s
    if ranks > node and network is not None:
        yield Assumption(
            "network",
            f"{network / 1e9:g} GB/s for each of {ranks} devices, {node} to a node",
            "hierarchical collectives; its share of the rate and its latency are estimates: measure them",
        )


def _between_stages(hardware: HardwareProfile, parallel: Parallelism) -> str:
    link, group = hardware.scale_up, parallel.tensor * parallel.data
    if link is not None and parallel.devices <= link.devices:
        return f"{link.name}, as an all-reduce of two"
    if parallel.devices <= node_devices(hardware):
        return "the node's links, as an all-reduce of two or an estimate for PCIe"
    return f"the network where a node's {node_devices(hardware)} devices end (stages of {group}): an estimate"
