"""Makes one site of pages from all over the repository: hooks of mkdocs, which mkdocs.yml names.

- README.md is the start page. The changelog and the page for contributors are beside docs/.
- A link to another file of the repository goes to its page in the reference of Doxygen, if it is a
  public header, or to a page below source/, which shows the file.
- A link to the results of the report goes to the page that build.sh has made of them.

So the documents have links that work in the repository, and no copy of a page is kept.
"""

import pathlib
import posixpath
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
API = "build/docs/api"  # where Doxygen has written its pages
# Path in the repository -> path in the site. Pages in docs/ keep their place.
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "scripts/docs/pages/cpp.md": "reference/cpp.md",
    "scripts/docs/pages/python.md": "reference/python.md",
    "scripts/docs/site.css": "assets/site.css",
}
# Path of data in the repository -> the page that was made of it, and its path in the site.
RENDERED = {"bench/results/report.json": ("build/report/report.html", "report.html")}
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".def": "cpp", ".c": "c", ".py": "python", ".sh": "bash",
             ".go": "go", ".java": "java", ".xml": "xml"}
# A block or a span of code, or the target of a link.
LINK = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)|`[^`]*`"
                  r"|(?P<before>\]\(\s*<?|^\[[^\]]+\]:\s*)(?![a-z]+:)(?P<target>[^)\s>#]+)",
                  re.S | re.M)


def links(path, text):
    """Matches of links to files, and the paths of the files in the repository."""
    for m in LINK.finditer(text):
        if m["target"]:
            yield m, posixpath.normpath(posixpath.join(posixpath.dirname(path), m["target"]))


def header_page(path):
    """The page of a public header in the reference, or None."""
    name = path.removeprefix("include/perdure/").replace("_", "__").replace(".", "_8") + ".html"
    found = path.startswith("include/perdure/") and (ROOT / API / name).is_file()
    return f"api/{name}" if found else None


def place(path):
    """Where the site has a file or a folder of the repository."""
    if path in MOVED:
        return MOVED[path]
    if path in RENDERED:
        return RENDERED[path][1]
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return header_page(path) or f"source/{path}.md"


def rewritten(path, text):
    """The text of a page, with links from where it is in the site."""
    out, end = [], 0
    for m, target in links(path, text):
        if not (ROOT / target).exists():
            continue  # mkdocs reports it
        out.append(text[end:m.start("target")])
        out.append(posixpath.relpath(place(target), posixpath.dirname(place(path)) or "."))
        end = m.end("target")
    return "".join(out) + text[end:]


def source_page(path):
    """A page that shows a file, or the names of the files in a folder."""
    file = ROOT / path
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    if file.is_dir():
        files = [str(found.relative_to(file)) for found in files_in(file)]
        return head + "".join(f"- [{name}]({name}.md)\n" for name in files)
    text = file.read_text(encoding="utf-8")
    language = LANGUAGES.get(file.suffix, "cmake" if file.name == "CMakeLists.txt" else "text")
    return f"{head}````{language}\n{text}````\n"


def files_in(folder):
    return [path for path in sorted(folder.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts]


def sources(pages):
    """The files and folders that the site shows because a page has a link to them."""
    found = set()
    for page in pages:
        for _, target in links(page, (ROOT / page).read_text(encoding="utf-8")):
            if (ROOT / target).exists() and place(target).startswith("source/"):
                found.add(target)
                if (ROOT / target).is_dir():
                    found.update(str(path.relative_to(ROOT))
                                 for path in files_in(ROOT / target))
    return sorted(found)


def on_files(files, config):
    from mkdocs.structure.files import File  # this module also serves programs without mkdocs

    for path, uri in [*MOVED.items(), *RENDERED.values()]:
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for path in files_in(ROOT / API):
        uri = f"api/{path.relative_to(ROOT / API)}"
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    pages = [str(path.relative_to(ROOT)) for path in files_in(ROOT / "docs")]
    for path in sources(pages + [path for path in MOVED if path.endswith(".md")]):
        uri = f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"
        files.append(File.generated(config, uri, content=source_page(path)))
    return files


def on_post_build(config):
    # Its links are absolute, and the site has no address of its own.
    (pathlib.Path(config.site_dir) / "404.html").unlink()


def on_page_markdown(markdown, page, config, files):
    if page.file.abs_src_path is None:  # a page below source/
        return markdown
    path = pathlib.Path(page.file.abs_src_path).relative_to(ROOT)
    return rewritten(str(path), markdown)
