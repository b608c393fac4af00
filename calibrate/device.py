"""A torch device by name: what it is, how much memory is free, and how to time it. torch loads only when asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from calibrate import machine
from calibrate.bench import Call, HostTimer, Timer
from sim.errors import RidgelineError
from sim.resources import nearest

KINDS = ("cuda", "cpu", "mps", "xpu")
INSTALL = 'pip install "ridgeline-sim[calibrate]"'
GUESSED_CACHE_BYTES = 64 * 2**20
"""Last-level cache of a device that does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the runtime says of a device."""

    kind: str
    name: str
    vendor: str
    architecture: str
    memory_bytes: int
    free_bytes: int
    cache_bytes: int | None
    """Last-level cache; None where it cannot be read."""
    torch_version: str


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """A device that is there."""

    torch: Any
    facts: DeviceFacts

    @property
    def kind(self) -> str:
        """Its name in torch."""
        return self.facts.kind

    def timer(self) -> Timer:
        """The most exact timer this kind of device has."""
        if self.kind == "cuda":
            return CudaTimer(self.torch)
        return HostTimer(self.synchroniser())

    def synchroniser(self) -> Callable[[], None]:
        """Waits until the device has nothing left to do."""
        if self.kind == "cpu":
            return lambda: None
        synchronise: Callable[[], None] = getattr(self.torch, self.kind).synchronize
        return synchronise


class CudaTimer:
    """CUDA events around a batch, replayed as one CUDA graph where the kernel can be captured, as engines do."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._turn = count()

    def prepare(self, call: Call, calls: int) -> Callable[[], float]:
        """A batch between two events; single calls are not captured: they warm the kernel up."""
        cuda = self._torch.cuda
        run = self._captured(call, calls) if calls > 1 else None
        run = run or self._eager(call, calls)
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)

        def batch() -> float:
            cuda.synchronize()
            start.record()
            run()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3

        return batch

    def _eager(self, call: Call, calls: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(calls):
                call(next(self._turn))

        return run

    def _captured(self, call: Call, calls: int) -> Callable[[], None] | None:
        """The batch as a graph; None where the kernel does something a capture forbids."""
        cuda = self._torch.cuda
        graph = cuda.CUDAGraph()
        side = cuda.Stream()
        try:
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):
                call(next(self._turn))
            cuda.current_stream().wait_stream(side)
            with cuda.graph(graph):
                self._eager(call, calls)()
        except RuntimeError:
            cuda.synchronize()
            return None
        replay: Callable[[], None] = graph.replay
        return replay


def open_device(kind: str) -> TorchDevice:
    """The device of this kind. Raises RidgelineError where torch is missing or sees none."""
    if kind not in KINDS:
        raise RidgelineError(f"--device {kind}: there is no such kind of device\n  cure: {nearest(kind, list(KINDS))}")
    torch = import_torch()
    if kind not in available(torch):
        raise RidgelineError(
            f"--device {kind}: torch {torch.__version__} sees none on this machine\n"
            f"  cure: use --device {' or '.join(available(torch))}, or install a torch built for {kind} and its driver"
        )
    facts = {"cuda": _cuda_facts, "cpu": _cpu_facts, "mps": _mps_facts, "xpu": _xpu_facts}[kind](torch)
    return TorchDevice(torch, facts)


def import_torch() -> Any:
    """The torch module. Raises RidgelineError with the command that installs it."""
    try:
        import scipy.optimize  # noqa: F401 - the fits need it after measuring: better to know before
        import torch
    except ImportError as error:
        problem = f"calibrate run needs torch and scipy ({error})"
        raise RidgelineError(f"{problem}\n  cure: {INSTALL}") from None
    return torch


def available(torch: Any) -> list[str]:
    """Kinds of device torch sees here, accelerators first."""
    seen = {"cuda": torch.cuda.is_available(), "xpu": hasattr(torch, "xpu") and torch.xpu.is_available()}
    seen["mps"] = torch.backends.mps.is_available()
    return [kind for kind, there in seen.items() if there] + ["cpu"]


def _cuda_facts(torch: Any) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(0)
    free_bytes, memory_bytes = torch.cuda.mem_get_info(0)
    amd = torch.version.hip is not None
    return DeviceFacts(
        kind="cuda",
        name=str(properties.name),
        vendor="AMD" if amd else "NVIDIA",
        architecture=str(properties.gcnArchName) if amd else f"sm_{properties.major}{properties.minor}",
        memory_bytes=int(memory_bytes),
        free_bytes=int(free_bytes),
        cache_bytes=int(getattr(properties, "L2_cache_size", 0)) or None,
        torch_version=torch.__version__,
    )


def _xpu_facts(torch: Any) -> DeviceFacts:
    properties = torch.xpu.get_device_properties(0)
    memory_bytes = int(properties.total_memory)
    if hasattr(torch.xpu, "mem_get_info"):
        free_bytes = int(torch.xpu.mem_get_info(0)[0])
    else:
        free_bytes = memory_bytes - int(torch.xpu.memory_reserved(0))
    return DeviceFacts(
        kind="xpu",
        name=str(properties.name),
        vendor="Intel",
        architecture="Xe",
        memory_bytes=memory_bytes,
        free_bytes=free_bytes,
        cache_bytes=None,
        torch_version=torch.__version__,
    )


def _mps_facts(torch: Any) -> DeviceFacts:
    memory_bytes = int(torch.mps.recommended_max_memory())
    free_bytes = min(memory_bytes - int(torch.mps.driver_allocated_memory()), machine.free_bytes())
    return DeviceFacts(
        kind="mps",
        name=f"{machine.cpu_name()} GPU",
        vendor="Apple",
        architecture="Apple GPU",
        memory_bytes=memory_bytes,
        free_bytes=free_bytes,
        cache_bytes=None,
        torch_version=torch.__version__,
    )


def _cpu_facts(torch: Any) -> DeviceFacts:
    name = machine.cpu_name()
    return DeviceFacts(
        kind="cpu",
        name=f"{name}, {torch.get_num_threads()} threads",
        vendor=machine.cpu_vendor(name),
        architecture=machine.architecture(),
        memory_bytes=machine.memory_bytes(),
        free_bytes=machine.free_bytes(),
        cache_bytes=machine.cache_bytes(),
        torch_version=torch.__version__,
    )
