"""A small mixed table with categories, gaps and dates, and settings that fit it in a second."""

import numpy as np
import pandas as pd

QUICK = {"mean": "zero", "cv": 2, "epochs": 3, "width": 16, "n_nodes": 8, "random_state": 0}
QUICK_OPTIONS = [f"--set={k}={v}" for k, v in QUICK.items() if k != "random_state"]


def houses(n: int = 150, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    area = rng.gamma(9, 11, n).round(1)
    town = rng.choice(["Ulm", "Bonn", "Köln"], n)
    frame = pd.DataFrame(
        {
            "area": np.where(rng.random(n) < 0.1, np.nan, area),
            "rooms": rng.integers(1, 7, n),
            "town": pd.Series(town, dtype=object).mask(rng.random(n) < 0.1),
            "garden": rng.random(n) < 0.4,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    frame["price"] = (2 * area + 40 * (town == "Köln") + rng.normal(0, 9, n)).round(2)
    return frame
