"""A store in another process against dict, with reopens and kills (hypothesis)."""

import pickle
import shutil
import struct
import tempfile
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import perdure
from conftest import ENGINES, ORDERED, scale, start_script

SERVER = """
import pickle, struct

def options():
    return {"engine": sys.argv[2]}

store = perdure.open(sys.argv[1], **options())
source, sink = sys.stdin.buffer, sys.stdout.buffer
while True:
    head = source.read(4)
    if len(head) < 4:
        break
    name, arguments = pickle.loads(source.read(*struct.unpack("<I", head)))
    try:
        if name == "reopen":
            store.close()
            store = perdure.open(sys.argv[1])
            result = None
        elif name == "batch":
            with store.batch() as batch:
                for key, value in arguments[0]:
                    if value is None:
                        del batch[key]
                    else:
                        batch[key] = value
            result = None
        elif name == "contents":
            result = (dict(store), len(store), store.pool.check()["ok"])
        elif name == "scan":
            result = list(store.items(**arguments[0]))
        elif name == "delete_range":
            result = store.delete_range(**arguments[0])
        else:
            result = getattr(store, name)(*arguments)
    except Exception as error:
        result = type(error).__name__
    data = pickle.dumps(result)
    sink.write(struct.pack("<I", len(data)) + data)
    sink.flush()
store.close()
"""

keys = st.binary(max_size=2) | st.sampled_from([b"a", b"ab", b"abc", b"k" * 300])
values = st.binary(max_size=12) | st.integers(0, 5000).map(lambda n: b"v" * n)
bounds = st.none() | st.binary(max_size=2)
changes = st.lists(st.tuples(keys, st.none() | values), max_size=8)


class StoreMachine(RuleBasedStateMachine):
    process = None

    @initialize(engine=st.sampled_from(ENGINES))
    def start(self, engine):
        self.folder = tempfile.mkdtemp(prefix="perdure-test-", dir="/dev/shm")
        self.engine = engine
        self.model = {}
        self.open()

    def open(self):
        self.process = start_script(SERVER, self.folder + "/pool", self.engine)

    def teardown(self):
        if self.process:
            self.process.communicate(timeout=30)
            assert self.process.returncode == 0
            with perdure.open(self.folder + "/pool") as store:
                assert dict(store) == self.model
                assert store.pool.info()["clean"]
                assert store.pool.check(deep=True)["ok"]
            shutil.rmtree(self.folder)

    def send(self, name, *arguments):
        data = pickle.dumps((name, arguments))
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()

    def call(self, name, *arguments):
        self.send(name, *arguments)
        size, = struct.unpack("<I", self.process.stdout.read(4))
        return pickle.loads(self.process.stdout.read(size))

    @rule(key=keys, value=values)
    def put(self, key, value):
        assert self.call("put", key, value) == (key not in self.model)
        self.model[key] = value

    @rule(key=keys, value=values)
    def insert(self, key, value):
        assert self.call("insert", key, value) == (key not in self.model)
        self.model.setdefault(key, value)

    @rule(key=keys, value=values)
    def replace(self, key, value):
        assert self.call("replace", key, value) == (key in self.model)
        if key in self.model:
            self.model[key] = value

    @rule(key=keys)
    def discard(self, key):
        assert self.call("discard", key) == (self.model.pop(key, None) is not None)

    @rule(key=keys)
    def delete(self, key):
        expected = None if key in self.model else "KeyError"
        assert self.call("__delitem__", key) == expected
        self.model.pop(key, None)

    @rule(key=keys)
    def get(self, key):
        assert self.call("get", key) == self.model.get(key)

    @rule(key=keys, expected=st.none() | values, value=st.none() | values, hit=st.booleans())
    def compare_and_set(self, key, expected, value, hit):
        if hit:
            expected = self.model.get(key)
        matches = self.model.get(key) == expected
        assert self.call("compare_and_set", key, expected, value) == matches
        if matches:
            self.apply(self.model, [(key, value)])

    @rule(pairs=st.lists(st.tuples(keys, values), max_size=20))
    def set_many(self, pairs):
        new = len(dict(pairs).keys() - self.model.keys())
        assert self.call("set_many", pairs) == new
        self.model.update(pairs)

    @rule(wanted=st.lists(keys, max_size=10))
    def delete_many(self, wanted):
        assert self.call("delete_many", wanted) == len(set(wanted) & self.model.keys())
        self.apply(self.model, [(key, None) for key in wanted])

    @staticmethod
    def apply(model, changes):
        for key, value in changes:
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value

    @rule(changes=changes)
    def batch(self, changes):
        assert self.call("batch", changes) is None
        self.apply(self.model, changes)

    @rule()
    def clear(self):
        assert self.call("clear") is None
        self.model.clear()

    @precondition(lambda self: self.process and self.engine in ORDERED)
    @rule(start=bounds, stop=bounds, prefix=bounds, reverse=st.booleans(),
          limit=st.none() | st.integers(0, 5))
    def scan(self, **range):
        assert self.call("scan", range) == self.in_range(**range)

    @precondition(lambda self: self.process and self.engine in ORDERED)
    @rule(start=bounds, stop=bounds, prefix=bounds)
    def delete_range(self, **range):
        found = self.in_range(**range)
        assert self.call("delete_range", range) == len(found)
        self.apply(self.model, [(key, None) for key, _ in found])

    def in_range(self, start=None, stop=None, prefix=None, reverse=False, limit=None):
        return [(key, self.model[key]) for key in sorted(self.model, reverse=reverse)
                if (start is None or key >= start) and (stop is None or key < stop)
                and key.startswith(prefix or b"")][:limit]

    @rule()
    def reopen(self):
        assert self.call("reopen") is None

    @rule()
    def kill(self):
        self.process.kill()
        self.process.communicate()
        self.open()

    @rule(changes=changes, pause=st.sampled_from([0, 0.0001, 0.0003, 0.001]))
    def kill_in_a_batch(self, changes, pause):
        """The batch is wholly there, or not at all."""
        self.send("batch", changes)
        time.sleep(pause)
        self.process.kill()
        self.process.communicate()
        after = dict(self.model)
        self.apply(after, changes)
        self.open()
        contents = self.call("contents")[0]
        assert contents in (self.model, after)
        self.model = contents

    @invariant()
    def same(self):
        if self.process:
            assert self.call("contents") == (self.model, len(self.model), True)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=scale(20, 200))
