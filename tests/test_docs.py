"""Guides: their Python runs, and all names, options, files, make targets and links in them exist; docstrings.

All ```python blocks of a guide run in order, in one namespace and one temporary folder. Names that the reader
brings along are in `readers_names`, and files and folders that a block names are put there as far as
`readers_files` knows them. A block after `<!-- not executed: reason -->` is not run.
"""

import doctest
import importlib
import inspect
import io
import pkgutil
import re
import shutil
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfsparsecap_export
from PIL import Image, ImageDraw, ImageFont

import tfsparsecap
from tfsparsecap.captioning.settings.config_files import config_file

REPOSITORY = Path(__file__).resolve().parent.parent
GUIDES = sorted(
    [
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / "docs/results").glob("*.md"),
        *(
            REPOSITORY / name
            for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "android_demo/README.md")
        ),
    ]
)
TEXTS = {guide.relative_to(REPOSITORY).as_posix(): guide.read_text(encoding="utf-8") for guide in GUIDES}
BLOCK = re.compile(r"^(<!-- not executed: [^\n]+ -->\n+)?```python\n(.*?)^```", re.M | re.S)
EXECUTED = {
    name: [code for marked, code in BLOCK.findall(text) if not marked] for name, text in TEXTS.items()
}
# What the last line of an example prints, as far as the guide says.
PRINTED = {
    "Prune your own classifier": r"test accuracy (8[5-9]|9\d)\.\d% with 10 % of the weights",
    "Caption your own photographs": r"CIDEr [\d.]+ on 4 test images, 80% of the weights are zero",
    "Load a captioner and generate captions": r"photos/9.png an image in blue -\d",
    "Use gated layers directly": r"Dense 0",
}
# Options of programs that are not ours.
FOREIGN_OPTIONS = {"--no-install-recommends", "--pad_id", "--unk_id", "--bos_id", "--eos_id"}
every_guide = pytest.mark.parametrize("name", TEXTS)


def drawn_digits(count: int) -> tuple[tuple, tuple]:
    """`count` training and 1000 test images in the place of MNIST, which would be downloaded: digits, with
    another position and noise in each image."""
    random, labels = np.random.default_rng(0), np.arange(count + 1000) % 10
    images = random.integers(0, 100, (len(labels), 28, 28), np.uint8)
    font = ImageFont.load_default(20)
    for image, label in zip(images, labels, strict=True):
        canvas = Image.new("L", (28, 28))
        ImageDraw.Draw(canvas).text(random.integers(3, 9, 2).tolist(), str(label), 155, font)
        image += np.asarray(canvas)
    return (images[:count], labels[:count]), (images[count:], labels[count:])


def readers_names() -> dict:
    """A built model that takes 4 numbers and gives 3 probabilities, and data for it."""
    import keras
    import numpy as np
    import tensorflow as tf

    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax")]
    x, y = np.random.default_rng(0).random((32, 4), "float32"), np.arange(32) % 3
    return {
        "model": keras.Sequential([keras.Input((4,)), *layers]),
        "dataset": tf.data.Dataset.from_tensor_slices((x, y)).batch(16),
        "steps": 10,
        **{"x": x, "y": y, "x_validation": x, "y_validation": y},
    }


def readers_files(code: str, run: Path, exported: Path) -> None:
    """Puts the runs, exported files and images that code names into the current folder."""
    from PIL import Image

    for quoted in re.findall(r'"([\w/.]+)"', code):
        path = Path(quoted)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".tflite":
            shutil.copy(exported, path)
        elif path.suffix in (".jpg", ".png") and not path.exists():
            Image.new("RGB", (60, 40), "red").save(path)
        elif path.parent.name == "runs" and not path.exists():
            shutil.copytree(run, path)


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory) -> Path:
    """The tiny run as a .tflite file."""
    from tfsparsecap_export import CaptionOptions, export_model

    from tfsparsecap.captioning.inference.finished_run import FinishedRun

    run, path = FinishedRun.load(tiny_run), tmp_path_factory.mktemp("exported") / "model.tflite"
    length = run.config.data.max_length
    captions = CaptionOptions(beam=2, max_length=length, tokenizer=run.tokenizer)
    export_model(run.captioner, path, "dense", captions=captions)
    return path


def titles_and_codes(text: str) -> list[tuple[str, str]]:
    """The executed blocks of a guide, each with the heading above it."""
    blocks, title = [], ""
    for heading, marked, code in re.findall(rf"^#+ ([^\n]+)$|{BLOCK.pattern}", text, re.M | re.S):
        title = heading or title
        if code and not marked:
            blocks.append((title, code))
    return blocks


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", [name for name, codes in EXECUTED.items() if codes])
def test_python_blocks_run(name, tiny_run, exported, capsys, tmp_path, monkeypatch):
    count = 6400 if name == "docs/examples.md" else 600  # which prints an accuracy
    monkeypatch.setattr("keras.datasets.mnist.load_data", lambda: drawn_digits(count))
    monkeypatch.chdir(tmp_path)
    if name in ("docs/examples.md", "docs/pruning.md"):  # whose trainings take longer than compiling them
        tf.config.run_functions_eagerly(False)
    namespace = {"__name__": "guide"}
    for title, code in titles_and_codes(TEXTS[name]):
        namespace |= readers_names()
        readers_files(code, tiny_run, exported)
        capsys.readouterr()
        exec(compile(code, f"{name}, {title}", "exec"), namespace)
        if name == "docs/examples.md":
            assert re.match(PRINTED[title], capsys.readouterr().out.strip().splitlines()[-1]), title


def test_the_output_of_every_example_is_checked():
    assert {title for title, _ in titles_and_codes(TEXTS["docs/examples.md"])} == set(PRINTED)


def test_guides_are_short():
    """Measurements belong in docs/results; README.md has at most 900 words beside its tables."""
    texts = {name: text for name, text in TEXTS.items() if name.startswith("docs/") and name.count("/") == 1}
    assert not [name for name, text in texts.items() if len(text.split()) > 1500]
    prose = [line for line in TEXTS["README.md"].splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= 900


@every_guide
def test_links_and_their_anchors_exist(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[name]):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (REPOSITORY / name).parent / path if path else REPOSITORY / name
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


@cache
def help_of(module: str) -> str:
    """What a command prints for --help, in this process."""
    exporter = module in ("tfsparsecap-export", "tfsparsecap_export")
    name = "tfsparsecap_export.__main__" if exporter else module
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.setattr(sys, "argv", [module, "--help"])
        with pytest.raises(SystemExit):
            importlib.import_module(name).main()
    return output.getvalue()


def code_lines(text: str) -> list[str]:
    """Lines of fenced blocks, continued lines joined, and inline code."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S)
    prose = re.sub(r"^```[^\n]*\n.*?^```", "", text, flags=re.M | re.S)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    return [*lines, *(re.sub(r"\s+", " ", code) for code in re.findall(r"`([^`]+)`", prose))]


@every_guide
def test_commands_and_their_options_exist(name):
    for line in code_lines(TEXTS[name]):
        line = line.partition(" #")[0]
        for command in re.findall(
            r"python -m ((?:tfsparsecap|benchmarks)[\w.]*)|(tfsparsecap-export)\b", line
        ):
            module = "".join(command)
            text = help_of(module)
            assert text.startswith("usage:"), module
            options = line.partition(module)[2]
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", options):
                assert re.search(rf"{option}\b(?!-)", text), f"{module} {option}"


@every_guide
def test_options_alone_belong_to_a_command(name):
    pattern = r"python\s+-m\s+((?:tfsparsecap|benchmarks)[\w.]*\w)"
    commands = {"tfsparsecap-export", *re.findall(pattern, "".join(TEXTS.values()))}
    known_options = set(re.findall(r"--[a-z][\w-]*", " ".join(map(help_of, commands)))) | FOREIGN_OPTIONS
    for code in re.findall(r"`(--[^`]+)`", TEXTS[name]):
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
            assert option in known_options, option


@every_guide
def test_names_files_and_make_targets_exist_and_blocks_are_executed_or_give_a_reason(name):
    for dotted in re.findall(r"\bsc((?:\.\w+)+)", TEXTS[name]):
        value = tfsparsecap
        for part in dotted[1:].split("."):
            assert hasattr(value, part), f"sc{dotted}"
            value = getattr(value, part)
    text = " ".join(TEXTS[name].split())
    for file in re.findall(r"configs/[\w/.-]+\.yaml|(?<=--config )[\w/-]+(?![\w/.-])", text):
        assert config_file(file).is_file() or "NAME" in file, file
    targets = re.findall(r"^([a-z][\w-]*):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M)
    for line in code_lines(TEXTS[name]):
        assert set(re.findall(r"^make ([a-z][\w-]*)", line)) <= set(targets), line
    blocks = re.findall(r"^```(?:python|py)\b", TEXTS[name], re.M)
    assert len(blocks) == len(BLOCK.findall(TEXTS[name]))


@pytest.mark.parametrize("package", ["tfsparsecap", "tfsparsecap_export"])
def test_every_public_name_has_an_entry_in_the_api_pages(package):
    pages = [page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs" / "api").glob("*.md")]
    entries = {line.removeprefix("::: ") for page in pages for line in page.splitlines()}
    module = importlib.import_module(package)
    for name in set(module.__all__) - {"__version__"}:
        inside = [entry for entry in entries if f".{name}." in entry]
        assert inside or any(entry.endswith(f".{name}") for entry in entries), name


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("package, least", [(tfsparsecap, 300), (tfsparsecap_export, 40)])
def test_examples_in_docstrings_run(package, least, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"keras": keras, "np": np, "tf": tf, "Path": Path, "sc": tfsparsecap}
    count = 0
    for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        keras.utils.set_random_seed(0)
        failed, examples = doctest.testmod(module, globs=names | vars(module))
        assert not failed, f"{name}\n{capsys.readouterr().out}"
        count += examples
    assert count >= least


@pytest.mark.parametrize("package", ["tfsparsecap", "tfsparsecap.layers", "tfsparsecap_export"])
def test_every_public_name_has_an_example(package):
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in module.__all__}
    kinds = {
        name: value for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)
    }
    assert not [name for name, value in kinds.items() if ">>>" not in (inspect.getdoc(value) or "")]


def test_names_on_the_api_pages_exist():
    for page in (REPOSITORY / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M):
            pkgutil.resolve_name(name)
