"""CPython's tests of mappings, on each engine."""

import itertools

import pytest
from conftest import cpython_tests

import perdure

mapping_tests = cpython_tests("mapping_tests")


class MappingTest:
    engine = None

    @pytest.fixture(autouse=True)
    def pool(self, path):
        numbers = itertools.count()
        with perdure.Pool(path) as pool:
            self.type2test = lambda: pool.store(str(next(numbers)), engine=self.engine,
                                                serializer="pickle", keys=str)
            yield


for name in ("phast", "as", "ascs", "pskiplist", "level", "clevel"):
    globals()[f"Test_{name}"] = type(
        f"Test_{name}", (MappingTest, mapping_tests.BasicTestMappingProtocol), {"engine": name})
