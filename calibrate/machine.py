"""What the operating system says of this machine's processor and memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

PROCESSORS = Path("/proc/cpuinfo")
MEMORY = Path("/proc/meminfo")
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
