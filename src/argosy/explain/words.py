"""Format times, amounts and names for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def clock(seconds: float) -> str:
    """Write a time or a span as `[d]d hh:mm:ss`; half seconds round up."""
    if not math.isfinite(seconds):
        return "never"
    days, rest = divmod(int(seconds + 0.5), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}d {text}" if days else text


def span(seconds: float) -> str:
    """Write a span in the same way, followed by the number of seconds."""
    return f"{clock(seconds)} ({plain(seconds)} s)"


def plain(number: float) -> str:
    """Write a number with up to three decimals, and without decimals if it is whole."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def amount(number: float, noun: str) -> str:
    return f"{plain(number)} {noun}{'' if number == 1 else 's'}"


def listed(items: Sequence[str], most: int = 4) -> str:
    """Join items as `a, b and c`; of many only the first ones and how many more."""
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def named(indices: Sequence[int], name: Callable[[int], str]) -> str:
    """List jobs by their ids."""
    return listed([name(i) for i in indices])


def signed(share: float) -> str:
    """Return a relative change: +25 %, −25 %; tenfold and more as a factor."""
    if math.isnan(share):
        return "–"
    if -1 < share < -0.995:
        return "under\u00a0−99\u00a0%"  # rounding must not suggest −100 %
    if share >= 9:
        return f"×{1 + share:,.0f}" if share < 1e6 else "×∞"
    return f"{share:+.0%}".replace("-", "−").replace("%", "\u00a0%")
