"""Result files of load generators: read into one shape, and written from it, be the run real or simulated."""

from sim.bench.reading import read_results
from sim.bench.result import BenchResult
from sim.bench.simulated import bench_result
from sim.bench.writing import EXPORTS, write_export

__all__ = ["EXPORTS", "BenchResult", "bench_result", "read_results", "write_export"]
