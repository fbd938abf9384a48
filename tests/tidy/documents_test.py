# test: uninstrumented
"""What the documents name exists: headings, files, tests, programs, make targets, commands, options
and statuses.

Each rule is a function from a tree to complaints, as in tidy_test.py, and runs on the tree and on
planted mistakes. The changelog may name what is gone. tidy_test.py has the rule that the file of a
link exists.
"""

import fnmatch
import posixpath
import re
import unittest

from tidy_test import CHECKOUT, Tree, blank, line_of, without_comments

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
PATH = re.compile(r"(?<![\w./<>$*}-])(?:bench|cmake|docs|evaluation|examples|fuzz|include|packaging"
                  r"|python|scripts|src|testing|tests|tools)/(?:[\w.*-]+/)*[\w.*-]*[\w*]"
                  r"(?![\w/]*[<$])")
# In a document or a header also the end of a path: `phast/write.h`, `layout.h`.
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
        for number, line in enumerate(text.split("\n"), 1):
            if not path.endswith(".md"):
                line = comments_of(path, line)
            for m in PATH.finditer(line):
                if not is_there(tree, m[0]):
                    complain(path, number, m[0])
            for m in NAME.finditer(line) if path.endswith((".md", ".h")) else ():
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


def no_such(path, text, position, kind, name):
    return (f"{path}:{line_of(text, position)}: there is no {kind} '{name}'; name the one that is "
            "meant")


def named_tests_exist(tree):
    names, suites = ctest_names(tree), tests_of(tree)
    programs = {name.replace("/", "_") for name in names}
    complaints = []

    def complain(path, text, m, kind):
        complaints.append(no_such(path, text, m.start(), kind, m[1]))

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
    texts = [(path, text) for path, text, _ in pages(tree)]
    texts += [(path, "\n".join(comments_of(path, line) for line in text.split("\n")))
              for path, text in tree.named("*.cc", "*.h") if not path.startswith("tests/tidy/")]
    for path, text in texts:
        for m in re.finditer(r"(?:`|^|&& |sudo )(?:[A-Z_]+=\S+ )?make ([a-z-]+)", text, re.M):
            if path != CHANGELOG and m[1] not in known:
                complaints.append(f"{path}:{line_of(text, m.start())}: the Makefile has no target "
                                  f"'{m[1]}'; name the one that replaced it")
    return complaints


# ---- programs -----------------------------------------------------------------------------------

def named_programs_exist(tree):
    """Presets of CMake, and programs below build/<preset>."""
    presets = {name for _, text in tree.named("CMakePresets.json")
               for name in re.findall(r'"name": "([\w-]+)"', text)}
    lists = tree.named("CMakeLists.txt")
    programs = {name for _, text in lists for name in re.findall(r"OUTPUT_NAME ([\w-]+)", text)}
    # perdure-paper-${name}: the name is a word of that list.
    programs |= {before + word.replace("_", "-") for _, text in lists
                 for before in re.findall(r"OUTPUT_NAME ([\w-]+)\$\{", text)
                 for word in re.findall(r"\w+", text)}
    complaints = []
    for path, text, _ in pages(tree):
        for m in re.finditer(r"(?:cmake|ctest)[^`\n&|]*? --preset[= ]([\w-]+)", text):
            if path != CHANGELOG and m[1] not in presets:
                complaints.append(f"{path}:{line_of(text, m.start())}: CMakePresets.json has no "
                                  f"preset '{m[1]}'; name the one that replaced it")
        for m in re.finditer(r"\bbuild/([a-z-]+)/(?:testing/)?(perdure(?:-\w+)*)(?![\w./-])", text):
            if path != CHANGELOG and not (m[1] in presets and m[2] in programs):
                complaints.append(f"{path}:{line_of(text, m.start())}: no target builds '{m[0]}'; "
                                  "name the program that replaced it")
    return complaints


# ---- commands and options -----------------------------------------------------------------------

GUIDE = "docs/guide.md"
# Options of other programs that the documents name alone.
FOREIGN = {"--bind-to", "--libs", "--mca", "--num", "--preload", "--reads", "--rm", "--shm-size",
           "--static"}
REGISTERED = re.compile(r'\b(?:add|add_subcommand|add_command)\(\s*(?:app, action, )?"([a-z]+)"')
PROGRAM = re.compile(r"(?:^|(?<!install)[\s/(])"
                     r"(perdure(?:-[a-z]+)*|scripts/[\w/]+\.(?:py|sh))(?=\s)(.*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def commands(tree):
    """name -> file that registers the command of `perdure`."""
    return {m[1]: path for path, code in tree.cpp("tools/") for m in REGISTERED.finditer(code)}


def commands_are_listed(tree):
    """The table of commands in the guide has the commands of the command line."""
    text, known = tree.files.get(GUIDE, ""), commands(tree)
    section = re.search(r"^## The command line$.*?^\| Command \|.*?(?=\n\n|\Z)", text, re.S | re.M)
    if section is None:
        return [f"{GUIDE}:1: 'The command line' has no table of commands"] if known else []
    listed = {m[1]: line_of(text, section.start() + m.start())
              for m in re.finditer(r"^\| `([a-z]+)[ `]", section[0], re.M)}
    return ([f"{GUIDE}:{listed[name]}: tools/ has no command '{name}'; correct the table"
             for name in sorted(listed.keys() - known.keys())]
            + [f"{known[name]}:1: the table of commands in {GUIDE} lacks '{name}'; describe it"
               for name in sorted(known.keys() - listed.keys())])


def pieces_of_code(text, prose):
    """(line, code) of the lines of a page's blocks, and of its spans."""
    for m in re.finditer(r"^(```|~~~)[^\n]*\n(.*?)^\1", text, re.S | re.M):
        block = re.sub(r"\\\n", lambda end: "  ", m[2])  # continued lines
        for start in re.finditer(r"[^\n]+", block):
            yield line_of(text, m.start(2) + start.start()), start[0]
    for m in re.finditer(r"`([^`\n]+(?:\n[^`\n]+)?)`", prose):
        yield line_of(prose, m.start()), m[1].replace("\n", " ")


def options_in(path, text):
    """The options that a source has as literals; those of a shell script or a tester, anywhere."""
    if path.endswith(".sh") or path.startswith("testing/"):
        return set(OPTION.findall(text))
    return set(re.findall(r"""["'](?:-\w,)?(--[a-z][a-z-]*)(?=["'=])""", text))


def sources_of(program, rest, registered):
    """What the paths of the files begin with that define the options of a program."""
    if program.startswith("scripts/"):
        return (program,)
    if program != "perdure":
        of_bench = re.match(r"perdure-(?:mpi|compare|buffered|paper)", program)
        return ("bench/", "evaluation/") if of_bench else ("testing/",)
    word = re.match(r"\s*([a-z]*)", rest)[1]
    if word == "bench":
        return ("bench/harness/",)
    return (registered[word], "tools/common.cc") if word in registered else ("tools/",)


def named_options_exist(tree):
    """An option behind a program is one of that program; one that stands alone, of any."""
    known = {path: options_in(path, text) | {"--help"}
             for path, text in tree.named("*.cc", "*.h", "*.py", "*.sh")
             if not path.startswith("tests/tidy/")}
    every = FOREIGN.union(*known.values())
    registered = commands(tree)
    complaints = []
    for path, text, prose in pages(tree):
        if path == CHANGELOG:
            continue
        for line, code in pieces_of_code(text, prose):
            if code.startswith("--"):
                complaints += [f"{path}:{line}: no program has the option '{option}'; correct it"
                               for option in OPTION.findall(code) if option not in every]
            for part in re.split(r"\s\|\s|&&|;|\s#\s|\s--\s", code):
                if not (m := PROGRAM.search(part)):
                    continue
                sources = sources_of(m[1], m[2], registered)
                options = set().union(*(named for source, named in known.items()
                                        if source.startswith(sources)))
                command = " ".join(m[0].split()[:2])
                complaints += [f"{path}:{line}: '{command}' has no option '{option}'; correct it"
                               for option in OPTION.findall(m[2]) if option not in options]
    return complaints


# ---- statuses -----------------------------------------------------------------------------------

STATUS = "include/perdure/status.h"
FAILS = re.compile(r"\b(?:(?:[Ff]ail|[Rr]efus|[Ee]nd)\w*\s+with|[Rr]eturns?)\s+"
                   r"(`[a-z_]+`(?:(?:,|,? or)\s+`[a-z_]+`)*)")


def named_statuses_exist(tree):
    header = without_comments(tree.files.get(STATUS, ""))
    codes = set(re.findall(r"^  (\w+)", header.partition("enum class StatusCode")[2]
                           .partition("}")[0], re.M))
    if not codes:
        return [f"{STATUS}:1: StatusCode has no names"] if header else []
    constants = {name for path, text in tree.files.items()
                 if not path.endswith(".md") and not path.startswith("tests/tidy/")
                 for name in re.findall(r"\bPERDURE_[A-Z_]+\b", text)}
    complaints = []

    def complain(path, text, position, name, kind="status"):
        complaints.append(no_such(path, text, position, kind, name))

    for path, text, prose in pages(tree):
        if path == CHANGELOG:
            continue
        for m in re.finditer(r"\bStatusCode::(\w+)", text):
            if m[1] not in codes:
                complain(path, text, m.start(), m[1])
        for m in re.finditer(r"\bPERDURE_[A-Z_]+\b(?!\.)", text):
            if m[0] not in constants:
                complain(path, text, m.start(), m[0], "constant")
        for m in FAILS.finditer(prose):
            for name in re.findall(r"`(\w+)`", m[1]):
                if name not in codes | {"true", "false"}:
                    complain(path, prose, m.start(), name)
        for table in re.finditer(r"^\| Codes? \|.*\n(?:\|.*\n)*", prose, re.M):
            rows = re.finditer(r"^\|([^|]*)\|", table[0], re.M)
            named = {name: table.start() + row.start()
                     for row in rows
                     for name in re.findall(r"`(\w+)`", re.split(r" (?:from|of) ", row[1])[0])}
            for name in sorted(named.keys() - codes):
                complain(path, prose, named[name], name)
            if path == GUIDE and table[0].startswith("| Code |"):
                complaints += [f"{path}:{line_of(prose, table.start())}: the table of codes lacks "
                               f"'{name}'" for name in sorted(codes - named.keys())]
    return complaints



RULES = [anchors_exist, named_files_exist, named_tests_exist, named_targets_exist,
         named_programs_exist, commands_are_listed, named_options_exist, named_statuses_exist]

PRESETS = {"CMakePresets.json": '{"name": "release"}',
           "CMakeLists.txt": "set(OUTPUT_NAME perdure-guard)\nset(OUTPUT_NAME perdure-paper-${n})\n"
                             "f(hash)\n"}
TOOLS = {"tools/a.cc": 'app.add_subcommand("get", "help");\n'
                       'c->add_flag("--deep", a, "as --shallow");\n',
         "tools/common.cc": 'c.add_flag("-j,--json", a, "b");\n',
         "bench/harness/a.cc": 'app.add_option("--seed", a, "b");\n',
         "scripts/a.py": "p.add_argument('--only')\n"}
TABLE = "## The command line\n\n| Command | Does |\n|---|---|\n"
STATUSES = {STATUS: "enum class StatusCode : int {\n  ok = 0,  // a\n  busy,\n};\n",
            "include/perdure/c.h": "PERDURE_BUSY = 1,\n"}

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
    (named_targets_exist, {"a.md": "\ncd b && make it\n", "Makefile": "that:\n"}, "a.md:2"),
    (named_targets_exist, {"src/a.h": "\n// `make it` says so\n", "Makefile": "that:\n"},
     "src/a.h:2"),
    (named_files_exist, {"src/a.h": "// as b.h\n", "src/bb.h": ""}, "src/a.h:1"),
    (named_files_exist, {"a.md": "\n`python/a.pyi`\n"}, "a.md:2"),
    (named_programs_exist, PRESETS | {"a.md": "`ctest --preset debug -R a`\n"}, "a.md:1"),
    (named_programs_exist, PRESETS | {"a.md": "`cmake --preset a && cmake --preset release`\n"},
     "a.md:1"),
    (named_programs_exist, PRESETS | {"a.md": "`build/debug/perdure-guard`\n"}, "a.md:1"),
    (named_programs_exist, PRESETS | {"a.md": "\nbuild/release/perdure-gard\n"}, "a.md:2"),
    (named_programs_exist, PRESETS | {"a.md": "build/release/perdure-paper-tree x\n"}, "a.md:1"),
    (commands_are_listed, TOOLS | {GUIDE: TABLE + "| `get PATH` | |\n| `put PATH` | |\n"},
     GUIDE + ":6"),
    (commands_are_listed, TOOLS | {GUIDE: TABLE}, "tools/a.cc:1"),
    (commands_are_listed, TOOLS | {GUIDE: "## Commands\n| Command |\n| `get` |\n"}, GUIDE + ":1"),
    (named_options_exist, TOOLS | {"a.md": "\n`perdure get FILE --depp`\n"}, "a.md:2"),
    (named_options_exist, TOOLS | {"a.md": "`perdure get F | perdure get F --seed`\n"}, "a.md:1"),
    (named_options_exist, TOOLS | {"a.md": "```sh\nbuild/a/perdure get \\\n  --no\n```\n"},
     "a.md:2"),
    (named_options_exist, TOOLS | {"a.md": "`perdure bench --deep`\n"}, "a.md:1"),
    (named_options_exist, TOOLS | {"a.md": "`scripts/a.py --deep`\n"}, "a.md:1"),
    (named_options_exist, TOOLS | {"a.md": "It has `--seeds`.\n"}, "a.md:1"),
    (named_statuses_exist, STATUSES | {"a.md": "\nIt fails with `bussy`.\n"}, "a.md:2"),
    (named_statuses_exist, STATUSES | {"a.md": "It fails with `busy` or\n`bussy`.\n"}, "a.md:1"),
    (named_statuses_exist, STATUSES | {"a.md": "`StatusCode::okay`\n"}, "a.md:1"),
    (named_statuses_exist, STATUSES | {"a.md": "`PERDURE_BUSYY`\n"}, "a.md:1"),
    (named_statuses_exist, STATUSES | {"a.md": "| Codes | |\n|---|---|\n| `busy`, `oky` | |\n"},
     "a.md:3"),
    (named_statuses_exist, STATUSES | {GUIDE: "\n| Code | |\n|---|---|\n| `ok` | |\n"},
     GUIDE + ":2"),
    (named_statuses_exist, {STATUS: "enum class Status {\n};\n"}, STATUS + ":1"),
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
    **PRESETS, **TOOLS, **STATUSES,
    GUIDE: TABLE + "| `get PATH [--deep]` | reads |\n\n"
           "| Code | When |\n|---|---|\n| `ok` | |\n| `busy` from `sync` | |\n\n"
           "```sh\nperdure get --deep F --json | gzip --best   # --none\nperdure bench --seed 1\n"
           "cmake --preset release && build/release/perdure-guard --help\n```\n"
           "`perdure get F -- --key`, `scripts/a.py --only`, `install perdure --other`, "
           "`--seed N`, `build/release/perdure-paper-hash`, `perdure COMMAND --help`, "
           "`StatusCode::busy`\n"
           "It fails with `busy`, returns `true`, and `PERDURE_BUSY` in C. A failed `fsync`.\n",
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
