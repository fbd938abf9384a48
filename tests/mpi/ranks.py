"""Starts programs on several ranks; shared by the tests that kill them."""

import os
import subprocess

MPIEXEC = os.environ["PERDURE_MPIEXEC"].split()


def start(program, ranks, *arguments, **environment):
    return subprocess.run(MPIEXEC + [str(ranks), program, *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                          check=False, env={**os.environ, **environment})
