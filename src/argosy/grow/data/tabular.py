"""Rows of numbers to classify, as pictures of one pixel with a channel per number. Both sets come with scikit-learn.

breast-cancer    569 biopsies with 30 measurements each, 2 classes
clusters         9,000 generated rows of 24 numbers, 8 classes of three clusters each, a few labels wrong
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from argosy.grow.data.files import Raw, split_off_test
from argosy.grow.errors import GrowError

NAMES = ("breast-cancer", "clusters")
CLUSTERS: dict[str, Any] = {
    "n_samples": 9000,
    "n_features": 24,
    "n_informative": 12,
    "n_redundant": 6,
    "n_classes": 8,
    "n_clusters_per_class": 3,
    "class_sep": 1.2,
    "flip_y": 0.03,
    "random_state": 0,
}


def read(name: str) -> Raw:
    """Return a table, split into training and test data."""
    try:
        from sklearn.datasets import load_breast_cancer, make_classification
    except ImportError:
        raise GrowError(f"the data {name} need scikit-learn", hint="pip install scikit-learn") from None
    if name == "breast-cancer":
        found = load_breast_cancer()
        x, y, labels = found.data, found.target, tuple(map(str, found.target_names))
    else:
        x, y = make_classification(**CLUSTERS)
        labels = tuple(f"class {i}" for i in range(CLUSTERS["n_classes"]))
    pictures: Any = x.astype(np.float32)[:, :, None, None]
    return replace(split_off_test(labels, pictures, y.astype(np.int64)), top=1)
