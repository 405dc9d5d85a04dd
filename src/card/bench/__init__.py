"""Experiments -> reports -> tables and figures.

An experiment is a value (`spec`): data sets, splits, methods, recipe, overrides, read from a
TOML file and checked. It unrolls into units, one fit and one prediction each. `runner` works
off the units that no report covers yet; every finished unit becomes one JSON line (`reports`).
Tables and figures are pure functions of those lines, so they can be made again at any time,
anywhere, without training anything.
"""
