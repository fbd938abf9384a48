"""The programs of examples/python run as they stand."""

import pathlib
import signal
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def run(name, *arguments):
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *map(str, arguments)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "counter.py", "feature_store.py", "model_history.py", "session_store.py"}


def test_session_store(tmp_path):
    first = run("session_store.py", tmp_path / "s.perdure")
    assert "0 sessions from earlier runs" in first
    assert "ada is ada" in first and "removed 1" in first
    assert "1 sessions from earlier runs, 0 of them" in run("session_store.py",
                                                            tmp_path / "s.perdure")


def test_feature_store(tmp_path):
    out = run("feature_store.py", tmp_path / "f.perdure")
    assert "4096 of 4096 items have a score, mean 0." in out
    assert "clicks of an item: 2" in out


def test_model_history(tmp_path):
    path = tmp_path / "m.perdure"
    assert "epoch 2 is version" in run("model_history.py", path)
    again = run("model_history.py", path)
    assert "epoch 3 is version" in again and "epoch 0 is" not in again


@pytest.mark.parametrize("lines", [1, 1000])
def test_counter(tmp_path, lines):
    path = tmp_path / "c.perdure"
    child = subprocess.Popen([sys.executable, str(EXAMPLES / "counter.py"), str(path)],
                             stdout=subprocess.PIPE, text=True)
    printed = [int(child.stdout.readline()) for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().splitlines()
    child.wait()
    counted = int(run("counter.py", path, "--show"))
    last = int(rest[-1]) if rest and rest[-1].isdigit() else printed[-1]
    assert printed == list(range(1, lines + 1))
    # The last line may be cut, and the kill may come between a count and its line.
    assert last <= counted <= last + 2
