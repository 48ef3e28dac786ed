"""The page in a headless Chromium: photographs, messages, keyboard, screen readers, no network."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner

from .conftest import PHOTOGRAPHS, REPOSITORY, Site, finished
from .test_photo import FIXTURES

ASTRONAUT, CAT, COFFEE, PHOTOGRAPHER = PHOTOGRAPHS
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
GIVE = """async ([name, kind]) => {
  const blob = await (await fetch(`/files/${name}`)).blob();
  const files = new DataTransfer();
  files.items.add(new File([blob], name));
  const event = kind === "paste" ? new ClipboardEvent(kind, { clipboardData: files, bubbles: true })
    : new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event);
}"""


A_VERSION_WAITS = """async () => {
  const registration = await navigator.serviceWorker.getRegistration();
  for (let tries = 0; tries < 1000 && !registration.waiting; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return Boolean(registration.waiting);
}"""


def said(page, photograph: Path | None = None) -> list[str]:
    """What the page says, once it has finished, about a photograph that is chosen."""
    if photograph is not None:
        page.set_input_files("#choose", photograph)
    finished(page.locator("#sentence")).to_have_text(re.compile(r"^(?!Describing|Loading).+"))
    return [line for line in page.inner_text("#result").splitlines() if line]


@pytest.fixture
def small(built, tmp_path):
    """A site with the captioner `small`, whose captions are Python's, and the photographs in `files/`."""
    folder = tmp_path / "page"
    shutil.copytree(built / "web_demo" / "build", folder)
    shutil.copy(captioner_path("small"), folder / "captioner.tflite")
    site = Site(folder, PHOTOGRAPHS[0].parent)
    yield site
    site.close()


@pytest.fixture
def site(small):
    return small


@pytest.mark.slow
def test_chosen_dropped_and_pasted_photographs_are_captioned_as_in_python(site, open_page):
    captioner, page = TFLiteCaptioner(captioner_path("small")), open_page()
    seen = set()
    for number, path in enumerate(PHOTOGRAPHS):
        if number % 2:
            page.evaluate(GIVE, [path.name, ("drop", "paste")[number // 2]])
        lines = said(page, None if number % 2 else path)
        captions = captioner.generate(path)
        best, others = captions[0], captions[1:]
        if captions.summary().startswith("Perhaps: "):
            assert lines == [captions.summary()]
            others = captions
        else:
            words = (
                "Quite sure"
                if best.confidence >= 0.75
                else "Probably"
                if best.confidence >= 0.5
                else "Not sure"
            )
            assert lines == [best.text.capitalize(), f"{words} · {best.confidence:.0%}"]
        seen.add(lines[0].startswith("Perhaps: "))
        rows = page.locator("#captions li").all_inner_texts()
        assert rows == [f"{caption.text.capitalize()} · {caption.confidence:.0%}" for caption in others]
        assert page.get_by_role("img", name=f"Photo: {lines[0]}").count() == 1
        assert re.fullmatch(r"\d+ ms to read the photo, \d+ ms to caption it", page.inner_text("#time"))
    assert seen == {True, False}


@pytest.mark.slow
def test_a_photograph_given_while_the_captioner_loads_is_captioned(site, open_page):
    page = open_page(ready="")
    page.evaluate(GIVE, [CAT.name, "drop"])
    assert "cat" in said(page)[0]


@pytest.mark.slow
def test_what_cannot_be_captioned_is_said_in_one_sentence_and_the_page_goes_on(site, open_page, tmp_path):
    (tmp_path / "letter.jpg").write_bytes(b"Dear reader")
    page = open_page()
    (sentence,) = said(page, tmp_path / "letter.jpg")
    assert sentence.startswith("This browser cannot decode the photo letter.jpg, which is damaged, no image")
    assert sentence.endswith(": save it as JPEG or PNG, or choose another one.")
    assert not page.is_visible("#photo")
    for kind in ("paste", "drop"):
        page.evaluate(GIVE.replace("files.items.add(", "(() => {})("), ["cat.jpg", kind])
        assert re.match("The clipboard has no photo: copy|What was dropped is no file: save", said(page)[0])
    assert "cat" in said(page, CAT)[0] and page.is_visible("#photo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("captioner.tflite", "The captioner captioner.tflite has no readable captioner.json"),
        ("litert/litert_wasm_compat_internal.wasm", "The runtime cannot be loaded"),
        ("litert/index.js", "The runtime cannot be loaded"),
        ("captions.js", "Something went wrong"),
        ("resize.js", "Something went wrong"),
    ],
)
def test_a_page_that_is_not_complete_says_so(name, sentence, site, open_page):
    file = site.folder / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    if name == "resize.js":
        file.unlink()
    page = open_page(ready="")
    (message,) = said(page)
    assert message.startswith(sentence) and message.endswith("."), message
    assert said(page, CAT) == [message]


@pytest.mark.slow
def test_the_second_visit_needs_no_network_and_the_first_loads_each_file_once(
    site, open_page, record_property
):
    page = open_page()
    heavy = {path: size for path, size in site.sent.items() if size > 100_000}
    files = {
        f"/{file.relative_to(site.folder)}": file.stat().st_size
        for file in site.folder.rglob("*")
        if file.is_file()
    }
    assert heavy == {path: size for path, size in files.items() if size > 100_000}
    record_property("message", f"MEASURED first visit: {sum(site.sent.values()) / 1e6:.1f} MB")
    first = said(page, COFFEE)
    sent = dict(site.sent)
    page.context.set_offline(True)
    site.close()
    page.reload()
    page.get_by_text("Ready for a photo.").wait_for()
    assert said(page, COFFEE) == first
    assert site.sent == sent


@pytest.mark.slow
def test_a_new_version_of_the_page_replaces_the_kept_files(built, site, open_page):
    page = open_page()
    (before,) = page.evaluate("caches.keys()")
    page.evaluate("caches.open('of another page')")
    other = FIXTURES / "objects.tflite"
    build = [str(built / "web_demo" / "build.sh"), str(site.folder), str(other)]
    subprocess.run(build, check=True, capture_output=True)
    page.reload()
    assert page.evaluate(A_VERSION_WAITS)
    page.goto("about:blank")
    page.goto(site.url)
    page.get_by_text("Ready for a photo.").wait_for()
    now = page.evaluate("caches.keys()")
    assert len(now) == 2 and "of another page" in now and before not in now
    script = "caches.match('captioner.tflite').then((response) => response.blob()).then((blob) => blob.size)"
    assert page.evaluate(script) == other.stat().st_size


@pytest.mark.slow
def test_the_example_of_the_guide_runs(site, open_page):
    """With the files that the guide names."""
    guide = (REPOSITORY / "docs" / "browser.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```html\n(.*?)^```", guide, re.M | re.S)
    for name in ("index.html", "page.js", "page.css", "icon.svg", "service-worker.js"):
        (site.folder / name).unlink()
    head = '<!DOCTYPE html><link rel="icon" href="data:,">'
    (site.folder / "example.html").write_text(head + example, encoding="utf-8")
    page = open_page("example.html", ready="")
    page.wait_for_load_state("networkidle")
    page.set_input_files("input", ASTRONAUT)
    summary = TFLiteCaptioner(captioner_path("small")).generate(ASTRONAUT).summary()
    finished(page.get_by_role("status")).to_have_text(summary)
    page.set_input_files("input", REPOSITORY / "README.md")
    finished(page.get_by_role("status")).to_have_text(
        re.compile("^this browser cannot decode the photo README.md")
    )


@pytest.mark.slow
def test_axe_finds_no_violation(built, site, open_page, tmp_path):
    (tmp_path / "letter.jpg").write_bytes(b"Dear reader")
    page = open_page(**PHONE)
    page.evaluate((built / "web_demo/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8"))
    for photograph in (None, CAT, COFFEE, tmp_path / "letter.jpg"):
        said(page, photograph)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            report = page.evaluate("axe.run()")
            assert not [(rule["id"], rule["nodes"][0]["html"]) for rule in report["violations"]], theme
            assert "color-contrast" in {rule["id"] for rule in report["passes"]}
        assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.evaluate("document.querySelector('label').textContent = ''")
    assert "label" in {rule["id"] for rule in page.evaluate("axe.run()")["violations"]}


@pytest.mark.slow
def test_keyboards_and_screen_readers_can_use_the_page(site, open_page):
    page = open_page()
    page.keyboard.press("Tab")
    button = page.get_by_label("Choose a photo")
    assert button.evaluate("(input) => input === document.activeElement")
    assert (
        page.eval_on_selector("#choose + label", "(label) => getComputedStyle(label).outlineStyle") == "solid"
    )
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Space")
    chooser.value.set_files(CAT)
    assert "cat" in said(page)[0]
    status = page.get_by_role("status")
    assert "cat" in status.inner_text() and status.count() == 1
    # Only the live region speaks: the photo, its alternatives and times are read on request.
    assert page.locator("#result canvas, #result ol, #result #time").count() == 0
    assert not page.is_visible("#camera + label"), "a computer has no camera to point"


@pytest.mark.slow
def test_phones_offer_their_camera(site, open_page):
    page = open_page(**PHONE)
    camera = page.get_by_label("Take a photo")
    assert camera.get_attribute("capture") == "environment" and page.is_visible("#camera + label")
    camera.set_input_files(CAT)
    assert "cat" in said(page)[0]
