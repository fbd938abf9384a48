#!/usr/bin/env python3
"""Tries the Debian packages in a clean Debian 12: runs there what the documents show, and removes
the packages again.

  sudo packaging/test_packages.py [FOLDER]

FOLDER has the packages (default: build/packages). The packages of the distribution come from the
mirror that apt of this machine uses. build/packages/base, a system with compilers, is kept for the
next run; build/packages/root is the copy that the packages are installed in.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
BASE = TREE / "build/packages/base"
ROOT = TREE / "build/packages/root"
PACKAGES = ["libperdure0", "libperdure-dev", "perdure-tools", "python3-perdure"]
VERSION = re.search(r'PERDURE_VERSION "(.*)"',
                    (TREE / "include/perdure/version.h").read_text(encoding="utf-8"))[1]
HOME = "home/user"  # in the root: where programs are built and run


def run(script, root=ROOT, expected=0):
    """Runs lines of a shell in the root, and returns what they print. /proc is mounted in a
    namespace of its own, and is gone when the shell ends."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": f"/{HOME}", "LC_ALL": "C.UTF-8",
                   "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc",
         "chroot", str(root), "sh", "-ec", f"mkdir -p /{HOME}; cd /{HOME}\n{script}"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != expected:
        sys.exit(f"{script}\n{done.stdout}\ntest_packages: this returned {done.returncode}")
    return done.stdout


def must(condition, what):
    if not condition:
        sys.exit(f"test_packages: {what}")


def remove(folder):
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


def make_base():
    if (BASE / "ready").exists():
        return
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
         "Created-By: Packages"], stdout=subprocess.PIPE, text=True, check=True).stdout
    sources = sorted({line for line in listed.splitlines()
                      if re.search(r" bookworm(-updates|-security)? main$", line)})
    mirrors = [line.split()[0] for line in sources if " bookworm main" in line]
    must(mirrors, "apt of this machine has no mirror of Debian 12")
    remove(BASE)
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(BASE), mirrors[0]],
                   check=True, stdout=subprocess.DEVNULL)
    (BASE / "etc/apt/sources.list").write_text("".join(f"deb {line}\n" for line in sources),
                                               encoding="utf-8")
    shutil.copy("/etc/hosts", BASE / "etc/hosts")
    run("apt-get -q update\napt-get -q install -y --no-install-recommends gcc g++ cmake make",
        root=BASE)
    (BASE / "ready").touch()


def install(folder, *packages):
    """Installs exactly these, and what they depend on."""
    for package in packages:
        found = list(pathlib.Path(folder).glob(f"{package}_*.deb"))
        must(len(found) == 1, f"{folder} has {len(found)} packages {package}")
        shutil.copy(found[0], ROOT / "tmp")
    run("apt-get -q install -y --no-install-recommends " +
        " ".join(f"/tmp/{package}_*.deb" for package in packages))


def write(path, text):
    path = ROOT / HOME / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def blocks(document, language):
    text = (TREE / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def block(document, language, marker):
    """The block of a document that has the marker."""
    found = [text for text in blocks(document, language) if marker in text]
    must(len(found) == 1, f"{document} has {len(found)} blocks in {language} with '{marker}'")
    return found[0]


def command(document, start):
    """The first command that begins so: a line of a block, or between backquotes."""
    lines = "".join(blocks(document, "sh")).splitlines()
    text = (TREE / document).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    lines += [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose)]
    found = [line for line in lines if line.startswith(start)]
    must(found, f"{document} has no command '{start}'")
    return found[0]


def cmake(folder, language, program, lines):
    """Builds and runs a project of one source, which has these lines for perdure."""
    write(f"{folder}/CMakeLists.txt",
          f"cmake_minimum_required(VERSION 3.25)\nproject({program} LANGUAGES {language})\n"
          f"add_executable({program} main.{'c' if language == 'C' else 'cc'})\n{lines}")
    return run(f"cmake -S {folder} -B {folder}/build -DCMAKE_BUILD_TYPE=Release\n"
               f"cmake --build {folder}/build\n./{folder}/build/{program}")


# What the snippets of README.md leave to the reader.
AROUND_CPP = """#include <perdure/perdure.h>
#include <iostream>
static int report(std::string_view what) { std::cout << what << "\\n"; return 1; }
static void use(std::string_view key, std::string_view value) {
  std::cout << key << "=" << value << "\\n";
}
int main() {
%s  return 0;
}
"""


def try_cpp():
    write("cpp/main.cc", AROUND_CPP % block("README.md", "cpp", "Store::open"))
    printed = cmake("cpp", "CXX", "my_service",
                    block("README.md", "cmake", "target_link_libraries"))
    must(printed.endswith("user:1=Ada\n"), printed)
    examples = "/usr/share/doc/libperdure-dev/examples"
    write("quick/main.cc", f'#include "{examples}/quickstart.cc"\n')
    printed = cmake("quick", "CXX", "app", block("docs/guide.md", "cmake", "find_package"))
    must(re.search(r"killed after (\d+) puts; \1 are there", printed), printed)
    line = command("docs/guide.md", "g++ -std=c++23").replace("examples/", f"{examples}/")
    printed = run(f"{line}\n./quickstart")
    must("are there" in printed, printed)
    for header in sorted((TREE / "include/perdure").glob("*.h")):  # each, not only those in use
        if not header.name.startswith("mpi"):
            run(f"echo '#include <perdure/{header.name}>' |\n"
                "g++ -std=c++23 -fsyntax-only -x c++ -")


def try_c():
    examples = "/usr/share/doc/libperdure-dev/examples"
    first = block("docs/c.md", "c", "int main")
    write("app.c", first)
    commands = {"app": command("docs/c.md", "cc -std=c99 app.c"),
                "a.out": command("README.md", "cc app.c"),
                "./a.out": command("docs/c.md", "cc app.c $(pkg-config --cflags perdure)")}
    for program, line in commands.items():
        printed = run(f"{line}\n./{program}")
        must(printed == "ada: 36\n", f"{line}\n{printed}")
    write("c/main.c", first)
    printed = cmake("c", "C", "app", "set(CMAKE_C_STANDARD 99)\nfind_package(perdure REQUIRED)\n"
                                     "target_link_libraries(app PRIVATE perdure::c)\n")
    must(printed.endswith("ada: 36\n"), printed)
    printed = run(f"cp {examples}/quickstart.c {examples}/plugin.c .\n"
                  "cc -std=c99 quickstart.c $(pkg-config --cflags --libs perdure) -o quick-c\n"
                  "./quick-c\ncc -std=c99 plugin.c -o plugin\n./plugin")
    must("are there" in printed and printed.endswith("ada: 36\n"), printed)


def try_tools():
    must(run("perdure --version") == f"perdure {VERSION}\n", "perdure --version")
    must(run("dpkg -L perdure-tools | grep /man1/ | xargs zcat | grep -c '^.SH EXAMPLES'") == "1\n",
         "the man page has no examples")
    lines = [line for line in block("README.md", "sh", "perdure create").splitlines()
             if line.startswith("perdure ")]
    printed = run("\n".join(lines))
    must("3\n" in printed and "apple\t3\n" in printed, printed)
    # `acknowledged N`: the lines up to N are durable.
    printed = run("""
(seq -f 'key%08.0f%%value' 1 20000000 | tr % '\\t' | perdure load killed.perdure - 2>log) &
until grep -q acknowledged log 2>/dev/null; do sleep 0.1; done
sleep 0.5
kill -9 $(cat /proc/[0-9]*/stat | sed -n 's/ (perdure) .*//p')
wait || true
sed -n 's/^acknowledged \\([0-9]*\\).*/\\1/p' log | tail -1
perdure check killed.perdure --deep >&2
perdure scan killed.perdure --prefix key | cut -f1 >there""")
    acknowledged = int(re.search(r"^(\d+)$", printed, re.M)[1])
    there = (ROOT / HOME / "there").read_text(encoding="utf-8").splitlines()
    must(0 < acknowledged <= len(there) < 20_000_000, f"{acknowledged} of {len(there)}")
    must(there == [f"key{i:08}" for i in range(1, len(there) + 1)], "a key is missing")


def try_python():
    printed = run("python3 -c 'import perdure, importlib.metadata as m\n"
                  "print(perdure.__version__, m.version(\"perdure\"))'")
    must(printed == f"{VERSION} {VERSION}\n", printed)
    write("readme.py", "import perdure\n" + block("README.md", "python", "perdure.open"))
    must(run("rm users.perdure; python3 readme.py") == "[(b'user:1', b'Ada')]\n", "README.md")
    write("first.py", block("docs/python.md", "python", "import perdure"))
    must(run("python3 first.py").endswith("b'user:2' b'grace'\n"), "docs/python.md")
    write("pool.py", "import perdure\n" + block("docs/python.md", "python", "hits = pool.int_map"))
    run("python3 pool.py")
    # What the command line wrote.
    must(run("python3 -c 'import perdure\nprint(perdure.open(\"inventory.perdure\")[\"apple\"])'")
         == "b'3'\n", "apple")
    counter = "python3 /usr/share/doc/python3-perdure/examples/counter.py c.perdure"
    run(f"""
{counter} >counted & sleep 2; kill -9 $!; wait || true
last=$(tail -1 counted)
now=$({counter} --show)
[ "$last" -gt 0 ] && [ "$now" -ge "$last" ] && [ "$now" -le $((last + 1)) ]""")
    run("apt-get -q install -y --no-install-recommends python3-numpy\n"
        "python3 /usr/share/doc/python3-perdure/examples/feature_store.py f.perdure")


def try_removal():
    run(f"dpkg -r {' '.join(PACKAGES)}")
    left = run(f"find / -xdev -iname '*perdure*' -not -path '/{HOME}/*' -not -path '/proc/*' "
               "-not -path '/tmp/*'")
    must(left == "", f"dpkg -r leaves\n{left}")


def main():
    if os.geteuid() != 0:
        os.execvp("sudo", ["sudo", sys.executable, *sys.argv])
    folder = sys.argv[1] if len(sys.argv) > 1 else TREE / "build/packages"
    make_base()
    remove(ROOT)
    subprocess.run(["cp", "-a", str(BASE), str(ROOT)], check=True)
    install(folder, "libperdure0", "libperdure-dev")
    for name in ("cpp", "c"):
        print(f"test_packages: {name}", flush=True)
        globals()[f"try_{name}"]()
    install(folder, "perdure-tools")
    try_tools()
    install(folder, "python3-perdure")
    try_python()
    try_removal()
    remove(ROOT)
    print("test_packages: C++, C, command line and Python work; nothing is left after dpkg -r")


if __name__ == "__main__":
    main()
