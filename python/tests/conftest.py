"""Fixtures and helpers that the tests share."""

import faulthandler
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import hypothesis
import pytest

import perdure

faulthandler.enable()

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from engines import ENGINES  # noqa: E402


def keeps_order(engine):
    with tempfile.TemporaryDirectory() as folder:
        with perdure.open(folder + "/pool", engine=engine, durability="process") as store:
            return store.ordered


ORDERED = [engine for engine in ENGINES if keeps_order(engine)]
UNORDERED = [engine for engine in ENGINES if engine not in ORDERED]

LONG = os.environ.get("PERDURE_LONG") == "1"
hypothesis.settings.register_profile(
    "short", derandomize=True, database=None, deadline=None, max_examples=12,
    stateful_step_count=25)
hypothesis.settings.register_profile(
    "long", database=None, deadline=None, max_examples=400, stateful_step_count=60)
hypothesis.settings.load_profile("long" if LONG else "short")


def scale(short, long):
    """A size of a test: `long` with PERDURE_LONG=1."""
    return long if LONG else short


@pytest.fixture
def disk_path(tmp_path):
    """A path for a pool in the temporary folder of the test."""
    return str(tmp_path / "pool.perdure")


@pytest.fixture
def path():
    """A path for a pool in a fresh folder in memory."""
    folder = tempfile.mkdtemp(prefix="perdure-test-", dir="/dev/shm")
    yield folder + "/pool.perdure"
    shutil.rmtree(folder)


@pytest.fixture
def pool(path):
    with perdure.Pool(path) as pool:
        yield pool


@pytest.fixture
def store(path):
    with perdure.open(path) as store:
        yield store


@pytest.fixture(params=ENGINES)
def any_store(request, path):
    """A store of each engine."""
    with perdure.open(path, engine=request.param) as store:
        yield store


@pytest.fixture(params=ORDERED)
def ordered_store(request, path):
    with perdure.open(path, engine=request.param) as store:
        yield store


@pytest.fixture(params=UNORDERED)
def unordered_store(request, path):
    with perdure.open(path, engine=request.param) as store:
        yield store


@pytest.fixture
def versioned(path):
    with perdure.open(path, engine="pskiplist") as store:
        yield store


PREAMBLE = """
import faulthandler, os, signal, sys, threading, time
faulthandler.enable()
import perdure
"""


def environment(*folders):
    folders = [str(Path(perdure.__file__).resolve().parents[1]), *folders]
    return {**os.environ, "PYTHONPATH": ":".join(folders), "PYTHONFAULTHANDLER": "1"}


def script_command(code, *arguments):
    program = PREAMBLE + textwrap.dedent(code)
    return [sys.executable, "-c", program, *map(str, arguments)]


def run_script(code, *arguments, timeout=60, folder=""):
    """Runs a program in a new interpreter. Returns what it printed; it must exit with 0."""
    done = subprocess.run(script_command(code, *arguments), env=environment(folder),
                          timeout=timeout, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    assert "leaked" not in done.stderr, done.stderr[-4000:]
    return done.stdout


def start_script(code, *arguments):
    """Starts a program in a new interpreter, with pipes for its input and output."""
    return subprocess.Popen(script_command(code, *arguments), env=environment(),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
