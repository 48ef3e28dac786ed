"""Architecture rules that reading the code can check: import order, test layout, forbidden imports."""

import ast
import collections
import functools
import graphlib
import inspect
from pathlib import Path

import pytest

import tfsparsecap as sc

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = {
    "tfsparsecap": REPOSITORY / "tfsparsecap",
    "tfsparsecap_export": REPOSITORY / "export" / "tfsparsecap_export",
}
BENCHMARKS = REPOSITORY / "benchmarks"

# Each module or package may import itself and what stands above it. `models.captioner_base`, the interface of
# all captioners, stands before `data`, because it defines the ids of the special tokens.
ORDER = [
    # For any Keras model.
    "tfsparsecap.errors",
    "tfsparsecap.core",
    "tfsparsecap.gates",
    "tfsparsecap.layers",
    "tfsparsecap.pruning",
    "tfsparsecap.model_summary",
    "tfsparsecap.slimming",
    # Captions.
    "tfsparsecap.captioning.captioners",
    "tfsparsecap.captioning.encoder_catalogue",
    "tfsparsecap.captioning.search.search_options",
    "tfsparsecap.captioning.models.captioner_base",
    "tfsparsecap.captioning.data",
    "tfsparsecap.captioning.models",
    "tfsparsecap.captioning.metrics",
    "tfsparsecap.captioning.search",
    "tfsparsecap.captioning.rewards",
    "tfsparsecap.captioning.plotting",
    "tfsparsecap.captioning.settings",
    "tfsparsecap.captioning.runs",
    "tfsparsecap.captioning.inference",
    "tfsparsecap.captioning.training",
    "tfsparsecap.captioning.html_report",
    # What only reproduces the papers.
    "tfsparsecap.papers",
    "tfsparsecap.command",
    "tfsparsecap_export.flatbuffer",
    "tfsparsecap_export.tables",
    "tfsparsecap_export.keras_to_tflite",
    "tfsparsecap_export.samples",
    "tfsparsecap_export.encode",
    "tfsparsecap_export.verify",
    "tfsparsecap_export.export_report",
    "tfsparsecap_export.int8_network",
    "tfsparsecap_export.export_network",
    # Captioners.
    "tfsparsecap_export.caption_files",
    "tfsparsecap_export",
]
COMMANDS = {
    f"tfsparsecap.{name}"
    for name in (
        *("train", "evaluate", "caption", "convert", "demo", "study", "report", "encoders"),
        *("slim_captioner", "publish"),
    )
}
# Tests that are about the repository, or about several modules together.
WITHOUT_MODULE = {
    "test_architecture.py",
    "test_docs.py",
    "test_fuzz.py",
    "test_other_tools.py",  # that open exported files
    "test_packaging.py",
    "test_run_methods.py",  # training/train_run.py with every pruning method
    "test_runtimes.py",
}
# Each of these runs code that a file contains, or loads a second Keras.
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
MAX_LINES = 400


def modules() -> list[tuple[str, Path]]:
    """Dotted name and file of every module of both packages."""
    entries = []
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            entries.append((".".join([package, *(part for part in parts if part != "__init__")]), file))
    return entries


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def imports(file: Path) -> set[str]:
    """Everything a file imports, in functions and for types too; `from a import b` counts as `a`, `a.b`."""
    names = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def rank(name: str) -> int:
    """Position in `ORDER` of the longest entry that contains a module; modules not listed come last."""
    matches = [entry for entry in ORDER if within(name, entry)]
    return ORDER.index(max(matches, key=len)) if matches else len(ORDER)


MODULES = modules()
NAMES = {name for name, _ in MODULES}


def imported_modules(file: Path) -> set[str]:
    """The modules of the two packages that a file imports; names inside a module count as that module."""
    names = imports(file) & NAMES
    return {used for used in names if not any(within(other, used) and other != used for other in names)}


def test_imports_point_in_one_direction():
    for name, file in MODULES:
        if name != "tfsparsecap" and name not in COMMANDS:
            used = imported_modules(file) - {"tfsparsecap"}
            assert not {module for module in used if rank(module) > rank(name)}, name


# Where imports of what is named first are wrong: in all modules but those named after it.
RESERVED = [
    # sc.export_model is imported when it is first used.
    (
        "tfsparsecap_export",
        lambda name: name in COMMANDS | {"tfsparsecap"} or within(name, "tfsparsecap_export"),
    ),
    ("tfsparsecap.papers", lambda name: name in COMMANDS or within(name, "tfsparsecap.papers")),
    *((command, lambda name, command=command: name == command) for command in sorted(COMMANDS)),
]


@pytest.mark.parametrize(("reserved", "is_allowed"), RESERVED)
def test_exporter_papers_and_commands_are_not_imported_from_below(reserved, is_allowed):
    for name, file in MODULES:
        assert is_allowed(name) or not [used for used in imports(file) if within(used, reserved)], name


def test_no_two_modules_share_a_name():
    """Nor does one have the singular of another's name, or the name of a function of `sc`."""
    names = [name.rpartition(".")[2] for name, _ in MODULES if not name.endswith("__main__")]
    names = [name for name in names if name not in PACKAGES]
    functions = {name for name in sc.__all__ if inspect.isfunction(getattr(sc, name))}
    assert {"prune", "slim", "export_model", "check_exportable"} <= functions
    singular = collections.Counter(name.removesuffix("s") for name in names)
    assert not [name for name in names if singular[name.removesuffix("s")] > 1 or name in functions]


def test_what_serves_any_model_imports_nothing_about_captions():
    captions = "tfsparsecap.captioning", "tfsparsecap.papers", "tfsparsecap_export.caption_files"
    parts = ORDER[: ORDER.index("tfsparsecap.slimming") + 1]
    parts += ORDER[ORDER.index("tfsparsecap_export.flatbuffer") : ORDER.index(captions[2])]
    for name, file in MODULES:
        if any(within(name, part) for part in parts):
            assert not [used for used in imports(file) for package in captions if within(used, package)], name


def test_there_are_no_import_cycles():
    graph = {name: imported_modules(file) - {name} for name, file in MODULES}
    # An optimizer calls the method that makes it; only its annotations name the class.
    graph["tfsparsecap.pruning.optimizer"].remove("tfsparsecap.pruning.method")
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_each_file_has_a_docstring_is_short_and_unpickles_nothing():
    for name, file in MODULES:
        text, tree = file.read_text(encoding="utf-8"), parsed(file)
        assert ast.get_docstring(tree) or not text.strip(), name
        assert len(text.splitlines()) <= MAX_LINES, name
        assert not [used for used in imports(file) for library in FORBIDDEN if within(used, library)], name
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, name
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("tf", "keras"), f"{name}:{node.lineno}: import keras"
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{name}:{node.lineno}: name the exception"


def test_tests_mirror_the_packages():
    for file in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        if file.name in WITHOUT_MODULE:
            continue
        *folders, _ = file.relative_to(REPOSITORY / "tests").parts
        if folders in (
            ["android"],
            ["web"],
        ):  # about android_demo/, with tests of its own in Java, and web_demo/
            continue
        if folders[:1] == ["export"]:
            folder = PACKAGES["tfsparsecap_export"].joinpath(*folders[1:])
        elif folders == ["benchmarks"]:
            folder = BENCHMARKS
        else:
            folder = PACKAGES["tfsparsecap"].joinpath(*folders)
        about = file.stem.removeprefix("test_")
        assert any((folder / name).exists() for name in (f"{about}.py", f"__{about}__.py", about)), (
            f"{file} tests no module of {folder}"
        )


def test_no_test_folder_is_a_package():
    assert not list((REPOSITORY / "tests").rglob("__init__.py"))


def test_no_file_contains_a_path_of_one_machine():
    suffixes = ".py", ".toml", ".txt", ".md", ".yaml", ".yml", ".java", ".xml", ".sh", ".js", ".json", ".html"
    for folder in (
        "tfsparsecap",
        "export",
        "benchmarks",
        "configs",
        "docs",
        "android_demo",
        "web_demo",
        ".ci",
    ):
        for file in (REPOSITORY / folder).rglob("*"):
            built = {"target", "build", "node_modules"} & set(file.relative_to(REPOSITORY).parts)
            if file.is_file() and not built and (file.suffix in suffixes or file.name == "run"):
                text = file.read_text(encoding="utf-8")
                assert "/work/" not in text and "/root/" not in text and "/home/" not in text, file
