"""A counter that survives kill -9: each number that was printed is counted.

  python examples/python/counter.py counter.perdure & sleep 1; kill -9 $!
  python examples/python/counter.py counter.perdure --show
"""

import sys

import perdure


def main() -> None:
    with perdure.Pool(sys.argv[1]) as pool:
        counters = pool.int_map("counters")
        if "--show" in sys.argv:
            print(counters.get(1, 0))
            return
        while True:
            print(counters.add(1), flush=True)


if __name__ == "__main__":
    main()
