# test: uninstrumented
"""The house style, as a test.

Each rule is a function from a tree to complaints, `path:line: what is wrong; what to do`. The rules
run twice: on the tree, where they must find nothing, and on planted mistakes, which each of them
must find: a rule that cannot fail proves nothing.
"""

import pathlib
import posixpath
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

MAX_LINE = 100
MAX_FILE = 800
MAX_TEST_FILE = 1200
MAX_FUNCTION = 80


class Tree:
    """Paths and texts: the files of the checkout, or a few planted ones."""

    def __init__(self, files):
        self.files = files
        self.folders = {str(parent) for path in files for parent in pathlib.PurePath(path).parents}

    @staticmethod
    def checkout():
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.splitlines()
        if not listed:  # an unpacked archive
            skipped = ("build/", ".git/", ".cache/")
            listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
            listed = [path for path in listed if not path.startswith(skipped)]
        files = {}
        for path in listed:
            try:
                files[path] = (ROOT / path).read_text(encoding="utf-8")
            except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
                pass  # golden pools and the like; deleted, but not yet committed as such
        return Tree(files)

    def exists(self, path):
        return path in self.files or path in self.folders

    def named(self, *patterns):
        return [(path, text) for path, text in sorted(self.files.items())
                if any(pathlib.PurePath(path).match(pattern) for pattern in patterns)]

    def cpp(self, *prefixes):
        """C++ files below the prefixes (default: all), as (path, code without comments)."""
        return [(path, without_comments(text)) for path, text in self.named("*.cc", "*.h")
                if not prefixes or path.startswith(prefixes)]


# A comment or a literal, whichever starts first. The look-behind skips digit separators.
TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.S)


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    return TOKEN.sub(lambda m: blank(m[0]) if m["comment"] else m[0], text)


def without_literals(code):
    return TOKEN.sub(lambda m: blank(m[0]), code)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def matches(pattern, files, complaint):
    """One complaint for every match; {0} in it is the match."""
    return [f"{path}:{line_of(text, m.start())}: {complaint.format(m[0].strip())}"
            for path, text in files for m in re.finditer(pattern, text)]


# ---- layers -------------------------------------------------------------------------------------

CORE = {"util", "platform", "background", "cut", "backup", "heap", "reclaim", "format", "index",
        "pool", "store"}
BELOW_INDEX = {"util", "platform", "background", "heap", "reclaim", "format"}
# What a layer may include besides itself and the public headers. heap and reclaim may include each
# other in one direction only.
LAYERS = {
    "public": set(),
    "util": set(),
    "platform": {"util"},
    "heap": {"util", "platform", "reclaim"},
    "reclaim": {"util", "platform", "heap"},
    "background": {"util", "platform"},
    "cut": {"util", "platform"},
    "backup": {"util", "platform", "cut", "format"},
    "format": BELOW_INDEX - {"format"},
    "ordered": {"util", "platform", "reclaim"},
    "engine": BELOW_INDEX | {"index", "ordered"},
    "index": BELOW_INDEX | {"engine"},
    "pool": BELOW_INDEX | {"index", "cut", "backup"},
    "store": CORE - {"store"},
    "c": {"platform"},
    "mpi": {"util", "platform"},
    "tools": CORE | {"bench"},
    "bench": CORE | {"engine", "mpi"},
    "evaluation": CORE | {"engine", "mpi", "bench"},
    "testing": CORE | {"engine"},
    "examples": set(),
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def layer_of(path):
    """The layer of a path and its folder within the layer, or None where anything is allowed."""
    parts = path.removeprefix("examples/engine/").split("/")  # where seventh_engine.py puts it
    if parts[0] == "include":
        return "public", ""
    if parts[0] == "src" and len(parts) > 2:
        if parts[1] == "index" and len(parts) > 3:
            return (parts[2], "") if parts[2] in LAYERS else ("engine", parts[2])
        return parts[1], ""
    return (parts[0], "") if parts[0] in LAYERS else None


def resolve(tree, path, included):
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), included))
    candidates = (beside, f"src/{included}", f"include/{included}", included)
    return next((c for c in candidates if c in tree.files), None)


def layering(tree):
    complaints = []
    edges = {}
    for path, code in tree.cpp():
        source = layer_of(path)
        if path.startswith("src/") and (source is None or source[0] not in LAYERS):
            complaints.append(f"{path}:1: no layer has this folder; put the file into one, or give "
                              "the folder its place in LAYERS of tests/tidy/tidy_test.py")
            continue
        if source is None:
            continue
        for m in INCLUDE.finditer(code):
            where = f"{path}:{line_of(code, m.start())}"
            included = m[1] or m[2]
            if included.startswith(("src/", "include/")):
                complaints.append(f"{where}: '{included}' is relative to the root; write it "
                                  "relative to src/ or include/")
            target = resolve(tree, path, included)
            target = layer_of(target) if target else None
            if target is None or target == source or target[0] == "public":
                continue
            edges.setdefault((source[0], target[0]), where)
            if source[0] == target[0] == "engine":
                complaints.append(f"{where}: engine {source[1]} includes engine {target[1]}; what "
                                  "they share belongs in src/index or below")
            elif source[0] == "index" and target[0] == "engine":
                complaints.append(f"{where}: src/index does not include an engine; ask "
                                  "engine_table.h")
            elif source[0] != target[0] and target[0] not in LAYERS[source[0]]:
                complaints.append(f"{where}: {source[0]} may not include {target[0]}; includes "
                                  "only go down, so move the shared part to a lower layer")
    if ("heap", "reclaim") in edges and ("reclaim", "heap") in edges:
        complaints.append(f"{edges['heap', 'reclaim']}: heap and reclaim include each other (also "
                          f"{edges['reclaim', 'heap']}); keep one direction")
    return complaints


# ---- the one seam -------------------------------------------------------------------------------

def outside_platform(files):
    return [(path, without_literals(code)) for path, code in files
            if not path.startswith("src/platform/")]


def persistence_only_in_platform(tree):
    return matches(
        r"\b_mm\d*_(?:clwb|clflush\w*|[slm]fence|stream_\w+)\b|\b__builtin_ia32_\w+"
        r"|\b(?:asm|__asm|__asm__)\b",
        outside_platform(tree.cpp()),
        "'{0}' outside src/platform; write back and fence through Platform, so that the simulator "
        "sees it")


def concurrency_only_in_platform(tree):
    files = outside_platform(tree.cpp("src/", "include/"))
    return matches(
        r"\bstd::(?:atomic\w*|(?:recursive_|shared_|timed_)*mutex|condition_variable\w*|j?thread\b"
        r"|this_thread|counting_semaphore|binary_semaphore|latch|barrier|call_once|chrono"
        r"|random_device|mt19937\w*)"
        r"|\b__(?:atomic|sync)_\w+|\bpthread_\w+|#[ \t]*include[ \t]*<thread>"
        r"|(?<![\w.>:])(?:clock_gettime|gettimeofday|nanosleep|usleep|sched_yield|getrandom"
        r"|s?rand|rand_r)\s*\(",
        files,
        "'{0}' outside src/platform; use Platform's atomic, latch, yield, clock or random, so that "
        "the simulator can drive it")


# ---- media --------------------------------------------------------------------------------------

def closing_brace(code, opening):
    depth = 0
    for i in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return len(code)


STRUCT = re.compile(r"(?<!enum )\b(?:struct|class|union)\s+(?:alignas\s*\([^{;]*?\)\s*)?"
                    r"(\w+)\s*(?:final\s*)?(?::[^{;]*)?\{")


def layout_sizes_asserted(tree):
    complaints = []
    for path, code in tree.cpp():
        code = without_literals(code)
        for region in re.finditer(r"\bnamespace\s+(?:\w+::)*layout\s*\{", code):
            position, end = region.end(), closing_brace(code, region.end() - 1)
            while m := STRUCT.search(code, position, end):
                position = closing_brace(code, m.end() - 1)
                sized = rf"\bstatic_assert\s*\([^;]*\bsizeof\s*\(\s*(?:\w+::)*{m[1]}\b"
                if not re.compile(sized).search(code, position):
                    complaints.append(
                        f"{path}:{line_of(code, m.start())}: on-media struct {m[1]} without a "
                        f"static_assert on sizeof({m[1]}) after it; assert its size and offsets")
    return complaints


def persist_sites_are_named(tree):
    complaints, homes = [], {}
    for path, code in tree.cpp("src/"):
        for m in re.finditer(r'(?<!operator)(?<!operator )"([^"\n]*)"_site\b', code):
            where = f"{path}:{line_of(code, m.start())}"
            if not re.fullmatch(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*){2,}", m[1]):
                complaints.append(f"{where}: persist site '{m[1]}'; name it engine.operation.what, "
                                  "lower case, with dots and underscores")
            elif homes.setdefault(m[1], path) != path:
                complaints.append(f"{where}: persist site '{m[1]}' is already in {homes[m[1]]}; a "
                                  "failing site has to name one place, so choose another name")
    return complaints


def sites_of_files_are_broken(tree):
    broken = "".join(code for _, code in tree.cpp("tests/"))
    return [f"{path}:{line_of(code, m.start())}: no test breaks the site '{m[1]}'; plant it in "
            "tests/cut or tests/backup"
            for path, code in tree.cpp("src/cut/", "src/backup/")
            for m in re.finditer(r'"([^"\n]*)"_site\b', code)
            if not re.search(rf'"{re.escape(m[1])}"(?!_site)', broken)]


def tests_declare(tree):
    complaints = []
    for path, text in tree.named("tests/*/*_test.*"):
        for m in re.finditer(r"^(?://|#) *[Tt]ests?:", text, re.M):
            if m.start() != 0 or m[0] not in ("// test:", "# test:"):
                complaints.append(f"{path}:{line_of(text, m.start())}: CMake does not read this; "
                                  "write `// test: <word>, <word>` into the first line")
        chosen = re.search(r"\b(?:chosen_engine|small_map)\(\)", without_comments(text))
        declared = re.search("each engine|three engines", text.partition("\n")[0])
        if path.endswith(".cc") and chosen and not declared:
            complaints.append(f"{path}:1: the test runs on one engine only, but has {chosen[0]}; "
                              "say `each engine` in this line (tests/CMakeLists.txt)")
    return complaints


def engines_are_listed(tree):
    """Texts that list the engines by hand: one that has all but one of engines.def lacks it."""
    table = tree.files.get("src/index/engines.def")
    if table is None:
        return []
    engines = re.findall(r"(?m)^PERDURE_ENGINE\((\w+)\)$", table)
    one = rf"\b(?:{'|'.join(engines)})\b"
    several = re.compile(rf"{one}(?:(?:[^\w.;]|\b(?:or|and)\b){{1,40}}{one})+")
    complaints = []
    for path, text in tree.named(*SOURCES, "*.md"):
        for m in several.finditer(text):
            missing = set(engines) - set(re.findall(one, m[0]))
            if len(missing) == 1 and path != "CHANGELOG.md":
                complaints.append(f"{path}:{line_of(text, m.start())}: a list of all engines but "
                                  f"{missing.pop()}; add it, or read src/index/engines.def")
    options = tree.files["include/perdure/options.h"]
    for name, number in re.findall(r"(?m)^  (\w+) = (\d+),", options):
        wanted = f"PERDURE_ENGINE_{name.upper()} = {number}"
        if name in engines and not re.search(rf"\b{wanted}\b", tree.files["include/perdure/c.h"]):
            complaints.append(f"include/perdure/c.h:1: no {wanted}; add it to perdure_engine")
    return complaints


# ---- text ---------------------------------------------------------------------------------------

SOURCES = ("*.c", "*.cc", "*.h", "*.java", "*.py", "*.sh", "*.cmake", "CMakeLists.txt", "Makefile")


def files_are_short(tree):
    complaints = []
    for path, text in tree.named(*SOURCES):
        if path.startswith("include/"):
            continue  # the limit must not decide what users see in one header
        limit = MAX_TEST_FILE if path.startswith("tests/") else MAX_FILE
        lines = text.count("\n")
        if lines > limit:
            complaints.append(f"{path}:{limit + 1}: {lines} lines, at most {limit} (aim at 500); "
                              "split it by idea")
    return complaints


NO_FUNCTION = re.compile(r"(class|struct|enum|union|namespace|template|using|static_assert)\b|#")


def functions_are_short(tree):
    """Functions of a namespace or a class, by the indentation that clang-format gives them."""
    complaints = []
    for path, text in tree.cpp():
        if path.startswith("tests/"):
            continue
        begins = {}  # by indentation: the last line that may begin a function
        head = None  # the indentation of what has begun and has no brace yet
        for number, line in enumerate(text.split("\n"), 1):
            code = line.strip()
            indent = len(line) - len(line.lstrip())
            if head is not None and code.endswith((";", "{")):
                if code.endswith(";"):
                    begins.pop(head, None)
                head = None
                continue
            if not code or indent > 2:
                continue
            if code in ("}", "};"):
                lines = number - begins.pop(indent, number) + 1
                if lines > MAX_FUNCTION:
                    complaints.append(f"{path}:{number}: a function of {lines} lines, at most "
                                      f"{MAX_FUNCTION} (aim at 70); name its steps")
            elif code.endswith((";", "}")):
                begins.pop(indent, None)
            elif "(" in code and not NO_FUNCTION.match(code):
                begins[indent] = number
                head = None if code.endswith("{") else indent
    return complaints


def lines_are_short(tree):
    return [f"{path}:{number}: {len(line)} columns, at most {MAX_LINE}; break the line"
            for path, text in tree.named(*SOURCES)
            for number, line in enumerate(text.split("\n"), 1)
            if len(line) > MAX_LINE and "://" not in line]


# The classes in the two patterns below keep this file from matching itself.
def nothing_is_unfinished(tree):
    return matches(r"\b(?:FIXM[E]|TOD[O]|XX[X]|HAC[K])\b", sorted(tree.files.items()),
                   "'{0}'; finish it, or open an issue and say here why it is as it is")


def no_machine_paths(tree):
    return matches(r"(?<![\w.~-])/wor[k]/|\.librar[y]\b", sorted(tree.files.items()),
                   "'{0}' exists on one machine only; make the path relative")


def headers_have_a_guard(tree):
    return [f"{path}:1: no '#pragma once'; add it below the header's comment"
            for path, text in tree.named("*.h") if not re.search(r"^#pragma once$", text, re.M)]


# ---- documents ----------------------------------------------------------------------------------

def links(tree):
    """(document, line, target) of every relative link in a Markdown file."""
    for path, text in tree.named("*.md"):
        text = re.sub(r"^(```|~~~).*?^\1", lambda m: blank(m[0]), text, flags=re.S | re.M)
        text = re.sub(r"`[^`\n]*`", lambda m: blank(m[0]), text)
        for m in re.finditer(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", text, re.M):
            target = (m[1] or m[2]).split("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
                yield path, line_of(text, m.start()), resolved


def links_resolve(tree):
    return [f"{path}:{line}: link to {target}, which does not exist; correct it"
            for path, line, target in links(tree) if not tree.exists(target)]


def documents_are_listed(tree):
    linked = {target for path, _, target in links(tree) if path != target}
    return [f"{path}:1: no other document links here; list it in README.md or in the page it "
            "belongs to"
            for path, _ in tree.named("*.md")
            if path.startswith("docs/") and path not in linked]


READING_PATH = re.compile(r"^// READING PATH .*\n(?://  .*\n)*", re.M)


def reading_paths_are_true(tree):
    """Each header beside a READING PATH is in it once, with its lines to a tenth."""
    complaints = []
    for path, text in tree.named("*.h"):
        found = READING_PATH.search(text)
        if not found:
            continue
        where = f"{path}:{line_of(text, found.start())}"
        folder = path.rpartition("/")[0]
        listed = re.findall(r"\b(\w+\.h)(?:\n//)?\s+(\d+)", found[0])
        lines = {other.rpartition("/")[2]: content.count("\n") for other, content in
                 tree.named("*.h") if other.rpartition("/")[0] == folder and other != path}
        if sorted(name for name, _ in listed) != sorted(lines):
            complaints.append(f"{where}: name each header of the folder once: {sorted(lines)}")
            continue
        complaints += [f"{where}: {name} has {lines[name]} lines, not {number}"
                       for name, number in listed
                       if abs(lines[name] - int(number)) > max(5, lines[name] // 10)]
    return complaints


RULES = [layering, persistence_only_in_platform, concurrency_only_in_platform,
         layout_sizes_asserted, persist_sites_are_named, sites_of_files_are_broken, tests_declare,
         engines_are_listed, files_are_short, functions_are_short, lines_are_short,
         nothing_is_unfinished, no_machine_paths, headers_have_a_guard, links_resolve,
         documents_are_listed, reading_paths_are_true]

# ---- planted mistakes ---------------------------------------------------------------------------

HEADER = "#pragma once\n"
ENGINES = {
    "src/index/engines.def": "".join(f"PERDURE_ENGINE({name})\n" for name in ("ab", "cd", "ef")),
    "include/perdure/options.h": HEADER + "  ab = 1,  // a\n  cd = 2,\n  ef = 3,\n",
    "include/perdure/c.h": HEADER + "PERDURE_ENGINE_AB = 1, PERDURE_ENGINE_CD = 2,\n"
                           "PERDURE_ENGINE_EF = 3\n",
}

# (rule, files, the place that the complaint must name)
PLANTED = [
    (layering, {"src/util/a.h": '#include "pool/b.h"\n', "src/pool/b.h": HEADER}, "src/util/a.h:1"),
    (layering, {"src/heap/a.h": '\n#include "pool/b.h"\n', "src/pool/b.h": HEADER},
     "src/heap/a.h:2"),
    (layering, {"src/format/a.h": '#include "index/b.h"\n', "src/index/b.h": HEADER},
     "src/format/a.h:1"),
    (layering, {"src/index/a.h": '#include "pool/b.h"\n', "src/pool/b.h": HEADER},
     "src/index/a.h:1"),
    (layering, {"src/index/phast/a.cc": '#include "index/level/b.h"\n',
                "src/index/level/b.h": HEADER}, "src/index/phast/a.cc:1"),
    (layering, {"src/index/phast/a.cc": '#include "../level/b.h"\n',
                "src/index/level/b.h": HEADER}, "src/index/phast/a.cc:1"),
    (layering, {"src/index/a.cc": '#include "index/phast/b.h"\n', "src/index/phast/b.h": HEADER},
     "src/index/a.cc:1"),
    (layering, {"src/store/a.cc": '#include "testing/b.h"\n', "testing/b.h": HEADER},
     "src/store/a.cc:1"),
    (layering, {"src/store/a.cc": '#include "index/phast/b.h"\n',
                "src/index/phast/b.h": HEADER}, "src/store/a.cc:1"),
    (layering, {"include/perdure/a.h": '#include "util/b.h"\n', "src/util/b.h": HEADER},
     "include/perdure/a.h:1"),
    (layering, {"src/index/ordered/a.h": '#include "index/phast/b.h"\n',
                "src/index/phast/b.h": HEADER}, "src/index/ordered/a.h:1"),
    (layering, {"src/pool/a.h": '#include "src/util/b.h"\n', "src/util/b.h": HEADER},
     "src/pool/a.h:1"),
    (layering, {"src/heap/a.h": '#include "reclaim/b.h"\n',
                "src/reclaim/b.h": '#include "heap/a.h"\n'}, "src/heap/a.h:1"),
    (layering, {"src/new_folder/a.cc": "\n"}, "src/new_folder/a.cc:1"),
    (layering, {"src/a.cc": "\n"}, "src/a.cc:1"),
    (persistence_only_in_platform, {"src/pool/a.cc": "// why\n_mm_clwb(p);\n"}, "src/pool/a.cc:2"),
    (persistence_only_in_platform, {"src/index/phast/a.h": "_mm_sfence();\n"},
     "src/index/phast/a.h:1"),
    (persistence_only_in_platform, {"tests/unit/a.cc": "_mm_clflushopt(p);\n"},
     "tests/unit/a.cc:1"),
    (persistence_only_in_platform, {"bench/harness/a.cc": "_mm256_stream_si256(p, v);\n"},
     "bench/harness/a.cc:1"),
    (persistence_only_in_platform, {"testing/a.cc": "__builtin_ia32_mfence();\n"},
     "testing/a.cc:1"),
    (persistence_only_in_platform, {"tools/a.cc": 'asm volatile("clwb %0" : "+m"(*p));\n'},
     "tools/a.cc:1"),
    (concurrency_only_in_platform, {"src/heap/a.h": "std::atomic<int> a;\n"}, "src/heap/a.h:1"),
    (concurrency_only_in_platform, {"src/heap/a.h": "/* why\n */ std::shared_mutex m;\n"},
     "src/heap/a.h:2"),
    (concurrency_only_in_platform, {"src/pool/a.cc": "std::atomic_thread_fence(order);\n"},
     "src/pool/a.cc:1"),
    (concurrency_only_in_platform, {"src/pool/a.cc": "auto t = std::chrono::seconds(1);\n"},
     "src/pool/a.cc:1"),
    (concurrency_only_in_platform, {"src/pool/a.cc": "#include <thread>\n"}, "src/pool/a.cc:1"),
    (concurrency_only_in_platform, {"src/store/a.cc": "clock_gettime(CLOCK_MONOTONIC, &t);\n"},
     "src/store/a.cc:1"),
    (concurrency_only_in_platform, {"src/store/a.cc": "int r = rand();\n"}, "src/store/a.cc:1"),
    (concurrency_only_in_platform, {"include/perdure/a.h": "std::mutex m;\n"},
     "include/perdure/a.h:1"),
    (layout_sizes_asserted, {"src/pool/a.h": "namespace perdure::layout {\nstruct Header {\n"
                             "  union { int a; };\n};\n}\n"}, "src/pool/a.h:2"),
    (layout_sizes_asserted, {"src/pool/a.h": "namespace layout {\nstruct A {};\n"
                             "static_assert(sizeof(A) == 1);\nstruct alignas(64) B : A {};\n}\n"},
     "src/pool/a.h:4"),
    (persist_sites_are_named, {"src/pool/a.cc": 'fence("Pool.open"_site);\n'}, "src/pool/a.cc:1"),
    (persist_sites_are_named, {"src/pool/a.cc": 'fence("pool.open.header"_site);\n',
                               "src/pool/b.cc": 'fence("pool.open.header"_site);\n'},
     "src/pool/b.cc:1"),
    (sites_of_files_are_broken, {"src/cut/a.cc": '\nsync(f, "log.mark.sync"_site);\n',
                                 "tests/cut/a_test.cc": 'runs("log.mark.sync"_site);\n'},
     "src/cut/a.cc:2"),
    (tests_declare, {"tests/pool/a_test.cc": "// test: cross\nauto m = small_map();\n"},
     "tests/pool/a_test.cc:1"),
    (tests_declare, {"tests/pool/a_test.cc": "// Pools.\n// test: cross\n"},
     "tests/pool/a_test.cc:2"),
    (engines_are_listed, ENGINES | {"tools/a.cc": '\nauto names = {"ab", "cd"};\n'},
     "tools/a.cc:2"),
    (engines_are_listed, ENGINES | {"README.md": "`cd` or `ef`\n"}, "README.md:1"),
    (engines_are_listed, ENGINES | {"include/perdure/c.h": "PERDURE_ENGINE_CD = 2\n"},
     "include/perdure/c.h:1"),
    (files_are_short, {"src/pool/a.cc": "\n" * (MAX_FILE + 1)}, f"src/pool/a.cc:{MAX_FILE + 1}"),
    (files_are_short, {"tests/unit/a.cc": "\n" * (MAX_TEST_FILE + 1)},
     f"tests/unit/a.cc:{MAX_TEST_FILE + 1}"),
    (functions_are_short, {"src/pool/a.cc": "void f() {\n" + "  g();\n" * MAX_FUNCTION + "}\n"},
     f"src/pool/a.cc:{MAX_FUNCTION + 2}"),
    (functions_are_short, {"tools/a.h": "class A {\n  int f(int a,\n        int b) {\n" +
                           "    g();\n" * MAX_FUNCTION + "  }\n};\n"},
     f"tools/a.h:{MAX_FUNCTION + 4}"),
    (lines_are_short, {"src/pool/a.cc": "\n//" + "-" * MAX_LINE + "\n"}, "src/pool/a.cc:2"),
    (nothing_is_unfinished, {"src/pool/a.cc": "\n// TO" + "DO: later\n"}, "src/pool/a.cc:2"),
    (nothing_is_unfinished, {"docs/a.md": "FIX" + "ME\n"}, "docs/a.md:1"),
    (no_machine_paths, {"scripts/a.sh": "cd /wor" + "k/main\n"}, "scripts/a.sh:1"),
    (headers_have_a_guard, {"src/pool/a.h": "int a();\n"}, "src/pool/a.h:1"),
    (reading_paths_are_true, {"src/index/a/a.h": "//\n// READING PATH  (lines) b.h\n//   30.\n",
                              "src/index/a/b.h": "\n" * 20}, "src/index/a/a.h:2"),
    (reading_paths_are_true, {"src/index/a/a.h": "// READING PATH  (lines) Core: b.h 1.\n",
                              "src/index/a/b.h": "\n", "src/index/a/c.h": "\n"},
     "src/index/a/a.h:1"),
    (links_resolve, {"README.md": "\nSee [a](docs/a.md#top).\n"}, "README.md:2"),
    (links_resolve, {"docs/a.md": "[b]: ../b.md\n"}, "docs/a.md:1"),
    (documents_are_listed, {"README.md": "`[a](docs/a.md)`\n", "docs/a.md": "[a](a.md)\n"},
     "docs/a.md:1"),
]

# Text that a careless rule would reject.
CLEAN = ENGINES | {
    "README.md": "[a](docs/a.md), [site](https://example.org/x), [folder](src/pool), [top](#top)\n"
                 "```\n[not a link](nowhere.md)\n```\n",
    "docs/a.md": "# a\n[back](../README.md)\n",
    "docs/b/c.md": "[a](../a.md)\n",
    "docs/index.md": "[c](b/c.md): ab, cd or ef. Not cd. Only ef.\n",
    "CHANGELOG.md": "[index](docs/index.md)\n",
    "include/perdure/a.h": HEADER,
    "src/platform/platform.h": HEADER + 'std::atomic<int> a; _mm_sfence(); asm("clwb"); '
                               'operator""_site();\n',
    "src/pool/a.h": HEADER + '#include "heap/a.h"\n#include <perdure/a.h>\n',
    "src/heap/a.h": HEADER + '#include "platform/platform.h"\n#include "reclaim/a.h"\n',
    "src/reclaim/a.h": HEADER + "// std::atomic would hide here; _mm_clwb too\n",
    "src/index/ordered/a.h": HEADER + '#include "reclaim/a.h"\n',
    "src/index/phast/a.h": HEADER + '#include "index/index.h"\n#include "b.h"\n'
                           '#include "index/ordered/a.h"\n'
                           'flush(p, "phast.insert.entry"_site); '
                           'fence("phast.insert.entry"_site);\n',
    "src/index/level/level.h": "// READING PATH  (lines) Core: line.h\n//   103.\n" + HEADER,
    "src/index/level/line.h": HEADER + "\n" * 99,
    "src/index/phast/b.h": HEADER + "auto n = 1'000; platform.rand(); // std::mutex\n",
    "src/index/index.h": HEADER + 'auto text = "std::mutex"; _mm_prefetch(p, 0); '
                         "_mm_cmpeq_epi8(a, b);\n",
    "src/format/layout.h": HEADER + "namespace perdure::layout {\nstruct Later;\n"
                         "enum class E : int { a };\n"
                         "struct A { union { int a; }; struct { int b; } c; };\n"
                         "static_assert(std::is_standard_layout_v<A> && sizeof(A) == 8);\n}\n",
    "testing/sim.cc": '#include "index/phast/a.h"\nstd::mutex m;\n',
    "src/cut/a.cc": 'sync(f, "log.mark.sync"_site);\n',
    "tests/cut/a_test.cc": '{"log.mark.sync", power}\n',
    "tests/unit/b_test.cc": "// test: tsan, each engine\nauto engine = chosen_engine();\n",
    "tests/unit/a_test.cc": '#include "testing/sim.h"\n#include "pool/a.h"\nstd::thread t;\n',
    "scripts/a.sh": "mktemp -d perdure.XXXXXX; cd bench/workloads; cd ../framework/\n",
}


class TidyTest(unittest.TestCase):
    """One test per rule, made below."""

    maxDiff = None


def add_tests(rule, tree):
    planted = [(files, where) for planted, files, where in PLANTED if planted is rule]

    def on_the_tree(self):
        complaints = rule(tree)
        if complaints:
            self.fail("\n" + "\n".join(complaints))

    def on_planted_mistakes(self):
        self.assertTrue(planted, "plant a mistake for this rule in PLANTED")
        for files, where in planted:
            with self.subTest(where=where):
                complaints = rule(Tree(files))
                self.assertTrue(any(c.startswith(where + ": ") for c in complaints), complaints)

    def on_clean_code(self):
        self.assertEqual(rule(Tree(CLEAN)), [])

    for test in (on_the_tree, on_planted_mistakes, on_clean_code):
        setattr(TidyTest, f"test_{rule.__name__}_{test.__name__}", test)


CHECKOUT = Tree.checkout()
for each in RULES:
    add_tests(each, CHECKOUT)

if __name__ == "__main__":
    unittest.main()
