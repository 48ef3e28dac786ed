"""Screenshots and pages of text: kinds of `unusual_images`."""

import functools
import itertools
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.unusual_drawings import INK, Drawn, Random, grained, pick
from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS

_SYLLABLES = tuple(map("".join, itertools.product("bdfglmnprst", "aeiou", ("", "n", "r", "st"))))


@functools.cache
def _font(size: float) -> Any:
    return ImageFont.load_default(size)


def _words(random: Random, count: int) -> list[str]:
    """English function words between pronounceable others."""
    return [
        pick(random, FUNCTION_WORDS[:40])
        if random.random() < 0.4
        else "".join(pick(random, _SYLLABLES) for _ in range(random.integers(1, 4)))
        for _ in range(count)
    ]


def _title(random: Random, count: int = 2) -> str:
    return " ".join(_words(random, count)).title()


def _write(draw: ImageDraw.ImageDraw, x: float, y: float, text: str, size: float, fill: Any, at="la") -> None:
    draw.text((x, y), text, fill, _font(size), at)


def _paragraph(draw, random: Random, box: tuple[float, ...], size: float, fill: Any = INK) -> None:
    """Fills a box with lines of words, of which the last is shorter."""
    x0, y, x1, y1 = box
    font, first = _font(size), True
    while y + 1.4 * size <= y1:
        room, line = (x1 - x0) * (1 if y + 2.8 * size <= y1 else 0.6), ""
        while (room := room - font.getlength(word := f"{_words(random, 1)[0]} ")) > 0 or not line:
            line, first = line + (word.capitalize() if first else word), False
        draw.text((x0, y), line, fill, font)
        y += 1.4 * size


def _window(draw: ImageDraw.ImageDraw, random: Random, box: tuple[float, ...], ground: str, bar: str) -> None:
    """A window with a title, three buttons and a menu bar, 56 pixels high."""
    x0, y0, x1, _ = box
    draw.rectangle(box, ground, "#777777")
    draw.rectangle((x0, y0, x1, y0 + 28), bar)
    for number, colour in enumerate(("#ee5c54", "#f5bd3f", "#5ac24b")):
        draw.ellipse((x1 - 70 + 22 * number, y0 + 8, x1 - 57 + 22 * number, y0 + 21), colour)
    _write(draw, x0 + 10, y0 + 6, f"{_title(random)} - {_title(random, 1)}", 15, "#ffffff")
    draw.rectangle((x0, y0 + 29, x1, y0 + 55), "#e8e8e8")
    for number, name in enumerate(("File", "Edit", "View", "Tools", "Window", "Help")):
        _write(draw, x0 + 12 + 62 * number, y0 + 34, name, 15, INK)


def _editor(draw, random, width, height):
    _window(draw, random, (0, 0, width, height), "#1e1f26", "#33343d")
    draw.rectangle((0, 56, 46, height), "#282a33")
    deep = 0
    for number, y in enumerate(range(66, height - 20, 22), 1):
        _write(draw, 36, y, str(number), 15, "#6d7080", "ra")
        name, other = ("_".join(_words(random, count)) for count in (2, 1))
        choices = [
            ("def ", f"{name}({other}):", 1),
            ("for ", f"{other} in {name}:", 1),
            ("return ", name, -2),
        ]
        word, ending, deeper = pick(random, [*choices, (f"{name} = ", f"'{other}'", 0)])
        x = 58 + 30 * deep
        _write(draw, x, y, word, 16, "#d78cf0" if deeper else "#7db4f5")
        x += _font(16).getlength(word)
        _write(draw, x, y, ending, 16, "#d6d8e0" if deeper else "#9fd47c")
        deep = min(4, max(0, deep + deeper))


def _sheet(draw, random, width, height):
    _window(draw, random, (0, 0, width, height), "#ffffff", "#217346")
    for row, y in enumerate(range(56, height, 26)):
        draw.line((0, y, width, y), "#c4c4c4")
        for column, x in enumerate(range(40, width, 100)):
            draw.line((x, 56, x, height), "#c4c4c4")
            if row == 0:
                _write(draw, x + 50, y + 5, chr(65 + column % 26), 15, "#555555", "ma")
            elif column == 0 or row == 1:
                _write(draw, x + 6, y + 5, _title(random, 1)[:10], 15, INK)
            elif random.random() < 0.85:
                _write(draw, x + 94, y + 5, f"{random.uniform(0, 5000):,.2f}", 15, INK, "ra")
        _write(draw, 20, y + 5, str(row) if row else "", 15, "#555555", "ma")


def _chat(draw, random, width, height):
    draw.rectangle((0, 0, width, height), "#efe7dd")
    draw.rectangle((0, 0, width, 70), "#117a66")
    draw.ellipse((14, 16, 54, 56), "#d9d9d9")
    _write(draw, 66, 22, _title(random), 22, "#ffffff")
    y = 90
    while y < height - 90:
        mine, lines = random.random() < 0.5, int(random.integers(1, 4))
        wide = width * random.uniform(0.45, 0.7)
        x = width - wide - 14 if mine else 14
        draw.rounded_rectangle((x, y, x + wide, y + 26 + 24 * lines), 12, "#d9f7c4" if mine else "#ffffff")
        _paragraph(draw, random, (x + 12, y + 8, x + wide - 12, y + 14 + 24 * lines), 17)
        y += 40 + 24 * lines
    draw.rectangle((0, height - 56, width, height), "#f7f7f7")
    draw.rounded_rectangle((12, height - 48, width - 70, height - 8), 20, "#ffffff", "#cccccc")
    _write(draw, 30, height - 38, "Message", 17, "#999999")
    draw.ellipse((width - 56, height - 50, width - 12, height - 6), "#117a66")


def _map(draw, random, width, height):
    draw.rectangle((0, 0, width, height), "#ebe7df")
    for _ in range(4):
        x, y, size = random.uniform(0, width), random.uniform(0, height), random.uniform(60, 170)
        draw.rectangle((x, y, x + 1.4 * size, y + size), "#c5e3b3")
    xs = np.linspace(-50, width + 50, 30)
    river = 0.3 * height + 0.25 * height * np.sin(xs / width * 4 + random.uniform(0, 6))
    draw.line(list(zip(xs, river, strict=True)), "#a4cdf0", 40, "curve")
    tilt = random.uniform(-0.3, 0.3)
    for line, colour in ((12, "#c9c3b8"), (9, "#ffffff")):
        for x in range(-300, width + 300, 85):
            draw.line((x, 0, x + tilt * height, height), colour, line)
        for y in range(-300, height + 300, 75):
            draw.line((0, y, width, y - tilt * width), colour, line)
    draw.line((0, 0.75 * height, width, 0.35 * height), "#f2b84b", 16)
    for _ in range(12):
        x, y = random.uniform(0, width), random.uniform(0, height)
        _write(draw, x, y, f"{_title(random, 1)} St", 15, "#555555")
    x, y = 0.55 * width, 0.5 * height
    draw.polygon([(x, y), (x - 15, y - 34), (x + 15, y - 34)], "#e0352b")
    draw.ellipse((x - 18, y - 58, x + 18, y - 22), "#e0352b")
    draw.ellipse((x - 7, y - 47, x + 7, y - 33), "#ffffff")
    draw.rounded_rectangle((16, 16, min(width - 16, 340), 58), 8, "#ffffff", "#bbbbbb")
    _write(draw, 30, 27, f"Search {_title(random)}", 17, "#777777")


def _plot(draw, random, width, height):
    draw.rectangle((0, 0, width, height), "#ffffff")
    _write(draw, width / 2, 18, _title(random, 3), 24, INK, "ma")
    left, right, top, bottom = 80, width - 40, 70, height - 70
    for part in np.linspace(0, 1, 6):
        y = bottom - part * (bottom - top)
        draw.line((left, y, right, y), "#dddddd")
        _write(draw, left - 10, y, f"{100 * part:.0f}", 16, INK, "rm")
    places = np.linspace(left, right, 14)[1:-1]
    bars = random.random() < 0.5
    for colour in ("#3b74d1", "#e07b2c", "#3f9b3a")[: 1 if bars else 3]:
        values = np.clip(random.uniform(0.3, 0.6) + np.cumsum(random.normal(0, 0.12, len(places))), 0.05, 1)
        heights = bottom - values * (bottom - top)
        if bars:
            for x, y in zip(places, heights, strict=True):
                draw.rectangle((x - 15, y, x + 15, bottom), colour)
        else:
            draw.line(list(zip(places, heights, strict=True)), colour, 4, "curve")
    draw.line((left, top, left, bottom, right, bottom), INK, 3)
    for number, x in enumerate(places):
        _write(draw, x, bottom + 10, str(2010 + number), 15, INK, "ma")


def _desktop(draw, random, width, height):
    for y in range(height):
        draw.line((0, y, width, y), (30, 80 + y * 60 // height, 140 + y * 80 // height))
    for row in range(5):
        colour = pick(random, ["#f5c84b", "#ffffff", "#7fc97f"])
        draw.rounded_rectangle((24, 24 + 90 * row, 68, 62 + 90 * row), 6, colour)
        _write(draw, 46, 66 + 90 * row, _title(random, 1)[:8], 14, "#ffffff", "ma")
    for part in (0.0, 0.22):
        x, y = width * (0.16 + part), height * (0.08 + part)
        _window(draw, random, (x, y, x + 0.56 * width, y + 0.55 * height), "#ffffff", "#2f5d9b")
        _paragraph(draw, random, (x + 20, y + 70, x + 0.5 * width, y + 0.52 * height), 16)
    x, y = width * 0.38 + 74, height * 0.3 + 56
    draw.rectangle((x, y, x + 190, y + 200), "#f6f6f6", "#888888")
    for number, name in enumerate(("Undo", "Cut", "Copy", "Paste", "Find", "Select all")):
        top = y + 4 + 32 * number
        draw.rectangle((x + 2, top, x + 188, top + 30), "#cfe2fa" if number == 2 else None)
        _write(draw, x + 14, top + 6, name, 16, INK)
    draw.rectangle((0, height - 40, width, height), "#20242c")
    _write(draw, width - 16, height - 30, "10:42 AM", 16, "#ffffff", "ra")


# What each shows, in three ways.
_SCREENS: dict[Any, tuple[str, ...]] = {
    _editor: ("text editor with code", "computer screen with lines of program code",
        "dark window with colorful text"),
    _sheet: ("spreadsheet", "computer screen with a table of numbers",
        "window with rows and columns of numbers"),
    _chat: ("chat on a cell phone", "phone screen with text messages",
        "conversation with green and white bubbles"),
    _map: ("map of a city", "street map with roads, a river and green parks",
        "map with a red pin on a screen"),
    _plot: ("graph of numbers over years", "chart with blue bars or colorful lines",
        "plot of data on a white screen"),
    _desktop: ("computer desktop with windows", "blue computer screen with icons and a menu",
        "desktop with open programs"),
}  # fmt: skip


def screenshot(number: int, random: Random) -> Drawn:
    """Editors, tables, chats, maps, plots and desktops."""
    function, shown = tuple(_SCREENS.items())[number % len(_SCREENS)]
    sizes = [(540, 960), (480, 1000)] if function is _chat else [(960, 600), (1024, 768), (1200, 680)]
    image = Image.new("RGB", pick(random, sizes))
    function(ImageDraw.Draw(image), random, *image.size)
    texts = [f"a screenshot of a {shown[0]}", "a picture of a screen with text"]
    return image, texts + [f"a {text}" for text in shown]


# Pages of text.
def _scribble(draw, random, x: float, y: float, size: float, letters: int) -> float:
    """A word in illegible handwriting; returns where it ends."""
    t = np.linspace(0, letters, 14 * letters)
    tall = np.repeat(np.where(random.random(letters) < 0.25, 2.2, 0.8 + 0.4 * random.random(letters)), 14)
    ys = y - 0.3 * size * tall * (1 - np.cos(2 * np.pi * t))
    xs = x + 0.5 * size * t + 0.3 * size * np.sin(2 * np.pi * t) + 0.35 * (y - ys)
    draw.line(list(zip(xs, ys, strict=True)), "#20307a", 2, "curve")
    return float(x + 0.5 * size * letters)


def _note(draw, random, width, height):
    for y in range(90, height, 44):
        draw.line((0, y, width, y), "#9db7d9", 2)
        x = 90.0
        while y < height - 60 and x < width - 160:
            x = _scribble(draw, random, x, y - 4, 22, int(random.integers(2, 8))) + 20
    draw.line((70, 0, 70, height), "#e08a8a", 2)


def _letter(draw, random, width, height):
    _write(draw, width - 70, 70, f"{_title(random, 1)} 12, 2019", 20, INK, "ra")
    for row in range(3):
        _write(draw, 70, 70 + 28 * row, _title(random), 20, INK)
    _write(draw, 70, 210, f"Dear {_title(random, 1)},", 21, INK)
    for y in (260, 260 + (height - 480) / 2):
        _paragraph(draw, random, (70, y, width - 70, y + (height - 520) / 2), 20)
    _write(draw, 70, height - 190, "Sincerely,", 21, INK)
    _scribble(draw, random, 80, height - 100, 34, 6)


def _book(draw, random, width, height):
    for left, page in ((50, 86), (width / 2 + 40, 87)):
        right = left + width / 2 - 90
        _write(draw, (left + right) / 2, 40, f"CHAPTER {page - 80}", 19, INK, "ma")
        for y in (90, 90 + (height - 160) / 2):
            _paragraph(draw, random, (left, y, right, y + (height - 190) / 2), 18)
        _write(draw, (left + right) / 2, height - 50, str(page), 17, INK, "ma")
    for x in range(36):
        draw.line((width / 2 - 18 + x, 0, width / 2 - 18 + x, height), (150 + 5 * abs(x - 18),) * 3)


def _receipt(draw, random, width, height):
    _write(draw, width / 2, 40, f"{_title(random, 1)} MARKET".upper(), 34, INK, "ma")
    _write(draw, width / 2, 90, f"{random.integers(9, 99)} {_title(random, 1)} Street", 20, INK, "ma")
    total, y = 0.0, 150
    while y < height - 260:
        price = random.uniform(0.5, 30)
        total += price
        _write(draw, 36, y, " ".join(_words(random, 2)).upper()[:18], 22, INK)
        _write(draw, width - 36, y, f"{price:.2f}", 22, INK, "ra")
        y += 32
    draw.line((36, y + 4, width - 36, y + 4), INK, 2)
    _write(draw, 36, y + 16, "TOTAL", 32, INK)
    _write(draw, width - 36, y + 16, f"${total:.2f}", 32, INK, "ra")
    for x in np.cumsum(random.integers(4, 12, 60)):
        if 50 + x < width - 50:
            draw.line((50 + x, y + 80, 50 + x, y + 150), INK, int(random.integers(1, 5)))
    _write(draw, width / 2, y + 170, "THANK YOU", 24, INK, "ma")


def _newspaper(draw, random, width, height):
    _write(draw, width / 2, 26, f"The {_title(random, 1)} Times", 62, INK, "ma")
    draw.line((40, 106, width - 40, 106), INK, 3)
    _write(draw, 40, 120, _title(random, 9)[:38], 40, INK)
    step = (width - 80) / 4
    for column in range(4):
        x, y = 40 + column * step, 190
        if column in (1, 2):
            y += 240
        for start in np.linspace(y, height - 40, 4)[:-1]:
            _paragraph(draw, random, (x, start, x + step - 22, start + (height - 40 - y) / 3 - 12), 15)
    picture = Image.fromarray(random.integers(60, 200, (5, 9), np.uint8))
    picture = picture.resize((int(2 * step - 22), 225), Image.Resampling.BICUBIC)
    draw.bitmap((int(40 + step), 192), picture, INK)


# Its size, and what each shows, in three ways.
_PAGES: dict[Any, tuple[Any, ...]] = {
    _letter: ((850, 1100), "printed letter on white paper", "typed letter with a signature",
        "document with paragraphs of black words"),
    _book: ((1200, 800), "book that is open", "book with two pages of printed words",
        "pages of a book with chapters"),
    _receipt: ((480, 1000), "receipt from a store", "paper bill with a list of prices and a total",
        "long white shopping receipt"),
    _newspaper: ((1000, 1250), "newspaper", "page of a newspaper with a headline and columns",
        "front page with articles and a photo"),
    _note: ((800, 1000), "handwritten note on lined paper", "piece of paper with handwriting in blue ink",
        "notebook page"),
}  # fmt: skip


def page(number: int, random: Random) -> Drawn:
    """Letters, books, receipts, newspapers and handwriting: every other one lies on a table."""
    function, (size, *shown) = tuple(_PAGES.items())[number % len(_PAGES)]
    paper = "#e9e6dc" if function is _newspaper else pick(random, ["#fdfdfb", "#f8f3e4", "#f2f2ef"])
    sheet = Image.new("RGB", size, paper)
    function(ImageDraw.Draw(sheet), random, *size)
    texts = ["a page of text", "a sheet of paper with printed text on it", *(f"a {text}" for text in shown)]
    return grained(_on_table(sheet, random) if number % 2 else sheet, random, 5), texts


def _on_table(sheet: Image.Image, random: Random) -> Image.Image:
    """A photograph of the sheet, askew on a table, in light from the left."""
    around, angle = 130, random.uniform(-9, 9)
    wood = pick(random, ["#8a6241", "#5d4430", "#9a9a98", "#3e5163"])
    table = Image.new("RGB", (sheet.width + 2 * around, sheet.height + 2 * around), wood)
    grain = np.clip(random.normal(128, 16, (table.height // 8, 6)), 0, 255).astype(np.uint8)
    table = Image.blend(table, Image.fromarray(grain).resize(table.size).convert("RGB"), 0.25)
    placed = Image.new("RGBA", table.size)
    placed.paste(sheet, (around, around))
    placed = placed.rotate(angle, Image.Resampling.BICUBIC)
    mask = placed.getchannel("A")
    table.paste("#000000", (10, 14), mask.filter(ImageFilter.BoxBlur(16)).point(lambda value: 0.6 * value))
    table.paste(placed.convert("RGB"), mask=mask)
    light = np.linspace(1, random.uniform(0.6, 0.8), table.width)[None, :, None]
    return Image.fromarray((np.asarray(table) * light).astype(np.uint8))
