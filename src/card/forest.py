"""Ensembles of regression trees as flat arrays.

A tree sends a row to the left child when x[feature] <= threshold and to the right one otherwise;
a prediction is the sum of the values of the leaves reached, over the trees of an ensemble. All nodes
of all trees lie in common arrays and a right child follows its left one, so that one step down is

    node = child[node] + (x[feature[node]] > threshold[node])

for every tree at once; a leaf is its own child behind a threshold no number exceeds. The arrays are
all there is to store: they outlive the versions of the library that grew the trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch


class Tree(NamedTuple):
    """The nodes of one tree, the root first; left is -1 at a leaf. Values are (nodes, V)."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray


def tree_of(fitted: Any, scale: float) -> Tree:
    """A fitted scikit-learn decision tree, its values multiplied by `scale`."""
    t = fitted.tree_
    return Tree(t.children_left, t.children_right, t.feature, t.threshold, scale * t.value[:, :, 0])


def tree_of_nodes(nodes: np.ndarray) -> Tree:
    """A tree of scikit-learn's histogram boosting, from its record array."""
    leaf = nodes["is_leaf"].astype(bool)
    left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
    return Tree(left, right, nodes["feature_idx"], nodes["num_threshold"], nodes["value"][:, None])


@dataclass(frozen=True)
class Forest:
    """G ensembles of T trees each; every ensemble predicts `base` + a sum of leaves, V numbers a row."""

    child: np.ndarray  # (nodes,) int32; the roots are nodes 0 .. G T - 1
    feature: np.ndarray  # (nodes,) int32
    threshold: np.ndarray  # (nodes,) float32
    value: np.ndarray  # (nodes, V) float32
    base: np.ndarray  # (G, V) float32
    n_trees: int  # of all ensembles
    depth: int

    @classmethod
    def pack(cls, ensembles: Sequence[Sequence[Tree]], base: np.ndarray) -> Forest:
        """Number the nodes anew: roots first, then the children of each branching, side by side."""
        trees = [tree for ensemble in ensembles for tree in ensemble]
        sizes = np.array([len(tree.left) for tree in trees])
        start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        shift = np.repeat(start, sizes)
        left, right, feature, threshold, value = (np.concatenate(part) for part in zip(*trees, strict=True))
        inner = np.flatnonzero(left >= 0)
        first = len(trees) + 2 * np.arange(len(inner))  # new number of each branching's left child
        number = np.empty(len(left), np.int64)
        number[start] = np.arange(len(trees))
        number[left[inner] + shift[inner]] = first
        number[right[inner] + shift[inner]] = first + 1
        child = number.copy()
        child[inner] = first
        order = np.argsort(number)
        leaf = (left < 0)[order]
        return cls(
            child=child[order].astype(np.int32),
            feature=np.where(leaf, 0, feature[order]).astype(np.int32),
            threshold=np.where(leaf, np.float32(np.inf), _round_down(threshold[order])),
            value=value[order].astype(np.float32),
            base=np.asarray(base, np.float32),
            n_trees=len(trees),
            depth=_depth(child[order], len(trees)),
        )

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None, chunk: int = 1024) -> np.ndarray:
        """(N, D) float32 -> (G, N, V), or only the given ensembles."""
        groups = range(len(self.base)) if members is None else members
        per_group = self.n_trees // len(self.base)
        out = np.empty((len(groups), len(x), self.base.shape[1]), np.float32)
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            for i, g in enumerate(groups):
                leaf = self._leaves(x[rows], range(g * per_group, (g + 1) * per_group))
                out[i, rows] = self.base[g] + self.value[leaf].sum(axis=0)
        return out

    def _leaves(self, x: np.ndarray, roots: range, stride: int = 4) -> np.ndarray:
        """The leaves that the rows of x reach from the given roots: (T, N).

        Every `stride` levels those that have arrived are put aside. (Indexing by 32-bit numbers is
        faster in torch than in numpy.)
        """
        child, feature, threshold = map(torch.from_numpy, (self.child, self.feature, self.threshold))
        column = torch.from_numpy(x.T.astype(np.float32, order="C").ravel())
        row = torch.arange(len(x), dtype=torch.int32).repeat(len(roots))
        node = torch.arange(roots.start, roots.stop, dtype=torch.int32).repeat_interleave(len(x))
        leaf, going = node.clone(), torch.arange(len(node))
        for level in range(1, self.depth + 1):
            seen = column.index_select(0, feature.index_select(0, node) * len(x) + row)
            node = child.index_select(0, node) + (seen > threshold.index_select(0, node))
            if level % stride == 0 or level == self.depth:
                leaf[going] = node
                on = torch.nonzero(child.index_select(0, node) != node)[:, 0]
                going, node, row = going[on], node[on], row[on]
        return leaf.numpy().reshape(len(roots), len(x))

    def state(self) -> dict[str, np.ndarray]:
        """Arrays by name, for `from_state`."""
        arrays = {name: getattr(self, name) for name in ("child", "feature", "threshold", "value", "base")}
        return arrays | {"counts": np.array([self.n_trees, self.depth])}

    @classmethod
    def from_state(cls, state: dict[str, np.ndarray]) -> Forest:
        n_trees, depth = (int(count) for count in state["counts"])
        arrays = {name: value for name, value in state.items() if name != "counts"}
        return cls(**arrays, n_trees=n_trees, depth=depth)


def _round_down(threshold: np.ndarray) -> np.ndarray:
    """The largest float32 not above: for a float32 x, x <= threshold stays what it was."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _depth(child: np.ndarray, n_trees: int) -> int:
    """Steps after which every row has reached its leaf."""
    node, depth = np.arange(n_trees), 0
    while True:
        node = node[child[node] != node]
        if not len(node):
            return depth
        node = np.concatenate([child[node], child[node] + 1])
        depth += 1
