"""What the documents name exists: headings, files, tests, programs of tests, make targets.

Each rule is a function from a tree to complaints, as in tidy_test.py, and runs on the tree and on
planted mistakes. The changelog may name what is gone. tidy_test.py has the rule that the file of a
link exists.
"""

import fnmatch
import posixpath
import re
import unittest

from tidy_test import CHECKOUT, Tree, blank, line_of

CHANGELOG = "CHANGELOG.md"


def pages(tree):
    """Path and text of the documents, and of those without fenced blocks."""
    for path, text in tree.named("*.md"):
        yield path, text, re.sub(r"^(```|~~~).*?^\1", lambda m: blank(m[0]), text,
                                 flags=re.S | re.M)


# ---- headings -----------------------------------------------------------------------------------

def anchors(text):
    """The anchors that GitHub gives the headings of a page, and those that the page sets itself."""
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = 0
        while anchor in found:
            again += 1
            anchor = f"{base}-{again}"
        found.add(anchor)
    return found


def anchors_exist(tree):
    known = {path: anchors(text) for path, _, text in pages(tree)}
    complaints = []
    for path, _, text in pages(tree):
        text = re.sub(r"`[^`\n]*`", lambda m: blank(m[0]), text)
        for m in re.finditer(r"(?:\]\(\s*<?|^\[[^\]]+\]:\s*)(?![a-z]+:)([^)\s>#]*)#([^)\s>]+)",
                             text, re.M):
            page = posixpath.normpath(posixpath.join(posixpath.dirname(path), m[1] or
                                                     posixpath.basename(path)))
            if page in known and m[2] not in known[page]:
                complaints.append(f"{path}:{line_of(text, m.start())}: {page} has no heading with "
                                  f"the anchor '{m[2]}'; correct the link")
    return complaints


# ---- files --------------------------------------------------------------------------------------

# A path from the root. The look-behind excludes a part of a longer path, such as one below build/;
# the look-ahead, a path with a placeholder.
PATH = re.compile(r"(?<![\w./<>$*}-])(?:bench|cmake|docs|examples|fuzz|include|packaging|scripts"
                  r"|src|testing|tests|tools)/(?:[\w.*-]+/)*[\w.*-]*[\w*](?![\w/]*[<$])")
# In a document also the end of a path: `phast/write.h`, `layout.h`.
NAME = re.compile(r"(?<![\w./<>$*}:-])(?:\w+/)*\w+\.(?:h|cc|py|sh|go|def)\b")


def comments_of(path, line):
    """The part of a line of a program that may name files to a reader."""
    start = line.find("//" if path.endswith((".cc", ".h")) else "#")
    return line[start:] if start >= 0 else ""


def is_there(tree, path):
    """A file or a folder, a file without its extension, a decision's number, or a pattern."""
    return (tree.exists(path) or any(tree.exists(path + end) for end in (".cc", ".h", ".py"))
            or bool(re.fullmatch(r"docs/decisions/\d{4}", path)
                    and fnmatch.filter(tree.files, path + "-*"))
            or bool("*" in path and fnmatch.filter(tree.files, path)))


def named_files_exist(tree):
    ends = {path[m.end():] for path in tree.files for m in re.finditer(r"^|/", path)}
    complaints = []

    def complain(path, number, name):
        complaints.append(f"{path}:{number}: '{name}' does not exist; name what replaced it")

    for path, text in tree.named("*.md", "*.cc", "*.h", "*.py", "*.sh", "CMakeLists.txt",
                                 "Makefile"):
        if path == CHANGELOG or path.startswith("tests/tidy/"):  # it plants files
            continue
        document = path.endswith(".md")
        for number, line in enumerate(text.split("\n"), 1):
            for m in PATH.finditer(line if document else comments_of(path, line)):
                if not is_there(tree, m[0]):
                    complain(path, number, m[0])
            for m in NAME.finditer(line) if document else ():
                if m[0] not in ends:
                    complain(path, number, m[0])
    return complaints


# ---- tests --------------------------------------------------------------------------------------

def ctest_names(tree):
    """component/file of the tests, without the engine that may follow."""
    return {m[1] for path in tree.files
            if (m := re.fullmatch(r"tests/([a-z_]+/\w+_test)\.(?:c|cc|py)", path))}


def tests_of(tree):
    """suite -> names of its tests."""
    suites = {}
    for path, text in tree.named("*_test.cc"):
        for m in re.finditer(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)", text, re.M):
            suites.setdefault(m[1], set()).add(m[2])
    return suites


def named_tests_exist(tree):
    names, suites = ctest_names(tree), tests_of(tree)
    programs = {name.replace("/", "_") for name in names}
    complaints = []

    def complain(path, text, m, kind):
        complaints.append(f"{path}:{line_of(text, m.start())}: there is no {kind} '{m[1]}'; name "
                          "the one that replaced it")

    for path, text, prose in pages(tree):
        if path == CHANGELOG:
            continue
        for m in re.finditer(r"ctest [^`\n]*-R '?([^\s'`]+)", text):
            if not any(re.search(m[1].replace("$", r"(\.|$)"), name) for name in names):
                complain(path, text, m, "test that matches")
        for m in re.finditer(r"\btests/([a-z]+_\w+_test)\b", text):
            if m[1] not in programs:
                complain(path, text, m, "program of a test")
        # Suite.Name; for parameters Prefix/Suite.Name/Parameter and Suite/Type.Name.
        for m in re.finditer(r"`((?:[\w*]+/)?[A-Z]\w+(?:/[\w*]+)?\.[\w*]+)[/`]", prose):
            suite, name = m[1].split(".")
            found = [known for part in suite.split("/") for known in suites.get(part, ())]
            if not fnmatch.filter(found, name):
                complain(path, prose, m, "test")
    return complaints


def named_targets_exist(tree):
    known = {target for _, text in tree.named("Makefile")
             for target in re.findall(r"^([a-z-]+):", text, re.M)}
    complaints = []
    for path, text, _ in pages(tree):
        for m in re.finditer(r"(?:`|^)(?:[A-Z_]+=\S+ )?make ([a-z-]+)", text, re.M):
            if path != CHANGELOG and m[1] not in known:
                complaints.append(f"{path}:{line_of(text, m.start())}: the Makefile has no target "
                                  f"'{m[1]}'; name the one that replaced it")
    return complaints


RULES = [anchors_exist, named_files_exist, named_tests_exist, named_targets_exist]

# (rule, files, the place that the complaint must name)
PLANTED = [
    (anchors_exist, {"README.md": "# A\n[a](#b)\n"}, "README.md:2"),
    (anchors_exist, {"docs/a.md": "[b](b/c.md#one)\n", "docs/b/c.md": "## Two\n"}, "docs/a.md:1"),
    (anchors_exist, {"docs/a.md": "[b]: ../b.md#x-2\n", "b.md": "# X\n# X\n"}, "docs/a.md:1"),
    (anchors_exist, {"a.md": "```\n# X\n```\n[x](#x)\n"}, "a.md:4"),
    (named_files_exist, {"README.md": "See src/pool/a.h\n"}, "README.md:1"),
    (named_files_exist, {"README.md": "\n`layout.h`\n", "src/my_layout.h": ""}, "README.md:2"),
    (named_files_exist, {"README.md": "`phast/b.h`\n", "src/clevel/b.h": ""}, "README.md:1"),
    (named_files_exist, {"src/a.cc": "f();  // docs/b.md says why\n"}, "src/a.cc:1"),
    (named_files_exist, {"src/a.cc": "// docs/decisions/0007\n"}, "src/a.cc:1"),
    (named_files_exist, {"scripts/a.sh": "\n# see tests/b/*.py\n"}, "scripts/a.sh:2"),
    (named_tests_exist, {"a.md": "`ctest --preset release -R heap_unit_test`\n",
                         "tests/heap/unit_test.cc": ""}, "a.md:1"),
    (named_tests_exist, {"a.md": "\n    build/release/tests/heap_crash_test\n"}, "a.md:2"),
    (named_tests_exist, {"a.md": "`Heap.Frees`\n", "tests/heap/unit_test.cc": "TEST(Heap, Free)"},
     "a.md:1"),
    (named_tests_exist, {"a.md": "`Engines/Heap.G_*`\n"}, "a.md:1"),
    (named_targets_exist, {"a.md": "`make it`\n", "Makefile": "that:\n"}, "a.md:1"),
]

# Text that a careless rule would reject.
CLEAN = {
    "README.md": "# A `b`, c: d\n[a](#a-b-c-d) [b](docs/a.md#x-1) [c](https://example.org/a#b)\n"
                 "`[d](#nowhere)`, `src/heap`, `tests/heap/unit_test`, `heap/a.h`, `a.h`, `b.txt`\n"
                 "`docs/<page>.md`, `build/src/b`, `testing/*_x.cc`, `L.next`, `Heap.F*`, "
                 "`All/Heap.Frees/one`, `Heap/one.Frees`, `ctest -R '^heap/unit_test$'`\n"
                 "They make sense, `SEED=1 make test`\n",
    "docs/a.md": "## X\n## X\n<a id=\"y\"></a>[y](#y)\n```sh\nmake test\n./tests/heap_unit_test\n"
                 "```\n",
    "docs/decisions/0001-x.md": "",
    "src/heap/a.h": "// docs/decisions/0001, tests/heap/unit_test.cc\nf(\"docs/b.md\");\n",
    "testing/a_x.cc": "",
    "tests/heap/unit_test.cc": "TEST(Heap, Frees) {}\n",
    "Makefile": "test:\n",
    CHANGELOG: "`scripts/gone.sh`, `Heap.Gone`, `make nothing`\n",
}


class OfRules:
    """The tests of a list of rules. A class with them has RULES, PLANTED and CLEAN."""
    maxDiff = None

    def test_on_the_tree(self):
        for rule in self.RULES:
            with self.subTest(rule.__name__):
                if complaints := rule(CHECKOUT):
                    self.fail("\n" + "\n".join(complaints))

    def test_on_planted_mistakes(self):
        for rule, files, where in self.PLANTED:
            with self.subTest(rule.__name__, where=where, files=files):
                complaints = rule(Tree(files))
                self.assertTrue(any(c.startswith(where + ": ") for c in complaints), complaints)

    def test_on_clean_documents(self):
        for rule in self.RULES:
            with self.subTest(rule.__name__):
                self.assertEqual(rule(Tree(self.CLEAN)), [])


class DocumentsTest(OfRules, unittest.TestCase):
    RULES, PLANTED, CLEAN = RULES, PLANTED, CLEAN


if __name__ == "__main__":
    unittest.main()
