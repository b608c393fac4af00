"""Profiles that ship, by the name their runtime gives the device: datasheet figures need not be measured."""

from __future__ import annotations

from sim.hardware import HardwareProfile, load_profile, profile_names

MEMORY_TOLERANCE = 0.1
"""Same name, other memory (RTX 3080 with 10 or 12 GB): another device."""

PROFILES = {
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A30": "a30",
    "NVIDIA A40": "a40",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA GB10": "dgx-spark-gb10",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
    "NVIDIA GeForce RTX 3070": "rtx-3070",
    "NVIDIA GeForce RTX 3080": "rtx-3080",
    "NVIDIA GeForce RTX 3080 Ti": "rtx-3080-ti",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4080": "rtx-4080",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX 4000 Ada Generation": "rtx-4000-ada",
    "NVIDIA RTX 5000 Ada Generation": "rtx-5000-ada",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-blackwell-server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-blackwell-workstation",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI325X": "mi325x",
    "AMD Instinct MI355X": "mi355x",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-sxm-32gb",
    "Apple M2 Ultra GPU": "apple-m2-ultra",
}


def matching_profile(device_name: str, memory_bytes: int) -> HardwareProfile | None:
    """The shipped profile of this device; None where no name matches, or the memory differs."""
    name = PROFILES.get(device_name)
    if name is None or name not in profile_names():
        return None
    profile = load_profile(name)
    same = abs(memory_bytes / profile.memory_bytes - 1) <= MEMORY_TOLERANCE
    return profile if same else None
