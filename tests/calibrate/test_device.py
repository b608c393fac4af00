"""CUDA's timer against a torch that records what is asked of it, and what the system says of this machine."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from calibrate import machine
from calibrate.device import CudaTimer


class Cuda:
    """The part of torch.cuda a timer needs; a replayed graph takes 1 ms per captured call, a launched call 3 ms."""

    def __init__(self, capturable: bool) -> None:
        self.capturable = capturable
        self.now_ms = 0.0
        self.calls = 0
        self.capturing = False
        self.cuda = self
        self.events: list[float] = []

    def kernel(self, turn):
        self.calls += 1
        self.now_ms += 0.0 if self.capturing else 3.0

    def Event(self, enable_timing):  # noqa: N802 - torch's name
        return Event(self)

    def CUDAGraph(self):  # noqa: N802 - torch's name
        return Graph(self)

    def Stream(self):  # noqa: N802 - torch's name
        return self

    def current_stream(self):
        return self

    def wait_stream(self, other):
        pass

    def synchronize(self):
        pass

    @contextmanager
    def stream(self, side):
        yield

    @contextmanager
    def graph(self, graph):
        if not self.capturable:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.capturing, before = True, self.calls
        yield
        self.capturing = False
        graph.calls = self.calls - before


class Event:
    def __init__(self, cuda):
        self.cuda = cuda

    def record(self):
        self.at_ms = self.cuda.now_ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


class Graph:
    def __init__(self, cuda):
        self.cuda, self.calls = cuda, 0

    def replay(self):
        self.cuda.now_ms += self.calls


@pytest.mark.parametrize(
    ("capturable", "calls", "seconds"),
    [(True, 4, 0.004), (False, 4, 0.012), (True, 1, 0.003)],
    ids=["as a graph", "where a capture is forbidden", "single calls warm up"],
)
def test_cuda_times_batches_with_events(capturable, calls, seconds):
    cuda = Cuda(capturable)
    batch = CudaTimer(cuda).prepare(cuda.kernel, calls)
    assert batch() == pytest.approx(seconds)
    assert batch() == pytest.approx(seconds)


def test_this_machine_has_a_processor_and_memory():
    assert machine.cpu_name()
    assert 0 < machine.free_bytes() <= machine.memory_bytes()


def test_a_container_has_no_more_memory_than_its_limit(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(f"{2**20}\n")
    (tmp_path / "memory.current").write_text(f"{2**19}\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert machine.memory_bytes() == 2**20
    assert machine.free_bytes() == 2**19


def test_the_last_level_cache_is_the_largest(tmp_path, monkeypatch):
    for index, size in enumerate(("48K", "1024K", "32M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    monkeypatch.setattr(machine, "CACHES", tmp_path)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    assert machine.cache_bytes() == 32 * 2**20


def test_the_time_of_other_processes_is_told_from_ours(tmp_path, monkeypatch):
    """In 10 s of 4 processors 12 s were busy, 4 of them ours: a fifth was others'."""
    now = {"busy_ticks": 0, "own_s": 0.0, "clock_s": 100.0}
    stat = tmp_path / "stat"
    monkeypatch.setattr(machine, "LOAD", stat)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(machine.os, "times", lambda: SimpleNamespace(user=now["own_s"], system=0.0))
    monkeypatch.setattr(machine.time, "monotonic", lambda: now["clock_s"])

    def write() -> None:
        stat.write_text(f"cpu  {now['busy_ticks']} 0 0 999 77 0 0 0 0 0\ncpu0 1 2 3\n")

    write()
    neighbours = machine.Neighbours()
    now.update(busy_ticks=12 * machine.os.sysconf("SC_CLK_TCK"), own_s=4.0, clock_s=110.0)
    write()
    assert neighbours.share() == pytest.approx(0.2)


def test_where_the_system_does_not_count_nothing_is_said_of_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "LOAD", tmp_path / "none")
    assert machine.Neighbours().share() is None
