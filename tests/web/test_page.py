"""The page in a headless Chromium: photographs, messages, keyboard, screen readers, no network."""
import time
from PIL import Image
import numpy as np
import psutil
from .conftest import REPOSITORY

PHOTO = REPOSITORY / "docs/images/photographs/cat.jpg"


def test_y(site, open_page, built, browser, tmp_path):
    session = browser.new_browser_cdp_session()

    def memory():
        out = {}
        for p in session.send("SystemInfo.getProcessInfo")["processInfo"]:
            try:
                s = dict(l.split(":", 1) for l in open(f"/proc/{p['id']}/status"))
            except OSError:
                continue
            out[p["type"], p["id"]] = (int(s["VmHWM"].split()[0]) // 1024, int(s["VmRSS"].split()[0]) // 1024)
        return out

    with Image.open(PHOTO) as i:
        big = i.resize((8660, 5774), Image.BILINEAR)
    big.save(tmp_path / "big.jpg", quality=90)
    big.save(tmp_path / "big.png", compress_level=1)
    big.save(tmp_path / "big.webp", quality=50, method=0)
    for name in ("big.jpg", "big.png", "big.webp"):
        page = open_page()
        print(dict(site.sent))
        print("before", memory())
        page.set_input_files("#choose", PHOTO)
        page.get_by_text("ms to read").wait_for()
        print("one", memory())
        t = time.time()
        page.set_input_files("#choose", tmp_path / name)
        page.get_by_text("Describing").wait_for()
        page.get_by_text("ms to read").wait_for()
        page.wait_for_timeout(2000)
        print(name, time.time() - t, page.inner_text("main"))
        print("after", memory())
        page.context.close()
