#!/usr/bin/env python3
"""Verifies the links of the built site: check_links.py [FOLDER], build/site by default.

Each link to a page, an anchor, a picture, a script or a style of the site must lead to one that
exists, also those in the menus and in the search index of Doxygen. Of a link to another site only
the form is verified.
"""

import html.parser
import json
import pathlib
import posixpath
import re
import sys
import urllib.parse

ATTRIBUTES = {("a", "href"), ("area", "href"), ("link", "href"), ("img", "src"), ("script", "src"),
              ("iframe", "src"), ("source", "src"), ("object", "data")}


class Page(html.parser.HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) in ATTRIBUTES:
                self.links.append((value or "", self.getpos()[0]))


def well_formed(url):
    """Whether a link to another site can be one."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "mailto":
        return bool(re.fullmatch(r"[^@\s]+@[\w-]+(\.[\w-]+)+", parts.path))
    return (parts.scheme in ("http", "https") and not re.search(r"\s", url)
            and bool(re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc)))


def links_of_scripts(path, text):
    """The links in the menus and the search index that scripts of Doxygen and of the theme read."""
    if path == "api/menudata.js":
        return re.findall(r'\burl:"([^"]+)"', text)
    if re.fullmatch(r"api/search/\w+\.js", path):
        return re.findall(r"'(\.\./[^']+)'", text)
    if path == "search/search_index.json":
        return ["../" + entry["location"] for entry in json.loads(text)["docs"]]
    return []


def read(folder):
    """path -> page, and the names of all files."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))
             if path.is_file()}
    pages = {}
    for name, path in files.items():
        if name.endswith(".html"):
            pages[name] = Page(path.read_text(encoding="utf-8"))
        elif name.endswith((".js", ".json")):
            page = Page("")
            page.links = [(link, 1) for link in
                          links_of_scripts(name, path.read_text(encoding="utf-8"))]
            pages[name] = page
    return pages, files


def complaint(link, name, pages, files):
    """What is wrong with a link in the page `name`, or None."""
    if re.match(r"(?:[a-z][a-z0-9+.-]*:|//)", link, re.I):
        return None if well_formed(link) else "is no address"
    target, _, anchor = link.partition("#")
    target = urllib.parse.unquote(target.partition("?")[0])
    if target.startswith("/"):
        return "is absolute"  # the site may be below a folder of a server
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
    if path.startswith("../"):
        return "leaves the site"
    if path not in files:
        path = posixpath.normpath(posixpath.join(path, "index.html"))
    if path not in files:
        return "does not exist"
    anchor = urllib.parse.unquote(anchor)
    if anchor and path.endswith(".html") and anchor not in pages[path].anchors:
        return "has no such anchor"
    return None


def check(folder):
    """Complaints about the site in a folder, and the number of its links."""
    pages, files = read(folder)
    complaints, count = [], 0
    for name, page in pages.items():
        for link, line in page.links:
            if link.startswith(("javascript:", "data:")):
                continue
            count += 1
            if wrong := complaint(link, name, pages, files):
                complaints.append(f"{name}:{line}: '{link}' {wrong}")
    return complaints, count


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")
    if not (folder / "index.html").is_file():
        sys.exit(f"check_links: there is no site in {folder}; make docs builds it")
    complaints, count = check(folder)
    for line in complaints:
        print(line)
    print(f"check_links: {count} links, {len(complaints)} of them wrong")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
