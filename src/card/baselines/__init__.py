"""Competing methods behind the same face: fit and predict_distribution.

`METHODS` maps a method's name to how the benchmark builds it (see `card.bench.methods.Method`).
"""

from __future__ import annotations

from typing import Any

METHODS: dict[str, Any] = {}
