"""The house rules, checked on the source itself."""

import ast
import inspect
from functools import cache
from pathlib import Path

import pytest

from m2st_core.types import BASELINE, DEFAULT_TAUGHT_TEST, DEFAULT_TEST, GENERIC_TEST

ROOT = Path(__file__).parent.parent
ROOMS = {
    "types": 0,
    "numbers": 0,
    "progress": 0,
    "rng": 0,
    "device": 0,
    "presets": 0,
    "environment": 0,
    "tasks": 0,
    "data": 1,
    "kernels": 2,
    "criterion": 3,
    "permutation": 4,
    "learners": 5,
    "testing": 6,
    "figures": 7,
    "sweeps": 8,
    "analysis": 9,
    "paper": 10,
    "studies": 11,
    "dashboard": 12,
    "serving": 13,
    "commands": 14,
}
CORE = sorted((ROOT / "m2st_core").rglob("*.py"))
FRONT = [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py"))]


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Everything in a file's syntax tree, the module first."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imports(path: Path) -> frozenset[str]:
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def room(path: Path) -> str:
    return path.relative_to(ROOT / "m2st_core").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_lower_rooms_only(path):
    if room(path) in ("__init__", "__main__"):
        return
    own = ROOMS[room(path)]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "m2st_core":
            assert len(parts) > 1, f"{path} imports the public API, which imports everything"
            other = ROOMS[parts[1]]
            assert parts[1] == room(path) or other < own or other == own == 0, f"{path} imports {name}"


@pytest.mark.parametrize("path", CORE + FRONT, ids=lambda path: str(path.relative_to(ROOT)))
def test_streamlit_stays_in_front_and_torch_behind(path):
    names = {name.split(".")[0] for name in imports(path)}
    if path in FRONT:
        assert "torch" not in names
    elif room(path) not in ("dashboard", "serving"):
        assert "streamlit" not in names
    if path not in FRONT and room(path) == "sweeps":
        assert "plotly" not in names and not any(name.startswith("m2st_core.figures") for name in imports(path))
    if path not in FRONT and room(path) == "figures":
        assert names <= {"m2st_core", "pandas", "plotly", "numpy", "dataclasses", "collections", "__future__", "typing"}
        assert {name.split(".")[1] for name in imports(path) if name.startswith("m2st_core.")} <= {
            "types",
            "figures",
            "testing",
        }


DASHBOARD = {  # its modules and folders, each of which imports earlier ones; pages' folders do not import each other
    "jobs": 1,
    "widgets": 2,
    "your_data": 3,
    "explore": 4,  # it reads an upload's related tasks
    "images": 5,
    "learn": 5,
    "paper": 5,
}


@pytest.mark.parametrize("path", sorted((ROOT / "m2st_core" / "dashboard").rglob("*.py")), ids=lambda path: path.stem)
def test_rooms_of_the_dashboard_import_lower_ones_only(path):
    own = path.relative_to(ROOT / "m2st_core" / "dashboard").parts[0].removesuffix(".py")
    others = {name.split(".")[2] for name in imports(path) if name.startswith("m2st_core.dashboard.")} - {own}
    assert all(DASHBOARD[other] < DASHBOARD[own] for other in others), f"{path} imports {others}"


DATA = {  # its modules and folders, each of which imports earlier ones; the registry of tasks comes last
    "related": 0,
    "identifiers": 0,
    "repeated_rows": 0,
    "arrays": 1,
    "overlap": 1,
    "synthetic": 1,
    "separate": 2,
    "tables": 3,
    "images": 3,
    "__init__": 4,
}


@pytest.mark.parametrize("path", sorted((ROOT / "m2st_core" / "data").rglob("*.py")), ids=lambda path: path.stem)
def test_rooms_of_data_import_lower_ones_only(path):
    own = path.relative_to(ROOT / "m2st_core" / "data").parts[0].removesuffix(".py")
    names = {name.split(".")[2] for name in imports(path) if name.startswith("m2st_core.data.")} - {own}
    others = names & DATA.keys()
    assert all(DATA[other] < DATA[own] for other in others), f"{path} imports {others}"
    assert own == "__init__" or not names - others, f"{path} imports the registry of tasks, which imports everything"


def modules_of(path: Path) -> set[Path]:
    """The modules of the package that a module imports."""
    names = {tuple(name.split(".")) for name in imports(path) if name.startswith("m2st_core")}
    files = {ROOT.joinpath(*name).with_suffix(".py") for name in names}
    return {file for file in files if file.exists()} - {path}


def test_no_modules_import_in_a_circle():
    """Modules that import nothing but modules already removed are removed, until none is left."""
    left = {path: modules_of(path) for path in CORE}
    while free := {path for path, others in left.items() if not others & left.keys()}:
        left = {path: others for path, others in left.items() if path not in free}
    assert not left, sorted(str(path.relative_to(ROOT)) for path in left)


def test_the_dashboard_of_one_user_has_no_serving():
    for path in [*CORE, *FRONT]:
        serving = any(name.startswith("m2st_core.serving") for name in imports(path))
        assert not serving or "serving" in path.parts, f"{path} imports serving: only serve.py does"


def test_nothing_depends_on_pickle():
    for path in CORE + FRONT:
        assert not imports(path) & {"pickle", "cloudpickle", "dill", "joblib", "shelve"}, path
    loading = [
        line for path in CORE + FRONT for line in path.read_text(encoding="utf-8").splitlines() if "torch.load" in line
    ]
    assert len(loading) == 1 and "weights_only=True" in loading[0]


def test_the_environment_is_read_in_one_module():
    for path in CORE + FRONT:
        text = path.read_text(encoding="utf-8")
        if path.name != "environment.py":
            assert 'environ.get("M2ST' not in text and 'environ["M2ST' not in text and "getenv" not in text, path


def private_imports(path: Path) -> set[str]:
    """Private names of the package that a module imports from another one."""
    nodes = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom)]
    return {
        f"{node.module}.{alias.name}"
        for node in nodes
        for alias in node.names
        if str(node.module).startswith("m2st_core") and alias.name.startswith("_")
    }


def test_private_names_stay_private():
    assert not {path: names for path in CORE + FRONT if (names := private_imports(path))}


def used_names(path: Path) -> set[str]:
    """Full names that a file imports, reads from or replaces in an imported module, or writes as text."""
    used, modules = set(), {}
    nodes = nodes_of(path)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            used, modules = used | set(names.values()), modules | names
        elif isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.add(f"{modules.get(node.value.id)}.{node.attr}")
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[0], ast.Name):
            used.add(f"{modules.get(node.args[0].id)}.{getattr(node.args[1], 'value', None)}")
        elif isinstance(node, ast.Constant) and str(node.value).startswith("m2st_core."):
            used.add(str(node.value))
    return used


def is_private(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith("_")


def test_a_public_name_is_used_outside_its_module():
    """A public function is; a public class may also be named by something public in its module, which returns it."""
    files = [*CORE, *FRONT, ROOT / "serve.py", *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    used = set().union(*map(used_names, files)) | {"m2st_core.__main__.run_program"}  # the command of pyproject.toml
    unused = []
    for path in CORE:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        body = [node for node in nodes_of(path)[0].body if not is_private(node)]
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or f"{module}.{node.name}" in used:
                continue
            others = [
                name.id for other in body if other is not node for name in ast.walk(other) if isinstance(name, ast.Name)
            ]
            if isinstance(node, ast.FunctionDef) or node.name not in others:
                unused.append(f"{module}.{node.name}")
    assert not unused, f"give them an underscore, or delete them: {unused}"


def test_a_name_has_one_import_path():
    """Rooms have no __init__.py that re-exports; only the public API and the registry of tasks do more."""
    faces = {ROOT / "m2st_core" / "__init__.py", ROOT / "m2st_core" / "data" / "__init__.py"}
    assert {path for path in CORE if path.name == "__init__.py"} == faces


@pytest.mark.parametrize(("text", "places"), [("hash[:12]", 1), ("can not", 0), ("regularisation).sqrt()", 1)])
def test_an_idea_is_written_once(text, places):
    assert sum(path.read_text(encoding="utf-8").count(text) for path in CORE + FRONT) == places


def defaults(node: ast.AST) -> list[ast.expr | None]:
    """The values that a function's parameters, a class's fields or a call's ``default`` have if none is given."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return [*node.args.defaults, *node.args.kw_defaults]
    if isinstance(node, ast.ClassDef):
        return [field.value for field in node.body if isinstance(field, ast.AnnAssign)]
    return [word.value for word in node.keywords if word.arg == "default"] if isinstance(node, ast.Call) else []


def strings(node: ast.AST | None) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)} if node else set()


@pytest.mark.parametrize("path", CORE + FRONT, ids=lambda path: str(path.relative_to(ROOT)))
def test_default_tests_are_named_in_one_place(path):
    """No default of a parameter, field or option, and no constant, spells the default test or the baseline."""
    assert BASELINE == DEFAULT_TEST
    named = {DEFAULT_TEST, DEFAULT_TAUGHT_TEST, GENERIC_TEST, "MMD-FUSE"}
    nodes, where = nodes_of(path), str(path.relative_to(ROOT))
    spelled = {name for node in nodes for value in defaults(node) for name in strings(value) & named}
    constants = [node.value for node in nodes[0].body if isinstance(node, ast.Assign)]
    spelled |= {value.value for value in constants if isinstance(value, ast.Constant)} & named
    if where == "m2st_core/types.py":
        assert spelled == named - {"MMD-FUSE"}
    else:
        assert not spelled, f"{path} names {spelled}: use the constants of m2st_core.types"


def test_the_same_default_everywhere():
    """The API, a plan, an analysis, images, One test and the shell have the same default."""
    from m2st_core.__main__ import build_parser
    from m2st_core.analysis.images import compare_images
    from m2st_core.analysis.plan import Plan, analyse
    from m2st_core.analysis.recommendation import recommend
    from m2st_core.testing.two_sample import examine, two_sample_test

    parameters = [
        inspect.signature(of).parameters[name].default
        for of, name in ((two_sample_test, "method"), (examine, "method"), (analyse, "primary"), (Plan, "primary"))
    ]
    assert {*parameters, recommend(30, 30).method} == {DEFAULT_TEST}
    assert inspect.signature(compare_images).parameters["method"].default == ""  # by whether there is a history
    train = build_parser().parse_args(["meta-train", "related.csv", "--out", "learner"])
    assert {recommend(30, 30, n_tasks=5).method, train.method} == {DEFAULT_TAUGHT_TEST}
