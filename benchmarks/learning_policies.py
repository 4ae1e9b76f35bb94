"""Who is compared in the study of learned policies, and with which weights.

Weights are trained for the speeds that jobs have: one set for those that ship, another for the measured ones.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.dl2_probe import OPTIMUS, POLICIES

DRF, LITERAL, FITTED = "drf", "optimus, literal", "optimus, fitted"
HARMLESS, FLOOR, TEACHER = "drf, harmless", "floor", "frontier"
RIVALS = {
    DRF: POLICIES["drf"],
    HARMLESS: f"{POLICIES['drf']}:harmless=yes",
    LITERAL: POLICIES["literal"],
    "optimus, per dominant": POLICIES["per dominant"],
    FITTED: POLICIES["fitted"],
    "optimus, fitted, undivided": f"{OPTIMUS}:verbatim=no:per_dominant=no",
    TEACHER: "frontier:newcomers=wait",
    "srtf": "srtf",
    "tetris": "tetris",
}
WEIGHTS = {  # by the speeds that they were trained for, then by policy: names in the zoo
    "rough": {"dl2": "dl2", "dl2+": "dl2+"},
    "measured": {"dl2": "dl2-measured", "dl2+": "dl2+-measured"},
}
LEARNED = tuple(WEIGHTS["rough"])
FROM_DRF = "dl2, from drf"  # the paper's own road: DRF imitated, then reinforced
OWN = ("dl2-100", "dl2-heavy", "dl2-short")
OWN_WEIGHTS = {  # dl2 does not see the load: trained for where it is used
    (speeds, scenario, "dl2"): scenario + end
    for speeds, end in (("rough", ""), ("measured", "-measured"))
    for scenario in OWN
}


def learned(speeds: str, folder: Path | None = None) -> dict[str, str]:
    """The learned policies as specs; their weights are shipped ones, or files of the same names in a folder."""
    return {policy: spec(policy, name, folder) for policy, name in WEIGHTS[speeds].items()}


def from_drf(speeds: str, folder: Path | None = None) -> dict[str, str]:
    """Trained at one kind of speeds only."""
    return {FROM_DRF: spec("dl2", "dl2-drf", folder)} if speeds == "rough" else {}


def spec(policy: str, name: str, folder: Path | None = None) -> str:
    """Newcomers wait for the next slot, as those of all rivals do."""
    weights = name if folder is None else f"{folder / name}.safetensors"
    return f"{policy}:weights={weights}:newcomers=wait"


def for_place(speeds: str, scenario: str, specs: dict[str, str], folder: Path | None = None) -> dict[str, str]:
    """The same policies, with weights of their own for this scenario where there are any."""
    own = {p: spec(p, n, folder) for (at, where, p), n in OWN_WEIGHTS.items() if (at, where) == (speeds, scenario)}
    return specs | {policy: text for policy, text in own.items() if policy in specs}
