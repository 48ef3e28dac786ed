"""The page as `make web` builds it, a server for it, and a headless Chromium that opens it."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tfsparsecap.captioning.captioners import captioner_path

from ..conftest import make_once

REPOSITORY = Path(__file__).resolve().parents[2]
PHOTOGRAPHS = sorted((REPOSITORY / "docs/images/photographs").glob("*.jpg"))
#: For `open_page`: a file of the site in place of the page, for tests that import its modules themselves.
MODULES_ONLY = ("LICENSE.txt", "")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def skip_or_fail(message: str) -> None:
    """Skips the calling test; fails it in continuous integration."""
    assert "TFSPARSECAP_REQUIRE_BROWSER" not in os.environ, message
    pytest.skip(message)


class Site:
    """A server of the page on this machine; what it sent is counted.

    Attributes:
        url: address of the page.
        folder: the built page.
        files: folder whose files are under `url`/files/.
        sent: bytes of the answers by path.
    """

    def __init__(self, folder: Path, files: Path):
        self.folder, self.files, self.sent = folder, files, Counter[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, site: Site, *arguments: Any):
        self._site = site
        super().__init__(*arguments, directory=str(site.folder))

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")  # as many servers of static files
        super().end_headers()

    def translate_path(self, path: str) -> str:
        if path.startswith("/files/"):
            return str(self._site.files / path.removeprefix("/files/"))
        return super().translate_path(path)

    def copyfile(self, source: Any, outputfile: Any) -> None:
        self._site.sent[self.path] += os.fstat(source.fileno()).st_size
        super().copyfile(source, outputfile)

    def log_message(self, *arguments: Any) -> None:
        pass


def finished(locator: Any) -> Any:
    """Playwright's assertions on an element, which wait for it."""
    from playwright.sync_api import expect

    return expect(locator)


@pytest.fixture(scope="session")
def built(shared_folder) -> Path:
    """A copy of the files that `make web` needs, with the page in `web_demo/build`. Do not write to it."""
    for tool, package in (("npm", "nodejs npm"), ("make", "make")):
        if shutil.which(tool) is None:
            skip_or_fail(f"building the page needs {tool}: apt-get install --no-install-recommends {package}")

    def make(copy: Path) -> None:
        ignored = shutil.ignore_patterns("build", "node_modules")
        shutil.copytree(REPOSITORY / "web_demo", copy / "web_demo", ignore=ignored)
        for name in ("Makefile", "LICENSE", captioner_path("good").relative_to(REPOSITORY)):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, copy / name)
        done = subprocess.run(["make", "web"], cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return make_once(shared_folder / "page", make)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium of this machine."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_or_fail("Playwright is not installed: run make setup")
    if not any(map(shutil.which, BROWSERS)):
        skip_or_fail("Chromium is not installed")
    with sync_playwright() as playwright:
        chromium = launch(playwright.chromium)
        yield chromium
        chromium.close()


def launch(chromium: Any) -> Any:
    """Starts the Chromium of this machine; `chromium` is Playwright's type of browsers."""
    path = next(filter(None, map(shutil.which, BROWSERS)))
    options = ["--disable-gpu"] if sys.platform == "linux" else []
    return chromium.launch(executable_path=path, args=options, chromium_sandbox=os.geteuid() != 0)


@pytest.fixture(scope="module")
def site(built, tmp_path_factory) -> Iterator[Site]:
    """The page; `site.files` is empty."""
    site = Site(built / "web_demo" / "build", tmp_path_factory.mktemp("files"))
    yield site
    site.close()


@pytest.fixture
def open_page(browser, site) -> Iterator[Callable[..., Any]]:
    """A function that opens the page in a browser without memory of earlier visits, and waits for a text.

    A script error, and a request to anything but the site, fails the test.
    """
    contexts, wrong = [], []

    def open_(path: str = "", ready: str = "Ready for a photo.", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        context.on("request", lambda request: wrong.append(request.url) if _leaves(request, site) else None)
        page.goto(site.url + path)
        if ready:
            page.get_by_text(ready).wait_for()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not wrong


def _leaves(request: Any, site: Site) -> bool:
    local = request.url.startswith((site.url, f"blob:{site.url}", "data:"))
    return not local or request.method != "GET"
