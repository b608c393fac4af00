"""What each load generator calls TTFT, TPOT, ITL and E2E, as functions of what its clients saw.

Read from source: vllm bench serve 0.33, sglang bench_serving 0.5.23, guidellm 0.8, aiperf 0.13, genai-perf 0.0.16,
inference-perf (August 2026), ray llmperf. Below, t0 is the send, c1 ... ck the arrivals of chunks, N the output tokens
and end the moment the response is read to its end.

==============  ==========  ==========================  =====================================================  ========
tool            TTFT        TPOT                        ITL                                                    E2E
==============  ==========  ==========================  =====================================================  ========
vllm            c1 - t0     (E2E - TTFT) / (N - 1)      gaps between chunks, pooled                            ck - t0
sglang          c1 - t0     (E2E - TTFT) / (N - 1)      the same; with several tokens in a chunk its gap is    end - t0
                                                        divided by them and counts as often
guidellm        c1 - t0     (ck - t0) / N, weighted N   per request (ck - c1) / (N - 1), weighted N - 1        end - t0
aiperf          c1 - t0     none                        per request (E2E - TTFT) / (N - tokens of chunk 1)     ck - t0
genai-perf      c1 - t0     none                        per request (E2E - TTFT) / (N - 1), k > 1              ck - t0
inference-perf  c1 - t0,    (ck - c1) / (N - 1)         gaps between tokens: 0 within a chunk, pooled          end - t0
                N > 1
llmperf         c1 - t0     none                        per request (all gaps with TTFT) / chunks              end - t0
==============  ==========  ==========================  =====================================================  ========

Answers of one token have no TPOT, and no ITL but llmperf's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.results.metrics import FIGURES, PERCENTILES, Distribution
from sim.results.streams import Floats, Streams


class Samples(NamedTuple):
    """Values, and how often each of them counts (None: once)."""

    values: NDArray[np.float64]
    weights: NDArray[np.int64] | None = None


Measure = Callable[[Streams], Samples]
GIVEN = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
"""What most tools report; a tool without one of them has None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One tool's metrics. ``stepwise``: its percentiles are values that occurred, not interpolated between two."""

    tool: str
    ttft_s: Measure
    tpot_s: Measure | None
    itl_s: Measure
    e2e_s: Measure
    further: Mapping[str, Measure] = field(default_factory=lambda: MappingProxyType({}))
    stepwise: bool = False

    def measures(self) -> dict[str, Measure | None]:
        """All metrics by name."""
        return {**{name: getattr(self, name) for name in GIVEN}, **self.further}


def _ttft(streams: Streams) -> Samples:
    return Samples(streams.first_s - streams.sent_s)


def _ttft_of_several(streams: Streams) -> Samples:
    return Samples((streams.first_s - streams.sent_s)[streams.output_tokens > 1])


def _to_last_chunk(streams: Streams) -> Samples:
    return Samples(streams.last_s - streams.sent_s)


def _to_end(streams: Streams) -> Samples:
    return Samples(streams.closed_s - streams.sent_s)


def _after_first(streams: Streams, until_s: Floats) -> Floats:
    """Seconds per token after the first, of answers of more than one."""
    several = streams.output_tokens > 1
    return (until_s - streams.first_s)[several] / (streams.output_tokens[several] - 1)


def _per_later_token(streams: Streams) -> Samples:
    return Samples(_after_first(streams, streams.last_s))


def _per_later_token_to_end(streams: Streams) -> Samples:
    return Samples(_after_first(streams, streams.closed_s))


def _per_later_token_weighted(streams: Streams) -> Samples:
    return Samples(_after_first(streams, streams.last_s), (streams.output_tokens - 1)[streams.output_tokens > 1])


def _per_token(streams: Streams) -> Samples:
    return Samples((streams.last_s - streams.sent_s) / streams.output_tokens, streams.output_tokens)


def _per_token_to_end(streams: Streams) -> Samples:
    return Samples((streams.closed_s - streams.sent_s) / streams.output_tokens)


def _pooled_gaps(streams: Streams) -> Samples:
    return Samples(streams.gaps_s())


def _pooled_gaps_by_token(streams: Streams) -> Samples:
    gaps_s, tokens = streams.gaps_s(), streams.gap_tokens()
    return Samples(gaps_s) if tokens is None else Samples(gaps_s / tokens, tokens)


def _gaps_with_zeros(streams: Streams) -> Samples:
    """A chunk's gap once, and a 0 for each further token that came with it (the first chunk's too)."""
    gaps_s, tokens = streams.gaps_s(), streams.chunk_tokens
    if tokens is None:
        return Samples(gaps_s)
    zeros = int((tokens - 1).sum())
    if not zeros:
        return Samples(gaps_s)
    weights = np.append(np.ones(len(gaps_s), dtype=np.int64), zeros)
    return Samples(np.append(gaps_s, 0.0), weights)


def _after_first_chunk(streams: Streams) -> Samples:
    first = streams.first_chunk_tokens()
    later = streams.output_tokens - (1 if first is None else first)
    several = (streams.output_tokens > 1) & (later > 0)
    return Samples((streams.last_s - streams.first_s)[several] / later[several])


def _after_first_of_several_chunks(streams: Streams) -> Samples:
    several = (streams.output_tokens > 1) & (streams.chunks > 1)
    return Samples((streams.last_s - streams.first_s)[several] / (streams.output_tokens[several] - 1))


def _second_chunk(streams: Streams) -> Samples:
    several = streams.chunks > 1
    first = streams.offsets[:-1][several]
    return Samples(streams.chunk_s[first + 1] - streams.chunk_s[first])


def _per_chunk(streams: Streams) -> Samples:
    return Samples((streams.last_s - streams.sent_s) / streams.chunks)


DEFINITIONS = {
    definition.tool: definition
    for definition in (
        Definition(tool="vllm", ttft_s=_ttft, tpot_s=_per_later_token, itl_s=_pooled_gaps, e2e_s=_to_last_chunk),
        Definition(
            tool="sglang", ttft_s=_ttft, tpot_s=_per_later_token_to_end, itl_s=_pooled_gaps_by_token, e2e_s=_to_end
        ),
        Definition(
            tool="guidellm",
            ttft_s=_ttft,
            tpot_s=_per_token,
            itl_s=_per_later_token_weighted,
            e2e_s=_to_end,
            stepwise=True,
        ),
        Definition(
            tool="aiperf",
            ttft_s=_ttft,
            tpot_s=None,
            itl_s=_after_first_chunk,
            e2e_s=_to_last_chunk,
            further=MappingProxyType({"ttst_s": _second_chunk, "inter_chunk_s": _pooled_gaps}),
        ),
        Definition(
            tool="genai-perf",
            ttft_s=_ttft,
            tpot_s=None,
            itl_s=_after_first_of_several_chunks,
            e2e_s=_to_last_chunk,
            further=MappingProxyType({"ttst_s": _second_chunk}),
        ),
        Definition(
            tool="inference-perf",
            ttft_s=_ttft_of_several,
            tpot_s=_per_later_token,
            itl_s=_gaps_with_zeros,
            e2e_s=_to_end,
            further=MappingProxyType({"ntpot_s": _per_token_to_end}),
        ),
        Definition(tool="llmperf", ttft_s=_ttft, tpot_s=None, itl_s=_per_chunk, e2e_s=_to_end),
    )
}
TOOLS = tuple(DEFINITIONS)


def mean_and_std(samples: Samples) -> tuple[float, float]:
    """Mean and standard deviation (of the population, as all tools take it); NaN without values."""
    if not len(samples.values):
        return float("nan"), float("nan")
    mean = float(np.average(samples.values, weights=samples.weights))
    return mean, float(np.sqrt(np.average((samples.values - mean) ** 2, weights=samples.weights)))


def percentiles(samples: Samples, wanted: tuple[float, ...], *, stepwise: bool) -> list[float]:
    """Percentiles of every value repeated as often as it counts: linear between two, or ``stepwise`` the first value
    below or at which so many lie. NaN without values.
    """
    values, weights = samples
    if not len(values):
        return [float("nan")] * len(wanted)
    if weights is None and not stepwise:
        return [float(figure) for figure in np.percentile(values, wanted)]
    order = np.argsort(values, kind="stable")
    values = values[order]
    ends = np.arange(1, len(values) + 1) if weights is None else np.cumsum(weights[order])
    total = int(ends[-1])
    if stepwise:
        ranks = np.array(wanted) / 100 * total
        return [float(values[min(index, len(values) - 1)]) for index in np.searchsorted(ends, ranks - 1e-9)]
    ranks = (total - 1) * np.array(wanted) / 100
    below, above = np.floor(ranks), np.ceil(ranks)
    low, high = (values[np.searchsorted(ends, rank, side="right")] for rank in (below, above))
    return [float(figure) for figure in low + (high - low) * (ranks - below)]


def measured_by(tool: str, streams: Streams) -> dict[str, Distribution]:
    """Every metric of a tool, as the summary has them: None throughout where it has no such metric or no sample."""
    definition = DEFINITIONS[tool]
    return {
        name: dict.fromkeys(FIGURES) if measure is None else _distribution(measure(streams), definition.stepwise)
        for name, measure in definition.measures().items()
    }


def _distribution(samples: Samples, stepwise: bool) -> Distribution:
    if not len(samples.values):
        return dict.fromkeys(FIGURES)
    figures = (
        mean_and_std(samples)[0],
        *percentiles(samples, PERCENTILES, stepwise=stepwise),
        float(samples.values.max()),
    )
    return dict(zip(FIGURES, figures, strict=True))
