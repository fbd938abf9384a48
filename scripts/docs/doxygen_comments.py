#!/usr/bin/env python3
"""The filter through which Doxygen reads include/perdure: makes its comments those of Doxygen.

The headers are written to be read as they are, with plain `//` comments. This program marks them
for Doxygen, escapes what Doxygen would take for a command, and keeps the numbers of the lines.

- The comment at the head of a file describes the file, and each class that it names.
- A comment before a declaration describes it, and the declarations that follow without a blank line
  and without a comment of their own.
- A comment behind a declaration, on its line, describes it.
- `// ---- name ----` begins a section. A comment before a blank line describes the section.
- Lines that are indented in a comment are code. A word in capitals and two blanks begin a topic.
"""

import os
import re
import sys

TOKEN = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'")
TOPIC = re.compile(r"^(Errors\b[^:.;]{0,50}|Thread safety|Durability|Complexity|Order|Costs?|"
                   r"Example|K|V): ")
CAPITALS = re.compile(r"^([A-Z][A-Z ]+?)(?:  (?=\S)|$)")
TERM = re.compile(r"^ +(\S[^.]{0,70}?)  +(?=[A-Z])")
SECTION = re.compile(r"^// ---- (.*?) -+$")


# ---- the text of comments -----------------------------------------------------------------------

def marked(text):
    """Text without commands, tags and links by accident, and with `code` as such."""
    text = re.sub(r"[\\@<>&#%]", r"\\\g<0>", text)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)


def code_lines(lines):
    """Whether each line of a comment is code."""
    result = []
    indent = "  "
    for i, line in enumerate(lines):
        if CAPITALS.match(line):
            indent = "      "  # the text of topics is indented itself
        follows = i and (result[-1] or not lines[i - 1] or lines[i - 1].endswith(":"))
        result.append(bool(follows and line.startswith(indent)))
    return result


def documented(lines):
    """The lines of a comment, without `// `, for Doxygen. As many as before."""
    is_code = code_lines(lines)
    topics = any(CAPITALS.match(line) for line in lines)
    text = []
    for i, line in enumerate(lines):
        begins = CAPITALS.match(line) or TOPIC.match(line) or (topics and TERM.match(line))
        if is_code[i]:
            if not is_code[i - 1]:
                text[-1] += "\1"
            text.append("\3" + line)
            if i + 1 == len(lines):
                text[-1] += "\2"
            continue
        before = "\2 " if i and is_code[i - 1] else ""
        if begins:
            colon = ":" if begins.re is TOPIC else ""
            line = f"\4{begins[1].strip()}{colon}\5{line[begins.end():]}"
        text.append(before + line.strip())
    done = marked("\n".join("" if line.startswith("\3") else line for line in text)).split("\n")
    done = [text[i][1:] if text[i].startswith("\3") else line for i, line in enumerate(done)]
    for mark, command in (("\1", " @code{.cpp}"), ("\2", " @endcode"), ("\4", "<p><b>"),
                          ("\5", "</b> ")):
        done = [line.replace(mark, command) for line in done]
    return done


# ---- declarations -------------------------------------------------------------------------------

def bare(code):
    """A declaration without `template <...>`, `requires(...)`, `[[...]]` and macros."""
    code = re.sub(r"\[\[.*?\]\]|\bPERDURE_API\b|\bfriend\b|\bstatic\b|\binline\b", " ", code,
                  flags=re.S)
    for word, begin, end in (("template", "<", ">"), ("requires", "(", ")")):
        while m := re.search(rf"\b{word}\s*\{begin}", code):
            depth, at = 1, m.end()
            while depth and at < len(code):
                depth += {begin: 1, end: -1}.get(code[at], 0)
                at += 1
            code = code[:m.start()] + " " + code[at:]
    return " ".join(code.split())


def scope_of(head):
    """What the brace behind `head` opens: a scope that has members, or None."""
    if re.search(r"\benum\b[^()=]*$|^typedef PERDURE_ENUM\(\w+\)$", head):
        return "enum"
    if re.match(r"namespace\b[^()]*$|extern\b[^()]*$", head):
        return "namespace"
    return "class" if re.search(r"\b(?:class|struct|union) \w+(<.*>)?[^()=]*$", head) else None


class Declaration:
    """From its first line to its last, both included. `inside`: the kind of its scope."""

    def __init__(self, first, last, text, inside):
        self.first, self.last, self.text, self.inside = first, last, bare(text), inside

    def defined_class(self):
        m = re.match(r"(?:typedef )?(?:class|struct) (\w+)[^;]*{$", self.text)
        return m[1] if m else None

    def name(self):
        m = re.search(r"(\boperator\W+|\w+) ?\(", self.text)
        return m[1] if m else ""

    def shares_comments(self):
        """True unless it is a member with data, or a part of an enum."""
        return self.inside == "namespace" or (self.inside == "class" and "(" in self.text)


class Scanner:
    """Finds the declarations in scopes that have members, and the lines that lie in bodies."""

    def __init__(self, code):
        self.code = code
        self.found = []
        self.in_body = [False] * (code.count("\n") + 1)
        self.scopes, self.begins = ["namespace"], []
        self.start, self.line, self.parens = None, 0, 0
        for at, c in enumerate(code):
            if c == "\n":
                self.end_of_line(at)
            elif not c.isspace():
                self.step(at, c)

    def end_of_line(self, at):
        before = self.code[self.code.rfind("\n", 0, at) + 1:at].strip()
        if before.startswith("#") or before in ("public:", "private:"):
            self.start = None
        self.line += 1
        self.in_body[self.line] = self.scopes[-1] is None

    def finish(self, at):
        if self.start is not None and self.scopes[-1]:
            text = self.code[self.start[0]:at + 1]
            self.found.append(Declaration(self.start[1], self.line, text, self.scopes[-1]))
        self.start = None

    def step(self, at, c):
        if self.start is None and c not in "};":
            self.start = (at, self.line)
        if c in "()":
            self.parens += 1 if c == "(" else -1
        elif self.parens:
            pass
        elif c == "{":
            head = self.code[self.start[0]:at] if self.start else ""
            kind = scope_of(bare(head)) if self.scopes[-1] else None
            self.begins.append(self.start)
            if kind:
                self.finish(at)
            self.scopes.append(kind)
        elif c == "}":
            kind, begin = self.scopes.pop(), self.begins.pop()
            self.start = None if kind else begin
            if kind is None and re.match(r"}\s*\n", self.code[at:]):
                self.finish(at)
        elif c == ";" or (c == "," and self.scopes[-1] == "enum"):
            if self.scopes[-1]:
                self.finish(at)


# ---- a header -----------------------------------------------------------------------------------

class Comment:
    """Whole lines of a comment, from `first` to `last`, both included."""

    def __init__(self, first, lines, before_blank):
        self.first, self.last = first, first + len(lines) - 1
        self.before_blank = before_blank
        self.indent = re.match(r" *", lines[0])[0]
        self.lines = [line.strip()[3:] for line in lines]


class Header:
    def __init__(self, name, source):
        self.name, self.lines = name, source.split("\n")
        code = TOKEN.sub(lambda m: " " * len(m[0]) if m[0][0] == "/" else
                         m[0][0] + "_" * (len(m[0]) - 2) + m[0][-1], source)
        code = re.sub(r"\\\n", " \n", code)
        self.code = code.split("\n")
        scanner = Scanner(code)
        self.declarations, self.in_body = scanner.found, scanner.in_body
        self.head = next(i for i, line in enumerate(self.lines) if not line.startswith("//"))
        self.comments = {c.first: c for c in self.read_comments()}
        self.prefixes = dict(self.shared())

    def read_comments(self):
        at = self.head
        while at < len(self.lines):
            first = at
            while re.match(r" *//(?! NOLINT| ----)", self.lines[at]) and not self.in_body[at]:
                at += 1
            if at > first:
                yield Comment(first, self.lines[first:at], not self.lines[at].strip())
            at += 1 if at == first else 0

    def trailing(self, line):
        """The comment behind the code of a line, or ""."""
        code = self.code[line].rstrip()
        comment = self.lines[line][len(code):].strip()
        skipped = not code.strip("}; ") or self.in_body[line] or "NOLINT" in comment
        return "" if skipped or not comment.startswith("//") else comment[2:].strip()

    def shared(self):
        """Pairs of a line and what is put before it: the comment of a declaration without one."""
        before = {comment.last + 1: comment for comment in self.comments.values()}
        head = " ".join(self.lines[:self.head])
        last = group = None
        for declaration in self.declarations:
            own = before.get(declaration.first)
            cls = declaration.defined_class()
            if own:
                group = (own, declaration.name())
            elif not last or (last.last + 1, last.inside) != (declaration.first,
                                                              declaration.inside):
                group = None
            if own is None and cls and re.search(rf"\b{cls}\b", head):
                yield declaration.first, f"/** @copydoc {self.name} */ "
            elif own is None and group and not self.trailing(declaration.last) and (
                    declaration.shares_comments()):
                has_code = any(code_lines(group[0].lines))
                text = f"See {group[1]}()." if has_code else " ".join(documented(group[0].lines))
                yield declaration.first, f"/** {text} */ "
            last = declaration

    def section(self, at, is_first):
        """The two lines of a section that begins at line `at`, before a blank line."""
        name = SECTION.match(self.lines[at])[1]
        text = self.comments.get(at + 2)
        body = " ".join(documented(text.lines)) if text and text.before_blank else ""
        return ["" if is_first else "/**@}*/", f"/** @name {name[0].upper()}{name[1:]}"], body

    def converted(self):
        out = [f"/// @file {self.name}"]  # takes the line of #pragma once
        out += ["/// " + line for line in documented([l[3:] for l in self.lines[:self.head]])]
        at = self.head
        assert self.lines[at].startswith("#pragma once")
        at += 1
        in_section = False
        while at < len(self.lines):
            comment = self.comments.get(at)
            if SECTION.match(self.lines[at]):
                (close, name), body = self.section(at, not in_section)
                out += [f"{close} {name}", f"{body} */ /**@{{*/"]
                in_section = True
                at += 2
            elif comment and not comment.before_blank:
                out += [comment.indent + "/// " + line for line in documented(comment.lines)]
                at = comment.last + 1
            else:
                if in_section and self.lines[at].startswith(("#undef", "// NOLINTEND")):
                    out.append("/**@}*/ ")
                    in_section = False
                else:
                    text = self.trailing(at)
                    line = self.code_only(at) + f"  ///< {marked(text)}" if text else self.lines[at]
                    out.append(self.prefixes.get(at, "") + line)
                at += 1
        return "\n".join(out)

    def code_only(self, at):
        return self.lines[at][:len(self.code[at].rstrip())]


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print(Header(os.path.basename(sys.argv[1]), header.read()).converted(), end="")
