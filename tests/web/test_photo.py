"""Pixels of photographs in the browser, compared with Pillow's, and the photographs that are refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tfsparsecap.captioning.data.images import read_image

from ..captioning.data.test_images import P3, rgb_profile
from .conftest import MODULES_ONLY, PHOTOGRAPHS, REPOSITORY, finished, launch

# Images of all modes, formats and orientations, with Pillow's pixels.
FIXTURES = REPOSITORY / "android_demo/app/src/test/resources/captioner"
READ = """async (cases) => {
  const { readPhoto } = await import("/photo.js");
  const found = [];
  for (const [name, size] of cases) {
    const blob = await (await fetch(`/files/${name}`)).blob();
    try {
      found.push(Array.from((await readPhoto(new File([blob], name), size)).pixels));
    } catch (error) {
      found.push(`${error.name}: ${error.message}`);
    }
  }
  return found;
}"""

PREVIEW = """async (name) => {
  const { readPhoto } = await import("/photo.js");
  const { preview } = await readPhoto(await (await fetch(`/files/${name}`)).blob(), 64, 130);
  const context = new OffscreenCanvas(preview.width, preview.height).getContext("2d");
  context.drawImage(preview, 0, 0);
  const { data } = context.getImageData(0, 0, preview.width, preview.height);
  return [preview.width, preview.height, Array.from(data)];
}"""


def read(page, *cases: tuple[str, int]) -> list[np.ndarray]:
    """Pixels, int [size, size, 3], of files in `site.files`."""
    answers = page.evaluate(READ, cases)
    return [
        np.array(pixels, int).reshape(size, size, 3) for pixels, (_, size) in zip(answers, cases, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["scalings.json", "formats.json"])
def test_pixels_are_those_of_pillow(site, open_page, table):
    cases = json.loads((FIXTURES / table).read_text(encoding="utf-8"))
    site.files = FIXTURES
    pictures = read(open_page(*MODULES_ONLY), *((case["image"], case["side"]) for case in cases))
    for case, pixels in zip(cases, pictures, strict=True):
        with Image.open(FIXTURES / case["expected"]) as image:
            expected = np.asarray(image.convert("RGB"), int)
        assert np.abs(pixels - expected).max() <= case.get("error", 0), case


@pytest.mark.slow
def test_colours_with_a_profile_become_srgb(site, open_page, tmp_path):
    """Skia, which Chromium uses, and LittleCMS, which Pillow uses, round differently."""
    site.files, profile = tmp_path, rgb_profile(P3)
    with Image.open(PHOTOGRAPHS[0]) as image:
        image.resize((1000, 1200)).save(tmp_path / "reduced.jpg", icc_profile=profile)
        image.save(tmp_path / "whole.jpg", icc_profile=profile)
        image.save(tmp_path / "a.png", icc_profile=profile)
        image.save(tmp_path / "plain.png")
    names = ["reduced.jpg", "whole.jpg", "a.png"]
    for name, pixels in zip(
        names, read(open_page(*MODULES_ONLY), *((name, 224) for name in names)), strict=True
    ):
        error = np.abs(pixels - read_image(tmp_path / name, 224))
        assert error.max() <= 2 and error.mean() < 0.2, name
        assert np.abs(pixels - read_image(tmp_path / "plain.png", 224)).mean() > 1.5, name


@pytest.mark.slow
def test_browsers_without_a_scaling_decoder_read_nearly_the_same(site, open_page, tmp_path):
    site.files, exif = tmp_path, Image.Exif()
    exif[0x0112] = 6
    with Image.open(PHOTOGRAPHS[0]) as image:
        image.resize((2500, 2000)).save(tmp_path / "a.jpg", quality=95, exif=exif)
    page = open_page(*MODULES_ONLY)
    page.evaluate("delete globalThis.ImageDecoder")
    (pixels,) = read(page, ("a.jpg", 224))
    error = np.abs(pixels - read_image(tmp_path / "a.jpg", 224))
    assert 0 < error.mean() < 1 and error.max() < 20


@pytest.mark.slow
def test_previews_are_upright_and_at_most_as_large_as_asked(site, open_page, tmp_path):
    site.files, page = tmp_path, open_page(*MODULES_ONLY)
    for orientation, suffix in enumerate(("jpg", "webp", "png", "jpg", "webp", "jpg", "webp", "png"), 1):
        path, exif = tmp_path / f"{orientation}.{suffix}", Image.Exif()
        exif[0x0112] = orientation
        with Image.open(PHOTOGRAPHS[0]) as image:
            image.resize((520, 360)).save(path, exif=exif)
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
        width, height, pixels = page.evaluate(PREVIEW, path.name)
        assert (width, height) == ((90, 130) if orientation > 4 else (130, 90))
        preview = np.array(pixels, int).reshape(height, width, 4)[..., :3]
        assert np.abs(preview - np.asarray(upright.resize((width, height)), int)).mean() < 6, path.name


def cut(path: Path) -> bytes:
    content = path.read_bytes()
    return content[: len(content) // 2]


@pytest.mark.slow
def test_what_is_no_photograph_is_refused_in_one_sentence(site, open_page, tmp_path):
    site.files = tmp_path
    with Image.open(PHOTOGRAPHS[0]) as image:
        small = image.resize((300, 200))
        for suffix in ("jpg", "png", "webp", "gif", "bmp", "avif", "tiff"):
            small.save(tmp_path / f"whole.{suffix}")
        image.resize((2000, 1500)).save(tmp_path / "large.jpg")
    undecodable = (
        "this browser cannot decode the photo {}, which is damaged, no image, too large, or in a format"
    )
    files = {
        **{
            f"cut.{suffix}": cut(tmp_path / f"whole.{suffix}")
            for suffix in ("jpg", "png", "webp", "gif", "bmp", "avif")
        },
        "large_cut.jpg": cut(tmp_path / "large.jpg"),
        "header.jpg": (tmp_path / "large.jpg").read_bytes()[:300],
        "text.jpg": b"no photograph\n",
        "whole.tiff": (tmp_path / "whole.tiff").read_bytes(),
    }
    expected = dict.fromkeys(files, undecodable)
    files["empty.png"], expected["empty.png"] = b"", "the photo {} is empty (0 bytes): choose it again"
    # The header of a JPEG of 60,000 x 60,000 pixels.
    header = bytes.fromhex("ffd8ffc0000b08ea60ea6001011100")
    files["huge.jpg"], expected["huge.jpg"] = (
        header,
        "the photo {} has 3600 million pixels, and at most 178 million",
    )
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name, message in zip(
        files, open_page(*MODULES_ONLY).evaluate(READ, [(name, 64) for name in files]), strict=True
    ):
        assert isinstance(message, str), name
        assert message.startswith(f"CaptionerError: {expected[name].format(name)}"), message
        assert re.search(r": (save|choose|make) [^:\n]+$", message), message


@pytest.mark.slow
def test_fifty_megapixels_take_little_memory(site, open_page, browser, tmp_path, record_property):
    """JPEGs are decoded at an eighth of their size; of others, only the browser holds all pixels, 200 MB."""
    site.files = tmp_path
    with Image.open(PHOTOGRAPHS[0]) as image:
        large = image.resize((8660, 5774), Image.Resampling.NEAREST)
    large.save(tmp_path / "a.jpg")
    large.resize((800, 600)).save(tmp_path / "small.jpg")
    large.convert("L").save(tmp_path / "a.png", compress_level=1)
    for name, most in (("a.jpg", 100), ("a.png", 450)):
        fresh = launch(browser.browser_type)
        page = fresh.new_page()
        page.goto(f"{site.url}{MODULES_ONLY[0]}")
        read(page, ("small.jpg", 224))
        before = largest_renderer(fresh)
        (pixels,) = read(page, (name, 224))
        used = largest_renderer(fresh) - before
        record_property("message", f"MEASURED {name} of 50 megapixels: {used:.0f} MB")
        assert used < most
        assert np.array_equal(pixels, read_image(tmp_path / name, 224))
        fresh.close()


@pytest.mark.slow
def test_the_page_shows_fifty_megapixels_in_little_memory(site, browser, tmp_path, record_property):
    """The copy on the page is a small one."""
    with Image.open(PHOTOGRAPHS[0]) as image:
        image.resize((8660, 5774), Image.Resampling.NEAREST).save(tmp_path / "a.jpg")
    fresh = launch(browser.browser_type)
    page = fresh.new_page()
    page.goto(site.url)
    finished(page.locator("#sentence")).to_have_text("Ready for a photo.")
    before = largest_renderer(fresh)
    page.set_input_files("#choose", tmp_path / "a.jpg")
    finished(page.locator("#time")).to_contain_text("ms to caption it")
    used = largest_renderer(fresh)
    record_property("message", f"MEASURED page with 50 megapixels: {used:.0f} MB, without {before:.0f} MB")
    assert used < before + 100
    fresh.close()


def largest_renderer(browser) -> float:
    """The largest memory, in MB, that one of the browser's processes for pages has had."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    files = [Path(f"/proc/{process['id']}/status") for process in processes if process["type"] == "renderer"]
    peaks = [re.search(r"VmHWM:\s+(\d+) kB", file.read_text()) for file in files if file.exists()]
    return max(int(peak[1]) / 1024 for peak in peaks if peak)
