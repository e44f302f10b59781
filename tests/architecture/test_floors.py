"""The house's floors, read from the source: who may import whom, who may touch files, how long a file may be."""

from __future__ import annotations

import ast
import graphlib
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOORS = (
    ("errors", "cache", "types", "quantities", "numerics", "precision", "stepfun", "packed_stepfun", "image_metrics"),
    ("geometry", "encodings", "volume", "losses"),
    ("scenes", "fields", "samplers", "background", "pixels"),
    ("data", "renderer"),
    ("telemetry", "runs"),
    ("train",),
    ("evaluate", "trajectory", "export", "viewer", "preflight", "bench"),
    ("cli",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FILE_ROOMS = {"scenes", "data"} | {room for rooms in FLOORS[4:] for room in rooms}
FILE_CALLS = set(
    "open read_text read_bytes write_text write_bytes mkdir makedirs unlink rmtree rename touch listdir "
    "load loadtxt fromfile memmap save savez savez_compressed savetxt tofile imread imwrite".split()
)
FILE_OWNERS = {"load": {"np", "numpy", "jnp"}, "save": {"np", "numpy", "jnp", "image", "Image"}}
UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "gin", "clu", "yaml"}
MAX_LINES = 400


class Module:
    """One source file: ``name`` is dotted, ``room`` the first name below the package ("" for its own ``__init__``)."""

    def __init__(self, path: pathlib.Path, package: pathlib.Path):
        relative = path.relative_to(package.parent).with_suffix("")
        self.is_package = relative.name == "__init__"
        parts = relative.parts[:-1] if self.is_package else relative.parts
        self.path, self.name, self.tree = path, ".".join(parts), ast.parse(path.read_text())
        self.room = parts[1] if len(parts) > 1 else ""

    def imports(self, names: set[str]) -> set[str]:
        """Dotted names of everything that is imported anywhere in the file, functions included."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} - {"nerfjax"}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "nerfjax":
                found |= set() if node.attr.startswith("__") else {f"nerfjax.{node.attr}"}  # through the façade
            elif isinstance(node, ast.ImportFrom):
                base = self.name.split(".")
                base = base[: len(base) - node.level + self.is_package] if node.level else []
                base = ".".join(base + ([node.module] if node.module else []))
                members = {f"{base}.{alias.name}" for alias in node.names}
                modules = members if base == "nerfjax" else members & names
                found |= modules | ({base} if members - modules else set())
        return found


def read_package(package: pathlib.Path) -> list[Module]:
    return [Module(path, package) for path in sorted(package.rglob("*.py"))]


def floor_violations(modules: list[Module]) -> list[str]:
    names, wrong = {module.name for module in modules}, []
    for module in modules:
        if module.room and module.room not in FLOOR_OF:
            wrong.append(f"{module.name} stands on no floor; give it a row in FLOORS")
            continue
        own = FLOOR_OF.get(module.room, len(FLOORS))
        for target in sorted(module.imports(names)):
            parts = target.split(".")
            if parts[0] != "nerfjax" or parts[-1].startswith("__"):
                continue
            room = parts[1] if len(parts) > 1 else ""
            floor = FLOOR_OF.get(room, len(FLOORS))
            if room != module.room and floor >= own and not floor == own == 0:
                wrong.append(f"{module.name} (floor {own}) imports {target} (floor {floor})")
    return wrong


def import_cycle(modules: list[Module]) -> list[str]:
    names = {module.name for module in modules}
    try:
        graphlib.TopologicalSorter({m.name: (m.imports(names) & names) - {m.name} for m in modules}).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def file_violations(modules: list[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if not module.room or module.room in FILE_ROOMS:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            owner = function.value if isinstance(function, ast.Attribute) else None
            owners = FILE_OWNERS.get(name)
            if name in FILE_CALLS and (owners is None or (isinstance(owner, ast.Name) and owner.id in owners)):
                wrong.append(f"{module.name}:{node.lineno} calls {name}()")
    return wrong


def unsafe_violations(modules: list[Module]) -> list[str]:
    wrong = []
    for module in modules:
        imported = {name.split(".")[0] for name in module.imports(set())}
        wrong += [f"{module.name} imports {name}" for name in sorted(imported & UNSAFE_MODULES)]
        if "tensorflow" in imported and module.name != "nerfjax.data.stream":
            wrong.append(f"{module.name} imports tensorflow")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
                wrong.append(f"{module.name}:{node.lineno} calls {node.func.id}()")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and getattr(node.value, "value", True):
                wrong.append(f"{module.name}:{node.value.lineno} allows pickles")
    return wrong


CHECKS = {"floors": floor_violations, "cycle": import_cycle, "files": file_violations, "unsafe": unsafe_violations}


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_is_in_order(check):
    assert CHECKS[check](read_package(ROOT / "nerfjax")) == []


@pytest.mark.parametrize(
    ("check", "path", "source"),
    [
        ("floors", "geometry/rays.py", "from nerfjax.train import step"),
        ("floors", "geometry/rays.py", "def f():\n    import nerfjax.encodings.hashgrid"),
        ("floors", "volume.py", "from nerfjax import SAMPLERS"),
        ("floors", "runs/manifest.py", "import nerfjax\nload = nerfjax.load_config"),
        ("floors", "samplers/__init__.py", "from ..fields import base"),
        ("floors", "toolbox.py", "pass"),
        ("cycle", "samplers/__init__.py", "from .loop import x"),
        ("files", "renderer.py", "def f(path):\n    return path.read_text()"),
        ("files", "fields/nerf.py", "import numpy as np\nx = np.load('x.npy')"),
        ("unsafe", "scenes/blender.py", "import pickle"),
        ("unsafe", "data/resident.py", "def f():\n    import tensorflow as tf"),
        ("unsafe", "scenes/llff.py", "import numpy as np\nnp.load('x.npy', allow_pickle=True)"),
        ("unsafe", "train/build.py", "eval('1')"),
    ],
)
def test_the_checks_find_what_they_are_for(check, path, source, tmp_path):
    for name, text in {path: source, "samplers/loop.py": "import nerfjax.samplers"}.items():
        file = tmp_path / "nerfjax" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert CHECKS[check](read_package(tmp_path / "nerfjax"))


def python_files() -> list[pathlib.Path]:
    folders = ("nerfjax", "configs", "tests", "experiments")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in python_files()}
    assert {str(path): count for path, count in lengths.items() if count > MAX_LINES} == {}


def test_no_module_is_a_drawer_for_everything():
    names = {"utils", "util", "misc", "common", "helpers"}
    assert [str(path) for path in python_files() if path.stem in names or path.parent.name in names] == []


def test_top_level_holds_what_it_should():
    files = set("pyproject.toml README.md CHANGELOG.md CONTRIBUTING.md LICENSE Makefile constraints.txt".split())
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is tracked is unknown")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {line.split("/")[0] for line in listed.splitlines()}
    folders = {"nerfjax", "configs", "experiments", "tests", "notebooks"}
    assert {name for name in tracked if not name.startswith(".")} <= files | folders
