"""Azure's LLM inference traces: CSV of ``TIMESTAMP,ContextTokens,GeneratedTokens``; 2024's clocks have a time zone.

Found at github.com/Azure/AzurePublicDataset (2023: Patel et al., Splitwise, ISCA 2024; 2024: Stojkovic et al.,
DynamoLLM, HPCA 2025).
"""

from __future__ import annotations

from sim.traffic.cells import read_clock_ns
from sim.traffic.formats.base import Format, Opening, RowTrace

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _open(opening: Opening) -> RowTrace:
    table = opening.columns()
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        table.reject(1, f"the header has no {' and no '.join(missing)}", f"begin with: {','.join(COLUMNS)}")
    time, prompt, output = COLUMNS
    columns = {"prompt_tokens": prompt, "output_tokens": output}
    return RowTrace(table, time, {name: columns[name] for name in columns if name in opening.wanted}, read_clock_ns)


FORMAT = Format("azure", lambda columns: set(COLUMNS) <= columns.keys(), _open)
