"""The history of a model's weights: a version per epoch, and a way back after a kill.

  python examples/python/model_history.py model.perdure
"""

import sys

import numpy as np

import perdure


def main() -> None:
    with perdure.Pool(sys.argv[1]) as pool:
        weights = pool.store("weights", engine="pskiplist")
        epochs = pool.int_map("epochs")  # epoch -> version
        first = len(epochs)
        if first > 0:
            weights.rollback(epochs[first - 1])  # what the killed run wrote after its last epoch
        rng = np.random.default_rng(first)
        for epoch in range(first, first + 3):
            for layer in ("conv1", "conv2"):
                weights[layer] = rng.random(250_000, dtype=np.float64)  # 2 MB, stored as it is
            epochs[epoch] = weights.tag()
            print("epoch", epoch, "is version", epochs[epoch])

        with weights.at(epochs[first]) as old:
            before = np.frombuffer(old["conv1"])
        _, mean = weights.read("conv1", lambda view: np.frombuffer(view).mean())  # no copy
        print(f"mean of conv1: {before.mean():.4f} in epoch {first}, {mean:.4f} now")
        if first + 3 > 5:
            weights.trim(epochs[first + 3 - 5])  # keep the last five epochs


if __name__ == "__main__":
    main()
