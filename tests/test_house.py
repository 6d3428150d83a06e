"""The house rules of docs/architecture.md, each kept by a test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"privbench": ROOT / "privbench", "attacks": ROOT / "attacks", "targets": ROOT / "targets"}
OUTER = ("attacks", "bounds", "targets")
HEAVY = ("torch", "numpy", "scipy", "pandas", "transformers", "matplotlib")


def modules() -> dict[str, Path]:
    """Every module's import name and file, the three outer folders under privbench."""
    found = {}
    for folder in ("privbench", *OUTER):
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            if folder == "privbench" and len(parts) > 1 and parts[1] in OUTER:
                continue  # the committed links: the same files again
            name = ".".join(part for part in parts if part != "__init__")
            found[name if folder == "privbench" else f"privbench.{name}"] = file
    return found


def imports(file: Path, *, runtime_only: bool = False) -> set[str]:
    """Names a file imports, also inside functions; under TYPE_CHECKING too unless `runtime_only`."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = set()
    if runtime_only:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                skipped |= {id(child) for child in ast.walk(node)}
    names = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def ours(file: Path) -> set[str]:
    return {name for name in imports(file) if name.startswith("privbench")}


def test_packages_are_the_folders_with_an_init() -> None:
    configured = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    present = {name for name, file in modules().items() if file.name == "__init__.py"}
    assert configured == present


@pytest.mark.parametrize("name", OUTER)
def test_links_are_relative_and_committed(name: str) -> None:
    link = ROOT / "privbench" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


@pytest.mark.parametrize("name", OUTER)
def test_outer_packages_refuse_their_bare_name(name: str) -> None:
    code = subprocess.run(
        [sys.executable, "-c", f"import {name}"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert code.returncode != 0
    assert f"import privbench.{name}" in code.stderr


def test_bounds_import_only_the_mechanism_and_themselves() -> None:
    allowed = ("privbench.mechanism", "privbench.bounds", "privbench.errors", "privbench.pld")
    for name, file in modules().items():
        if name.startswith("privbench.bounds"):
            assert all(item.startswith(allowed) for item in ours(file)), name


def test_attacks_never_import_targets() -> None:
    for name, file in modules().items():
        if name.startswith("privbench.attacks"):
            assert not any("privbench.targets" in item for item in ours(file)), name


def test_targets_import_neither_attacks_nor_bounds() -> None:
    for name, file in modules().items():
        if name.startswith("privbench.targets"):
            assert not any(item.startswith(("privbench.attacks", "privbench.bounds")) for item in ours(file)), name


def test_core_reaches_plugins_through_the_registry_alone() -> None:
    """Base classes may be imported; members of the four groups may not."""
    members = re.compile(r"privbench\.(targets|attacks)\b|privbench\.bounds\.(?!base)|privbench\.defenses\.(?!base)")
    for name, file in modules().items():
        if not name.startswith(("privbench.attacks", "privbench.bounds", "privbench.targets", "privbench.defenses")):
            assert not [item for item in ours(file) if members.match(item)], name


def test_statistics_and_bounds_never_import_torch() -> None:
    for name, file in modules().items():
        if name.startswith(("privbench.bounds", "privbench.stats")):
            assert not any(item.split(".")[0] == "torch" for item in imports(file)), name


def test_reports_import_only_the_record_and_each_other() -> None:
    allowed = (
        "privbench.record",
        "privbench.sweep.record",
        "privbench.report",
        "privbench.verdict",
        "privbench.errors",
        "privbench.stats.answers",  # a sweep's pages show means over seeds, which no record of one seed can hold
    )
    for name, file in modules().items():
        if name.startswith("privbench.report"):
            assert all(item.startswith(allowed) for item in ours(file)), name


def test_no_pickle_no_print_no_assert_in_the_product() -> None:
    for name, file in modules().items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        # joblib hands work to worker processes; nothing that it pickles outlives them.
        banned = ("pickle", "dill") if name == "privbench.sweep.work" else ("pickle", "dill", "joblib")
        assert not any(item.split(".")[0] in banned for item in imports(file)), name
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), name
        calls = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "print" not in calls, name


def test_no_global_random_generator_in_the_product() -> None:
    banned = re.compile(r"np\.random\.(seed|rand|randn|normal|choice|shuffle)\(|torch\.manual_seed|random\.seed")
    for name, file in modules().items():
        assert not banned.search(file.read_text(encoding="utf-8")), name


def test_modules_can_be_taken_in_at_once() -> None:
    for name, file in modules().items():
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 330, name


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["audit", "--help"], ["list", "--help"]], ids=" ".join
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert heavy_after(["privbench", *arguments]) == []


def test_list_imports_neither_torch_nor_transformers() -> None:
    for what in ("targets", "attacks", "bounds", "datasets"):
        assert not {"torch", "transformers"} & set(heavy_after(["privbench", "list", what])), what


def heavy_after(argv: list[str]) -> list[str]:
    """Which heavy packages are loaded after this command line ran in a fresh interpreter."""
    script = (
        "import sys\n"
        f"sys.argv = {argv!r}\n"
        "from privbench.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit as end:\n    code = end.code\n"
        f"sys.stderr.write(' '.join(name for name in {HEAVY!r} if name in sys.modules))\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


def test_readme_and_ci_name_the_same_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make audit" in readme
    assert "make test" in readme
    assert "make check test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reasons = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [*project["dependencies"], *(item for extra in project["optional-dependencies"].values() for item in extra)]
    for requirement in named:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert f"| {name} |" in reasons, name


def test_constraints_pin_every_dependency() -> None:
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        assert re.split(r"[<>=\[]", requirement)[0].lower() in pinned
