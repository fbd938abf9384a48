# test: uninstrumented
"""The documentation site (`make docs`), as far as it can be tested without a build of it.

Each page is in the navigation, and its lists mean the same on the forge and in the site. The
programs of scripts/docs do what they say on small planted inputs: the check of links finds what is
wrong, the filter marks comments for Doxygen, and links lead to where the site has a file.
"""

import pathlib
import re
import sys
import tempfile
import unittest

from documents_test import OfRules, pages
from tidy_test import CHECKOUT, ROOT, Tree

sys.path.insert(0, str(ROOT / "scripts/docs"))
sys.dont_write_bytecode = True

import check_links  # noqa: E402
import doxygen_comments  # noqa: E402
import hooks  # noqa: E402

CONFIGURATION = "mkdocs.yml"


# ---- navigation ---------------------------------------------------------------------------------

def navigation_is_complete(tree):
    """The navigation names each page of the site once, and no other."""
    text = tree.files.get(CONFIGURATION, "").partition("\nnav:\n")[2]
    named = re.findall(r"([\w/.-]+\.md)$", text, re.M)
    there = {hooks.MOVED.get(path, path.removeprefix("docs/")): path
             for path, _ in tree.named("*.md")
             if path in hooks.MOVED or path.startswith("docs/")}
    return ([f"{there[page]}:1: the navigation in {CONFIGURATION} does not name this page; add it"
             for page in there if page not in named]
            + [f"{CONFIGURATION}:1: '{page}' is named twice, or there is no such page"
               for page in sorted(set(named)) if page not in there or named.count(page) > 1])


# ---- lists --------------------------------------------------------------------------------------

ITEM = re.compile(r"(?:[-*+]|\d+\.) ")


def lists_are_plain(tree):
    """The forge and the site agree on where a list begins, and on what belongs to an item."""
    complaints = []
    for path, _, prose in pages(tree):
        before, block = "", ""  # the line before, and the first line of the block that has it
        for number, line in enumerate(prose.split("\n"), 1):
            text = line.lstrip(" ")
            indent = len(line) - len(text)
            nested = ITEM.match(text) or text.startswith(("|", "```", "~~~")) or not before
            if text and 0 < indent < 4 and nested:
                complaints.append(f"{path}:{number}: indent what belongs to an item of a list by "
                                  "four blanks")
            if ITEM.match(line) and before and (
                    block.startswith("    ") or not ITEM.match(block)):
                complaints.append(f"{path}:{number}: put an empty line before this item")
            block = line if not before else block
            before = text
    return complaints


RULES = [navigation_is_complete, lists_are_plain]

PLANTED = [
    (navigation_is_complete, {CONFIGURATION: "a: b\nnav:\n  - a.md\n", "docs/a.md": "",
                              "docs/design/b.md": ""}, "docs/design/b.md:1"),
    (navigation_is_complete, {CONFIGURATION: "a: b\nnav:\n", "README.md": ""}, "README.md:1"),
    (navigation_is_complete, {CONFIGURATION: "a: b\nnav:\n  - Gone: a.md\n"}, "mkdocs.yml:1"),
    (navigation_is_complete, {CONFIGURATION: "\nnav:\n  - a.md\n  - B: a.md\n", "docs/a.md": ""},
     "mkdocs.yml:1"),
    (lists_are_plain, {"a.md": "1. a:\n   - b\n"}, "a.md:2"),
    (lists_are_plain, {"a.md": "1. a\n\n   b\n"}, "a.md:3"),
    (lists_are_plain, {"a.md": "1. a\n   | b |\n"}, "a.md:2"),
    (lists_are_plain, {"a.md": "a\n- b\n"}, "a.md:2"),
    (lists_are_plain, {"a.md": "1. a\n\n    b\n2. c\n"}, "a.md:4"),
]

CLEAN = {
    CONFIGURATION: "theme: x.md\nnav:\n  - index.md\n  - A: a.md\n  - B:\n      - design/b.md\n",
    "README.md": "a\n\n- b\n  c\n- d\n\n1. e\n   f\n2. g:\n    - h\n      i\n    - j\n3. k\n\n"
                 "    l\n\n    | m |\n\n4. n - o\n",
    "docs/a.md": "```\na\n- b\n   - c\n```\n",
    "docs/design/b.md": "",
    "examples/c.md": "",
}


# ---- programs -----------------------------------------------------------------------------------

SITE = {
    "index.html": '<a href="a/b.html#x">1</a><a href="#y">2</a><p id="y"></p><img src="p.png">'
                  '<a href="https://example.org/a#b">3</a><a href="a/">4</a>',
    "a/b.html": '<h1 id="x"></h1><a href="../index.html?q=1#y">5</a>',
    "a/index.html": "",
    "p.png": "",
    "api/menudata.js": 'var m={url:"../index.html"}',
    "api/search/all_0.js": "[['../../a/b.html#x',1]]",
    "search/search_index.json": '{"docs": [{"location": "a/b.html#x"}]}',
}
WRONG = [
    ({"c.html": '<a href="gone.html">'}, "does not exist"),
    ({"c.html": '<img src="gone.png">'}, "does not exist"),
    ({"c.html": '<a href="a/b.html#gone">'}, "has no such anchor"),
    ({"c.html": '<a href="#gone">'}, "has no such anchor"),
    ({"c.html": '<a href="/a/b.html">'}, "is absolute"),
    ({"c.html": '<a href="../b.html">'}, "leaves the site"),
    ({"c.html": '<a href="https://example/a">'}, "is no address"),
    ({"c.html": '<a href="htp://example.org">'}, "is no address"),
    ({"api/menudata.js": 'var m={url:"gone.html"}'}, "does not exist"),
    ({"api/search/all_0.js": "[['../gone.html',1]]"}, "does not exist"),
    ({"search/search_index.json": '{"docs": [{"location": "a/b.html#z"}]}'}, "no such anchor"),
]

HEADER = """\
// Map<K, V>: a map.
//
//   map.put(1);
//
// Errors: none of `a<b>`.
#pragma once

namespace n {

// A map
// of @keys.
class Map {
 public:
  // Puts
  void put(int key) { f(key); }  // not described
  void put(long key);
  int size();  // how many

  int hidden();  // NOLINT
};
class Other {
  int a;
};
}  // namespace n
"""
CONVERTED = """\
/// @file map.h
/// Map\\<K, V\\>: a map.
///  @code{.cpp}
///   map.put(1);
///  @endcode\x20
/// <p><b>Errors:</b> none of <code>a\\<b\\></code>.

namespace n {

/// A map
/// of \\@keys.
class Map {
 public:
  /// Puts
  void put(int key) { f(key); }  ///< not described
/** Puts */   void put(long key);
  int size();  ///< how many

  int hidden();  // NOLINT
};
class Other {
  int a;
};
}  // namespace n
"""


class SiteTest(OfRules, unittest.TestCase):
    RULES, PLANTED, CLEAN = RULES, PLANTED, CLEAN

    def complaints_about(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check_links.check(pathlib.Path(folder))

    def test_links(self):
        self.assertEqual(self.complaints_about(SITE), ([], 9))
        for change, what in WRONG:
            with self.subTest(change=change):
                complaints, _ = self.complaints_about(SITE | change)
                self.assertEqual(len(complaints), 1, complaints)
                self.assertIn(what, complaints[0])

    def test_comments(self):
        converted = doxygen_comments.Header("map.h", HEADER).converted()
        self.assertEqual(converted.split("\n"), CONVERTED.split("\n"))

    def test_every_header_keeps_its_lines(self):
        for path, text in CHECKOUT.named("include/perdure/*.h"):
            converted = doxygen_comments.Header(pathlib.Path(path).name, text).converted()
            self.assertEqual(converted.count("\n"), text.count("\n"), path)

    def test_links_of_pages_are_moved(self):
        text = ("[a](docs/guide.md#x) [b]( LICENSE) `[c](docs/guide.md)` [d](https://a.org/b)\n"
                "```\n[e](docs/guide.md)\n```\n[f]: CHANGELOG.md\n[g](examples)\n")
        self.assertEqual(hooks.rewritten("README.md", text),
                         text.replace("(docs/guide.md#x", "(guide.md#x", 1)
                         .replace("LICENSE", "source/LICENSE.md")
                         .replace("CHANGELOG.md", "changelog.md")
                         .replace("(examples)", "(source/examples/index.md)"))
        self.assertEqual(hooks.rewritten("docs/benchmarks.md", "[a](../bench/results/report.json)"),
                         "[a](report.html)")
        self.assertEqual(hooks.rewritten("docs/design/heap.md", "[a](../../src/heap/heap.h#L1)"),
                         "[a](../source/src/heap/heap.h.md#L1)")


if __name__ == "__main__":
    unittest.main()
