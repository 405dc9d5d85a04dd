"""Metrics written as slowly and plainly as their definitions: the yardstick of test_metrics.py."""

import math

import numpy as np


def crps_pairs(y, draws, fair=False):
    """mean |x - y| - mean |x - x'| / 2 by the double loop over draws."""
    s = len(draws)
    pairs = sum(abs(a - b) for a in draws for b in draws)
    return sum(abs(x - y) for x in draws) / s - pairs / (2 * s * (s - 1 if fair else s))


def crps_integral(y, draws, n_nodes=200_001):
    """The integral of (F(t) - 1[t >= y])^2 by a fine sum over t."""
    t = np.linspace(min(y, *draws) - 1, max(y, *draws) + 1, n_nodes)
    cdf = np.mean([x <= t for x in draws], axis=0)
    return float(np.sum((cdf - (t >= y)) ** 2) * (t[1] - t[0]))


def nll_kernels(y, draws):
    """One Gaussian per draw, with the variance of the draws."""
    s = len(draws)
    mean = sum(draws) / s
    variance = sum((x - mean) ** 2 for x in draws) / (s - 1)
    density = sum(math.exp(-((y - x) ** 2) / (2 * variance)) for x in draws)
    return -math.log(density / s / math.sqrt(2 * math.pi * variance))


def qice_intervals(y, edges):
    """For every interval, the share of rows with low < y <= high."""
    n_bins = len(edges[0]) + 1
    total = 0.0
    for m in range(n_bins):
        inside = 0
        for value, row in zip(y, edges, strict=True):
            bounds = [-math.inf, *row, math.inf]
            inside += bounds[m] < value <= bounds[m + 1]
        total += abs(inside / len(y) - 1 / n_bins)
    return 100 * total / n_bins


def calibration_errors(y, proba, n_bins=10):
    """(ECE, MCE) by going through the bins one after the other."""
    expected, largest = 0.0, 0.0
    for m in range(n_bins):
        rows = [
            (max(p), list(p).index(max(p)) == label)
            for label, p in zip(y, proba, strict=True)
            if m / n_bins <= max(p) < (m + 1) / n_bins or (m == n_bins - 1 and max(p) == 1)
        ]
        if rows:
            gap = abs(sum(c for c, _ in rows) - sum(hit for _, hit in rows)) / len(rows)
            expected += len(rows) / len(y) * gap
            largest = max(largest, gap)
    return 100 * expected, 100 * largest


def pavpu_counts(correct, certain):
    """(n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu)."""
    n = {(a, c): 0 for a in (True, False) for c in (True, False)}
    for a, c in zip(correct, certain, strict=True):
        n[bool(a), bool(c)] += 1
    return 100 * (n[True, True] + n[False, False]) / sum(n.values())


def risk_at(correct, confidence, k):
    """Share of errors among the k most confident rows (no ties)."""
    order = sorted(range(len(correct)), key=lambda i: -confidence[i])[:k]
    return sum(not correct[i] for i in order) / k
