"""The house rules that can be checked by reading: who imports whom, where tests lie, what is not used."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = {"tfsparsecap": REPOSITORY / "tfsparsecap", "tfsparsecap_export": REPOSITORY / "export"}

# Everybody may use these.
GROUND = {"tfsparsecap.errors", "tfsparsecap.files"}
# What each room uses besides itself and the ground. Data flows one way: data -> models -> training -> export.
# `models.captioner` is the contract in the middle; it owns the ids of the special tokens.
MAY_USE = {
    "tfsparsecap.errors": set(),
    "tfsparsecap.files": set(),
    "tfsparsecap.draws": set(),
    "tfsparsecap.gates": {"tfsparsecap.draws"},
    "tfsparsecap.layers": {"tfsparsecap.gates"},
    "tfsparsecap.pruning": {"tfsparsecap.gates", "tfsparsecap.layers"},
    "tfsparsecap.metrics": {"tfsparsecap.gates", "tfsparsecap.layers", "tfsparsecap.models.captioner"},
    "tfsparsecap.data": {"tfsparsecap.models.captioner"},
    "tfsparsecap.models": {"tfsparsecap.gates", "tfsparsecap.layers"},
    "tfsparsecap.decoding": {"tfsparsecap.gates", "tfsparsecap.models.captioner"},
    "tfsparsecap.sampling": {"tfsparsecap.gates", "tfsparsecap.models.captioner", "tfsparsecap.decoding"},
    "tfsparsecap.bundle": set(),
    "tfsparsecap.torch_archive": set(),
    "tfsparsecap.picture_sheet": {"tfsparsecap.data"},
}
# Tests of the repository as a whole.
WITHOUT_MODULE = {
    "test_docs.py",
    "test_house.py",
    "test_packaging.py",
    "test_run_methods.py",  # training/run.py with every pruning method
    "test_runtimes.py",
}
# Each of these runs code that a file brings along, or a second Keras.
FORBIDDEN = (
    "pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "joblib",
    "tf_keras",
    "tensorflow.keras",
    "tensorflow.python.keras",
)
LONGEST_FILE = 400


def modules() -> list[tuple[str, Path]]:
    """Dotted name and file of every module of both packages."""
    found = []
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            found.append((".".join([package, *(part for part in parts if part != "__init__")]), file))
    return found


def imports(file: Path) -> set[str]:
    """Everything a file imports, inside functions too; `from a import b` counts as `a` and `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


MODULES = modules()
every_module = pytest.mark.parametrize(("name", "file"), MODULES, ids=[name for name, _ in MODULES])


def test_there_are_modules_to_check():
    assert len(MODULES) > 30
    assert {name.split(".")[0] for name, _ in MODULES} == set(PACKAGES)


@every_module
def test_the_package_never_imports_the_exporter(name, file):
    if within(name, "tfsparsecap"):
        assert not [used for used in imports(file) if within(used, "tfsparsecap_export")]


@every_module
def test_rooms_use_only_the_rooms_before_them(name, file):
    room = ".".join(name.split(".")[:2])
    if room not in MAY_USE:
        return
    allowed = MAY_USE[room] | GROUND | {room}
    ours = {used for used in imports(file) if used.startswith("tfsparsecap.")}
    assert not {used for used in ours if not any(within(used, one) for one in allowed)}
    assert "tfsparsecap" not in imports(file) or ours, "import the module that is meant, not the package"


def test_only_command_lines_use_the_demo_and_nobody_a_command_line():
    commands = {
        "tfsparsecap.train",
        "tfsparsecap.evaluate",
        "tfsparsecap.caption",
        "tfsparsecap.convert",
        "tfsparsecap.demo",
        "tfsparsecap.study",
        "tfsparsecap.report",
    }
    for name, file in MODULES:
        assert not {
            used for used in imports(file) for command in commands - {name} if within(used, command)
        }, name


@every_module
def test_a_file_says_what_it_is_about_and_is_short(name, file):
    text = file.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)) or not text.strip()
    assert len(text.splitlines()) <= LONGEST_FILE


@every_module
def test_nothing_unpickles_or_brings_a_second_keras(name, file):
    assert not [used for used in imports(file) for one in FORBIDDEN if within(used, one)]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) != ("tf", "keras"), f"line {node.lineno}: import keras instead"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: name the exception"


def test_tests_mirror_the_packages():
    for file in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        if file.name in WITHOUT_MODULE:
            continue
        *rooms, _ = file.relative_to(REPOSITORY / "tests").parts
        if rooms == ["android"]:  # about android_demo/, which has tests of its own in Java
            continue
        folder = (
            PACKAGES["tfsparsecap_export"]
            if rooms == ["export"]
            else PACKAGES["tfsparsecap"].joinpath(*rooms)
        )
        about = file.stem.removeprefix("test_")
        assert folder.is_dir(), f"{file}: there is no room {folder}"
        assert any((folder / name).exists() for name in (f"{about}.py", f"__{about}__.py", about)), (
            f"{file} is about no module of {folder}"
        )


def test_no_test_folder_is_a_package():
    assert not list((REPOSITORY / "tests").rglob("__init__.py"))


def test_nothing_names_a_machine():
    kept = [".py", ".toml", ".txt", ".md", ".yaml", ".yml", ".java", ".xml", ".sh"]
    for folder in ("tfsparsecap", "export", "configs", "docs", "android_demo", ".ci"):
        for file in (REPOSITORY / folder).rglob("*"):
            built = {"target", "build"} & set(file.relative_to(REPOSITORY).parts)
            if file.is_file() and not built and (file.suffix in kept or file.name == "run"):
                text = file.read_text(encoding="utf-8")
                assert "/work/" not in text and "/root/" not in text and "/home/" not in text, file
