"""Every bit of every line in use, where the fast tests flip a sample."""

import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("PERDURE_BUILD_DIR", "build/release"))


class BitFlips(unittest.TestCase):
    def test_all(self):
        program = BUILD / "tests" / "api_bit_flip_test"
        done = subprocess.run([program], env=dict(os.environ, PERDURE_FLIPS="all"), check=False)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
