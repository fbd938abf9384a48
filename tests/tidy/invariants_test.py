# test: uninstrumented
"""Every numbered invariant is looked at, or says why not.

A header numbers its invariants under INVARIANTS, as folder.letter-and-number: phast.I4. Each is
asserted (PERDURE_ASSERT, and a test plants a violation with EXPECT_VIOLATES), or verified by
check() under its id, or listed in docs/design/invariants.md with the reason why neither is done.
"""

import re
import unittest

from tidy_test import CHECKOUT, Tree, line_of

LIST = "docs/design/invariants.md"
ID = r"[a-z_]+\.[A-Z]\d+"


def occurrences(files, pattern, *prefixes):
    """id -> where it occurs, first and again."""
    found = {}
    for path, text in files:
        if path.startswith(prefixes):
            for m in re.finditer(pattern, text):
                found.setdefault(m[1], []).append(f"{path}:{line_of(text, m.start(1))}")
    return found


def listed(tree):
    found = {}
    for path, text in tree.named(LIST):
        for number, line in enumerate(text.split("\n"), 1):
            if m := re.match(rf"\| ({ID}) \| *(\S.*?) *\|$", line):
                found[m[1]] = f"{path}:{number}"
    return found


def complaints_about(tree):
    code = tree.cpp()
    numbered = occurrences(tree.named("*.h"), rf"(?m)^//(?:   | INVARIANTS +)({ID})\b",
                           "src/", "testing/")
    asserted = occurrences(code, rf'PERDURE_ASSERT(?:_BY)?\(\s*\w+,\s*"({ID})"', "src/", "testing/")
    named = occurrences(code, rf'"({ID})"', "src/", "testing/")
    planted = occurrences(code, rf'EXPECT_VIOLATES\(\s*"({ID})"', "tests/")
    reasons = listed(tree)
    out = []
    for name, places in sorted(numbered.items()):
        if len(places) > 1:
            out.append(f"{places[1]}: {name} is numbered in {places[0]} already")
        if name not in named and name not in reasons:
            out.append(f"{places[0]}: {name} is neither asserted nor verified by check(); do "
                       f"one of them, or give the reason in {LIST}")
        if name in named and name in reasons:
            out.append(f"{reasons[name]}: {name} is looked at in {named[name][0]}; take the line "
                       "out")
    for name, places in sorted((named | reasons | planted).items()):
        if name not in numbered:
            where = places if isinstance(places, str) else places[0]
            out.append(f"{where}: no header numbers an invariant {name}")
    for name, places in sorted(asserted.items()):
        if name not in planted:
            out.append(f"{places[0]}: {name} is asserted, and no test plants a violation; "
                       "EXPECT_VIOLATES in tests/support/violates.h")
    return out


HEADER = "// INVARIANTS\n//   phast.I1 C  One.\n//   phast.I2  Two; phast.I1 is another.\n"
TEST = 'EXPECT_VIOLATES("phast.I1", f());\n'
CODE = '  PERDURE_ASSERT(P, "phast.I1", true);\n'
REASON = "| id | reason |\n| phast.I2 | nothing to look at |\n"


def tree_of(header=HEADER, code=CODE, test=TEST, reasons=REASON):
    return Tree({"src/index/phast/phast.h": header, "src/index/phast/a.h": code,
                 "tests/unit/a_test.cc": test, LIST: reasons})


class InvariantsTest(unittest.TestCase):
    maxDiff = None

    def test_on_the_tree(self):
        complaints = complaints_about(CHECKOUT)
        if complaints:
            self.fail("\n" + "\n".join(complaints))

    def test_on_clean_code(self):
        self.assertEqual(complaints_about(tree_of()), [])
        verified = CODE + 'add_violation(report, "phast.I2", "leaf", offset, "what");\n'
        self.assertEqual(complaints_about(tree_of(code=verified, reasons="")), [])

    def expect(self, where, **files):
        complaints = complaints_about(tree_of(**files))
        self.assertTrue(any(c.startswith(where + ": ") for c in complaints), complaints)

    def test_on_planted_mistakes(self):
        self.expect("src/index/phast/phast.h:3", reasons="")
        self.expect("src/index/phast/phast.h:2", code="// " + CODE)
        self.expect("src/index/phast/phast.h:4", header=HEADER + "//   phast.I1  Again.\n")
        self.expect("src/index/phast/a.h:1", test="")
        self.expect("src/index/phast/a.h:2", code=CODE + 'f("phast.I9");\n')
        self.expect(LIST + ":3", reasons=REASON + "| phast.I1 | asserted after all |\n")
        self.expect(LIST + ":3", reasons=REASON + "| phast.I8 | gone |\n")
        self.expect("tests/unit/a_test.cc:2", test=TEST + TEST.replace("I1", "I7"))


if __name__ == "__main__":
    unittest.main()
