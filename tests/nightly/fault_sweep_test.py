"""Every single k of tests/fault on the disk too, where the fast tests take every seventh."""

import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("PERDURE_BUILD_DIR", "build/release"))


class FaultSweep(unittest.TestCase):
    def test_every_k(self):
        program = BUILD / "tests" / "fault_fault_sweep_test"
        done = subprocess.run([program], env=dict(os.environ, PERDURE_FAULT_STEP="1"), check=False)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
