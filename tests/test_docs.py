"""The guides: their examples run, and what they point to is there."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
GUIDES = sorted(
    [
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "android_demo/README.md")),
    ]
)
EXAMPLES = re.findall(
    r"^## (.+?)\n(?:(?!^## ).)*?^```python\n(.+?)^```",
    (REPOSITORY / "docs" / "examples.md").read_text(encoding="utf-8"),
    re.M | re.S,
)
#: What the last line of an example prints, as far as the guide says.
PRINTS = {
    "Prune your own classifier": r"accuracy (8[5-9]|9\d)\.\d% with nine of ten weights gone",
    "Caption your own photographs": r"a (blue|red) picture nothing else",
    "Gated layers by hand": "Dense 0",
}


def test_every_example_is_known():
    assert {title for title, _ in EXAMPLES} == set(PRINTS)


@pytest.mark.slow
@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_examples_run_as_they_stand(title, code, capsys, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"docs/examples.md, {title}", "exec"), {"__name__": "example"})
    assert re.search(PRINTS[title], capsys.readouterr().out.strip().splitlines()[-1])


@pytest.mark.parametrize("guide", GUIDES, ids=[str(guide.relative_to(REPOSITORY)) for guide in GUIDES])
def test_links_lead_somewhere(guide):
    for target in re.findall(r"\]\(([^)#]+)", guide.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (guide.parent / target).exists(), target


@pytest.mark.parametrize("guide", GUIDES, ids=[str(guide.relative_to(REPOSITORY)) for guide in GUIDES])
def test_modules_and_configurations_that_are_named_exist(guide):
    text = guide.read_text(encoding="utf-8")
    for module in re.findall(r"python -m (tfsparsecap\w*(?:\.\w+)*)", text):
        package, *path = module.split(".")
        folder = REPOSITORY / ("export/tfsparsecap_export" if package == "tfsparsecap_export" else package)
        assert folder.joinpath(*path).with_suffix(".py").exists() or folder.joinpath(*path).is_dir(), module
    for file in re.findall(r"configs/[\w/.-]+\.yaml", text):
        assert (REPOSITORY / file).exists() or "NAME" in file, file
