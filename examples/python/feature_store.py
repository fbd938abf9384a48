"""Features of millions of items, read in batches of numpy arrays.

  python examples/python/feature_store.py features.perdure
"""

import sys

import numpy as np

import perdure


def main() -> None:
    with perdure.Pool(sys.argv[1]) as pool:
        clicks = pool.int_map("clicks", values="uint64", engine="clevel")
        scores = pool.int_map("scores", values="float64", engine="clevel")
        rng = np.random.default_rng(1)
        items = rng.choice(2**62, size=100_000, replace=False).astype(np.uint64)
        scores.put_many(items, rng.random(len(items)))
        clicks.put_many(items[:1000], np.ones(1000, dtype=np.uint64))

        batch = rng.choice(items, size=4096)  # what a model asks for
        values, known = scores.find_many(batch)
        print(f"{known.sum()} of {len(batch)} items have a score, mean {values.mean():.2f}")
        print("clicks of an item:", clicks.add(int(items[0])))


if __name__ == "__main__":
    main()
