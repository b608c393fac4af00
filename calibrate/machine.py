"""What the operating system says of this machine's processor and memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

PROCESSORS = Path("/proc/cpuinfo")
MEMORY = Path("/proc/meminfo")
LOAD = Path("/proc/stat")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CGROUP = Path("/sys/fs/cgroup")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_name() -> str:
    """The processor's product name."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    names = [line.partition(":")[2].strip() for line in _lines(PROCESSORS) if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cpu_vendor(name: str) -> str:
    """Who makes the processor of this name."""
    known = {"amd": "AMD", "epyc": "AMD", "ryzen": "AMD", "intel": "Intel", "xeon": "Intel", "apple": "Apple"}
    return next((vendor for word, vendor in known.items() if word in name.lower()), "unknown")


def architecture() -> str:
    """The instruction set."""
    return platform.machine()


def memory_bytes() -> int:
    """Physical memory, or less where a container is limited."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _number(CGROUP / "memory.max")
    return min(total, limit) if limit else total


def free_bytes() -> int:
    """Memory a process may take now without swapping; half of all where the system does not tell."""
    kib = [int(line.split()[1]) for line in _lines(MEMORY) if line.startswith("MemAvailable")]
    free = kib[0] * 1024 if kib else memory_bytes() // 2
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    return min(free, limit - used) if limit and used else free


def cache_bytes() -> int | None:
    """The largest cache of the first processor."""
    if sys.platform == "darwin":
        return int(_sysctl("hw.l2cachesize") or 0) or None
    texts = [line.strip() for path in sorted(CACHES.glob("index*/size")) for line in _lines(path)]
    return max((int(text[:-1]) * UNITS[text[-1]] for text in texts if text[-1:] in UNITS), default=None)


class Neighbours:
    """What other processes take of the processors from now on; nothing to say where the system does not count."""

    def __init__(self) -> None:
        self._start = self._seconds()

    def share(self) -> float | None:
        """Of all processors' time since the start, the part that was not ours."""
        now = self._seconds()
        if now is None or self._start is None:
            return None
        busy_s, own_s, elapsed_s = (after - before for after, before in zip(now, self._start, strict=True))
        capacity_s = elapsed_s * (os.cpu_count() or 1)
        return min(1.0, max(0.0, busy_s - own_s) / capacity_s) if capacity_s > 0 else None

    @staticmethod
    def _seconds() -> tuple[float, float, float] | None:
        """Seconds all processors were busy (or taken by the hypervisor), we were, and the clock."""
        lines = _lines(LOAD)
        if not lines or not lines[0].startswith("cpu "):
            return None
        user, nice, system, _idle, _waiting, *interrupts = (int(field) for field in lines[0].split()[1:9])
        own = os.times()
        busy = user + nice + system + sum(interrupts)
        return busy / os.sysconf("SC_CLK_TCK"), own.user + own.system, time.monotonic()


def _sysctl(key: str) -> str | None:
    command = ["/usr/sbin/sysctl", "-n", key]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own fixed words
    return result.stdout.strip() or None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The figure in a cgroup file; None where there is none, or it says ``max``."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None
