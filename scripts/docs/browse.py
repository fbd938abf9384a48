#!/usr/bin/env python3
"""Opens the built site in Chromium without a window: browse.py [FOLDER], build/site by default.

Each page of the navigation and some of the reference are opened in the width of a phone, and the
pages of PICTURED in that of a desktop, too. A page fails if

- its title or a text that it must show is missing,
- a request fails, or goes to another host,
- a script reports an error on the console,
- something is wider than the screen, so that the page can be moved sideways.

The search must find a page. Pictures are in build/docs/screenshots.
"""

import functools
import http.server
import pathlib
import re
import sys
import threading

from playwright.sync_api import Error, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build/docs/screenshots"
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
# Name of the picture -> page, a part of its title, a text on it.
PICTURED = {
    "start": ("index.html", "perdure", "What survives what"),
    "guide": ("guide.html", "Guide", "Open a store or a pool"),
    "map": ("api/classperdure_1_1Map.html", "perdure::Map", "Inserts the key or replaces"),
    "c": ("api/c_8h.html", "c.h", "perdure_pool_open"),
    "report": ("report.html", "perdure: figures", "Beside the paper: PhaST"),
    "python": ("reference/python.html", "Python reference", "compare_and_set"),
}
# Pages that the navigation does not name.
OTHERS = ["api/index.html", "api/annotated.html", "api/classperdure_1_1Pool.html",
          "api/classperdure_1_1Store.html", "api/files.html", "api/mpi_8h.html",
          "source/src/index/phast/phast.h.html", "source/examples/index.html"]
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const end = e => Math.round(e.getBoundingClientRect().right);
  return [...document.querySelectorAll('body *')]
      .filter(e => end(e) > width + 1).sort((a, b) => end(b) - end(a)).slice(0, 3)
      .map(e => `${e.tagName.toLowerCase()}.${e.className} ends at ${end(e)} pixels`)
      .concat([`the page is ${document.documentElement.scrollWidth} pixels wide`]);
}"""


class Server(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/favicon.ico":  # browsers ask for it if a page names none
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


class Browser:
    """Opens pages and keeps what is wrong with them."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        self.complaints = []

    def page(self, width):
        """A new page that reports what goes wrong, in the given width."""
        size = WIDTHS[width]
        page = self.browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.on("console", lambda m: m.type in ("error", "warning") and
                self.complain(page, f"the console says: {m.text}"))
        page.on("pageerror", lambda error: self.complain(page, f"a script fails: {error}"))
        page.on("requestfailed", lambda r: self.complain(page, f"{r.url} cannot be loaded"))
        page.on("response", lambda r: r.status >= 400 and
                self.complain(page, f"{r.url} returns {r.status}"))
        page.on("request", lambda r: r.url.startswith((self.address, "data:", "blob:")) or
                self.complain(page, f"{r.url} is of another host"))
        return page

    def complain(self, page, what):
        place = page.url.removeprefix(self.address)
        self.complaints.append(f"{place} ({page.viewport_size['width']} pixels): {what}")

    def open(self, page, path, title="", text=""):
        page.goto(self.address + path, wait_until="load")
        page.wait_for_timeout(100)  # for what scripts load
        if not page.title() or title not in page.title():
            self.complain(page, f"the title is '{page.title()}', without '{title}'")
        if text not in page.inner_text("body"):
            self.complain(page, f"does not show '{text}'")
        for wide in page.evaluate(OVERFLOW):
            self.complain(page, wide)

    def search(self, page, word, expected):
        """Types a word into the search of the site. A result must lead to the page expected."""
        self.open(page, "index.html")
        page.click(".md-search__input")
        page.keyboard.type(word)
        try:
            page.wait_for_selector(f".md-search-result__link[href*='{expected}']", timeout=10000)
        except Error:
            self.complain(page, f"the search for '{word}' does not find {expected}")


def navigation():
    """The pages that mkdocs.yml names, as files of the site."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    return [page.replace(".md", ".html") for page in re.findall(r"([\w/.-]+\.md)$", text, re.M)]


def browse(browser):
    for width in WIDTHS:
        page = browser.page(width)
        for name, (path, title, text) in PICTURED.items():
            browser.open(page, path, title, text)
            page.screenshot(path=PICTURES / f"{name}-{width}.png")
        page.close()
    page = browser.page("phone")
    for path in navigation() + OTHERS:
        browser.open(page, path)
    page.close()
    page = browser.page("desktop")
    browser.search(page, "untrusted", "durability.html")
    page.screenshot(path=PICTURES / "search-desktop.png")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/site")
    if not (folder / "index.html").is_file():
        sys.exit(f"browse: there is no site in {folder}; make docs builds it")
    PICTURES.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Server, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        # Root needs --no-sandbox. The pages are our own.
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium",
                                              args=["--no-sandbox", "--disable-gpu"])
        browser = Browser(chromium, f"http://127.0.0.1:{server.server_port}/")
        browse(browser)
        chromium.close()
    for line in dict.fromkeys(browser.complaints):
        print(line)
    print(f"browse: {len(set(browser.complaints))} complaints; pictures are in {PICTURES}")
    sys.exit(1 if browser.complaints else 0)


if __name__ == "__main__":
    main()
