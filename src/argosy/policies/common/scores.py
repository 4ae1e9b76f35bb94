"""Scores of networks that are compared with each other, so that decisions do not depend on the processor.

Libraries for matrices add up in another order on another processor, and for another number of rows. Scores that are
equal on paper, such as those of two machines of which nothing is known, would then be told apart by their last digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

DECIMALS = 9  # double precision has some six more


def comparable(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Return scores, which must have been computed in double precision, with those that are equal on paper equal."""
    return np.asarray(np.round(scores, DECIMALS), np.float64)


def one_hidden_layer(features: NDArray[Any], arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the score of each row of features by a network with one hidden layer: v2 tanh(v1 x + c1) + c2."""
    hidden = np.tanh(np.asarray(features, np.float64) @ arrays["v1"] + arrays["c1"])
    return comparable(hidden @ arrays["v2"] + arrays["c2"])
