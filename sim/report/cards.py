"""What is known of one model or one device, as (label, value) rows.

Figures without a row of their own follow under their own names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sim.report.format import (
    UNDEFINED,
    byte_count,
    bytes_per_s,
    count,
    defined,
    flops_per_s,
    large_count,
    percent,
    si,
    significant,
)

Rows = list[tuple[str, str]]
_MODEL_KEYS = ("name", "parameters", "active_parameters", "weight_bytes", "kv", "per_gpu")
_HARDWARE_KEYS = (
    *("name", "product", "vendor", "architecture", "peak_flops_per_s", "hbm_bytes_per_s", "memory_bytes"),
    *("ridge_flops_per_byte", "calibration", "links", "power_w", "price"),
)


def model_rows(summary: Mapping[str, Any]) -> Rows:
    """Parameters, bytes, KV growth, and what the worst GPU holds."""
    kv, per_gpu = summary.get("kv") or {}, summary.get("per_gpu") or {}
    rows = [
        ("parameters", large_count(summary.get("parameters"))),
        ("active parameters", f"{large_count(summary.get('active_parameters'))} per token"),
        ("weights", byte_count(summary.get("weight_bytes"))),
        ("KV, growing", f"{byte_count(kv.get('growing_bytes_per_token'))} per token"),
    ]
    for window in kv.get("windows") or []:
        size = (
            f"{byte_count(window.get('bytes_per_token'))} per token, up to {count(window.get('window_tokens'))} tokens"
        )
        rows.append(("KV, window", size))
    if kv.get("index_bytes_per_token"):
        rows.append(("KV index", f"{byte_count(kv['index_bytes_per_token'])} per token"))
    if kv.get("state_bytes_per_request"):
        rows.append(("state", f"{byte_count(kv['state_bytes_per_request'])} per request"))
    rows += _per_gpu_rows(per_gpu)
    return rows + _other_rows(summary, _MODEL_KEYS)


def _per_gpu_rows(per_gpu: Mapping[str, Any]) -> Rows:
    suffixes = {"weight_bytes": "", "kv_bytes_per_token": " per token", "kv_bytes_per_request": " per request"}
    labels = {"weight_bytes": "weights", "kv_bytes_per_token": "KV", "kv_bytes_per_request": "KV"}
    rows = [
        (f"{labels[key]} per GPU", f"{byte_count(per_gpu[key])}{suffix}")
        for key, suffix in suffixes.items()
        if defined(per_gpu.get(key))
    ]
    return rows + [(f"{label} per GPU", value) for label, value in _other_rows(per_gpu, tuple(suffixes))]


def hardware_rows(summary: Mapping[str, Any]) -> Rows:
    """Peaks with their ridge points, memory, links, price, and where the figures come from."""
    rows = [("device", _device(summary))] if summary.get("product") else []
    rows += [
        ("memory", byte_count(summary.get("memory_bytes"))),
        ("bandwidth", bytes_per_s(summary.get("hbm_bytes_per_s"))),
    ]
    ridges = summary.get("ridge_flops_per_byte") or {}
    for dtype, peak in (summary.get("peak_flops_per_s") or {}).items():
        ridge = f", ridge point {significant(ridges[dtype])} FLOP/byte" if dtype in ridges else ""
        rows.append((f"peak {dtype}", f"{flops_per_s(peak)}{ridge}"))
    rows += _link_rows(summary.get("links") or {}) + _cost_rows(summary)
    rows += _calibration_rows(summary.get("calibration") or {})
    return rows + _other_rows(summary, _HARDWARE_KEYS)


def _device(summary: Mapping[str, Any]) -> str:
    name = " ".join(str(summary[key]) for key in ("vendor", "product") if summary.get(key))
    return f"{name} ({summary['architecture']})" if summary.get("architecture") else name


def _link_rows(links: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    scale_up = links.get("scale_up")
    if scale_up:
        joined = f"{bytes_per_s(scale_up.get('bytes_per_s'))} each of {count(scale_up.get('devices'))} devices"
        if scale_up.get("pair_bytes_per_s") != scale_up.get("bytes_per_s"):
            joined += f", {bytes_per_s(scale_up.get('pair_bytes_per_s'))} between two"
        rows.append(("scale-up link", f"{scale_up.get('name')}, {joined}"))
    for key, label in (("pcie_bytes_per_s", "PCIe"), ("network_bytes_per_s", "network")):
        if defined(links.get(key)):
            rows.append((label, bytes_per_s(links[key])))
    return rows


def _cost_rows(summary: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    if defined(summary.get("power_w")):
        rows.append(("power", f"{count(summary['power_w'])} W"))
    price = summary.get("price")
    if price:
        rows.append(("price", f"{significant(price.get('usd_per_hour'))} USD/h ({price.get('source')})"))
    return rows


def _calibration_rows(calibration: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    if "calibrated" in calibration:
        state = "measured on this device" if calibration["calibrated"] else "borrowed, not measured on this device"
        dated = f", {calibration['date']}" if calibration.get("date") else ""
        rows.append(("efficiency", f"{state}{dated}"))
    if calibration.get("source"):
        rows.append(("its source", str(calibration["source"])))
    if calibration.get("error"):
        errors = ", ".join(f"{name} {percent(value)}" for name, value in calibration["error"].items())
        rows.append(("its error", errors))
    return rows + _other_rows(calibration, ("calibrated", "date", "source", "error"))


def _other_rows(mapping: Mapping[str, Any], known: Sequence[str]) -> Rows:
    rows: Rows = []
    for key, value in mapping.items():
        if key in known or value is None or value in ({}, []):
            continue
        if isinstance(value, Mapping):
            rows += [(f"{_label(key)} {label}", text) for label, text in _other_rows(value, ())]
        else:
            rows.append((_label(key), _value(key, value)))
    return rows


def _label(key: str) -> str:
    """The key in words, without the unit that its value is printed with."""
    words = re.sub(r"_?(bytes|flops)(_per_s)?$", "", key) or key
    return re.sub(r"_w$", "", words).replace("_", " ")


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _figure(str(key), value)
    if isinstance(value, list | tuple):
        return "; ".join(_value(key, item) for item in value) or UNDEFINED
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(name, item)}" for name, item in value.items())
    return str(value)


def _figure(key: str, value: float) -> str:
    if key.endswith("bytes_per_s"):
        return bytes_per_s(value)
    if key.endswith("flops_per_s"):
        return flops_per_s(value)
    if key.endswith(("_bytes", "bytes_per_token", "bytes_per_request")):
        return byte_count(value)
    if "flops" in key:
        return si(value, "FLOP")
    return count(value) if isinstance(value, int) else significant(value)
