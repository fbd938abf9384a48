"""Tests that other projects ship for stores like theirs, over perdure.

Each test_*.py has an adapter, a small class over the public API, and the tests of one project.
A test passes, or SKIPS says why it cannot. The run ends with a table.
"""

import collections
import platform
from importlib import metadata

import pytest

import perdure

# A test that cannot pass, and why. It runs: if it passes, or is gone, the run fails.
SKIPS = {
    "test_dbm.py::test_anydbm_creation_n_file_exists_with_invalid_contents":
        "perdure does not replace a file that is no pool",
}

PROJECTS = {  # whose tests a file runs
    "test_zarr.py": "zarr",
    "test_langchain.py": "langchain-tests",
    "test_dogpile.py": "dogpile.cache",
    "test_mapping.py": "CPython",
    "test_dbm.py": "CPython",
}

counts = collections.defaultdict(collections.Counter)  # of each file: passed, skipped, failed
reasons = set()  # of what was skipped


def file_of(nodeid):
    return nodeid.split("::")[0].rsplit("/", 1)[-1]


def name_of(nodeid):
    """test_dbm.py::test_x, of any class and parameters."""
    return f"{file_of(nodeid)}::{nodeid.split('[')[0].rsplit('::', 1)[-1]}"


def pytest_collection_modifyitems(items):
    names = {name_of(item.nodeid) for item in items}
    files = {file_of(name) for name in names}
    gone = [name for name in SKIPS if file_of(name) in files and name not in names]
    if gone:
        raise pytest.UsageError(f"SKIPS names tests that do not exist: {', '.join(gone)}")
    for item in items:
        if reason := SKIPS.get(name_of(item.nodeid)):
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):  # it skips itself
        if reason := SKIPS.get(name_of(item.nodeid)):
            report.wasxfail = reason
        else:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: SKIPS has no line for this: {report.longrepr}"
    return report


def pytest_runtest_logreport(report):
    if report.when == "call" or not report.passed:
        counts[file_of(report.nodeid)][report.outcome] += 1
    if report.skipped:
        reasons.add(f"{name_of(report.nodeid)}: {report.wasxfail}")


def pytest_collectreport(report):
    """A file can be wrong, or skip itself as a whole."""
    if not report.passed:
        counts[file_of(report.nodeid)][report.outcome] += 1
    if report.skipped:
        reasons.add(f"{file_of(report.nodeid)}: {report.longrepr[2]}")


def pytest_terminal_summary(terminalreporter):
    def row(*cells):
        terminalreporter.write_line("{:34} {:>8} {:>7} {:>8} {:>7}".format(*cells))

    terminalreporter.section("other projects", sep="-")
    row("project", "version", "passed", "skipped", "failed")
    for file, project in PROJECTS.items():
        version = platform.python_version() if project == "CPython" else metadata.version(project)
        row(f"{project}, {file}", version,
            *(counts[file][outcome] for outcome in ("passed", "skipped", "failed")))
    for reason in sorted(reasons):
        terminalreporter.write_line(f"skipped: {reason}")


# ---- what the adapters share --------------------------------------------------------------------

stores = {}  # by path: what this process has open


def opened(path):
    """The store of a pool. A process opens a pool once; some adapters are made several times."""
    if path not in stores or stores[path].closed:
        stores[path] = perdure.open(path)
    return stores[path]


def close_stores():
    while stores:
        stores.popitem()[1].close()


@pytest.fixture
def path(tmp_path):
    yield str(tmp_path / "pool.perdure")
    close_stores()


def cpython_tests(name):
    """A module of CPython's own tests."""
    return pytest.importorskip(f"test.{name}", reason="this Python has no tests of its own; "
                               "Debian has them in libpython3.*-testsuite")
