"""The house rules that a machine can check: arrows go one way, heavy libraries stay in their rooms."""

import ast
import subprocess
import sys

import pytest

ALLOWED = {
    "work": set(),
    "parallel": set(),
    "errors": set(),
    "resources": set(),
    "yaml12": {"errors"},
    "hardware": {"errors", "resources", "yaml12"},
    "models": {"errors", "resources", "yaml12", "parallel"},
    "engine": {"errors", "work", "hardware", "scenario"},
    "cost": {"errors", "work", "parallel", "models", "hardware"},
    "scenario": {"errors", "resources", "parallel", "models", "hardware", "yaml12"},
    "traffic": {"errors", "resources", "scenario", "engine"},
    "results": {
        "errors",
        "work",
        "engine",
        "models",
        "hardware",
        "cost",
        "fleet",
        "report",
        "scenario",
        "resources",
        "bench",
    },
    "fleet": {
        "errors",
        "work",
        "parallel",
        "engine",
        "cost",
        "models",
        "hardware",
        "scenario",
        "traffic",
        "results",
        "resources",
    },
    "bench": {"errors", "results"},
    "report": {"errors", "work", "bench", "results", "scenario", "resources", "models", "hardware"},
    "study": {
        "errors",
        "results",
        "scenario",
        "fleet",
        "report",
        "resources",
        "engine",
        "traffic",
        "models",
        "hardware",
    },
    "api": {"errors", "results", "scenario", "fleet", "study"},
    "cli": {
        "errors",
        "parallel",
        "api",
        "bench",
        "results",
        "scenario",
        "study",
        "report",
        "models",
        "hardware",
        "resources",
    },
}
HOMES = {"simpy": {"fleet"}, "torch": set(), "matplotlib": {"report"}}


def imports(repo):
    """(room, imported module) of every import in sim/."""
    for path in sorted((repo / "sim").rglob("*.py")):
        room = path.relative_to(repo / "sim").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((room, path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield room, path, node.module


def test_rooms_import_only_what_they_may(repo):
    wrong = [
        f"{path.relative_to(repo)} imports {module}"
        for room, path, module in imports(repo)
        if module.startswith("sim.") and room in ALLOWED
        for target in [module.split(".")[1]]
        if target != room and target not in ALLOWED[room]
    ]
    assert wrong == []


def test_engine_and_cost_know_nothing_of_each_other(repo):
    pairs = {(room, module.split(".")[1]) for room, _, module in imports(repo) if module.startswith("sim.")}
    assert ("engine", "cost") not in pairs
    assert ("cost", "engine") not in pairs


def test_heavy_libraries_stay_in_their_rooms(repo):
    wrong = [
        f"{path.relative_to(repo)} imports {module}"
        for room, path, module in imports(repo)
        if module.split(".")[0] in HOMES and room not in HOMES[module.split(".")[0]]
    ]
    assert wrong == []


@pytest.mark.parametrize("heavy", ["simpy", "numpy", "pandas", "pydantic", "matplotlib", "torch", "pyarrow"])
def test_import_and_help_load_nothing_heavy(heavy):
    code = "import sys, sim, sim.cli; sys.exit(sys.argv[1] in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, heavy], check=False).returncode == 0


def test_simulating_loads_no_plotting():
    run = "sim.run('chat', overrides={'traffic.requests': 5}).summary"
    code = f"import sys, sim; {run}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
