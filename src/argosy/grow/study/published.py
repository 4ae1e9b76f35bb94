"""The figures of the published growth study, to compare with our own. Ranks are among 64 sequences."""

from __future__ import annotations

SEEN = ("early", "middle", "late")
UNSEEN = ("early_middle", "middle_late")
TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)

FROM_SCRATCH = {  # accuracy, rank
    "cnn1/early": (0.7391, 1),
    "cnn1/middle": (0.7135, 5),
    "cnn1/late": (0.6827, 1),
    "cnn2/early": (0.4074, 6),
    "cnn2/middle": (0.4092, 1),
    "cnn2/late": (0.3707, 1),
}
TRANSFER = {  # from, to on CNN#1; best over temperatures: accuracy, rank
    ("early", "late"): (0.6827, 1),
    ("early", "middle"): (0.6928, 17),
    ("middle", "early"): (0.7194, 11),
    ("middle", "late"): (0.6209, 33),
    ("late", "early"): (0.7383, 2),
    ("late", "middle"): (0.7135, 5),
}
CURRICULA = (  # on CNN#1
    ("early", "middle", "late"),
    ("late", "early", "middle"),
    ("early", "late", "middle"),  # best, on seen and unseen scenarios
    ("late", "middle", "early"),  # second
)
BEST_CURRICULA = (CURRICULA[2], CURRICULA[3])
OTHER_MODEL = {  # the two best curricula of CNN#1 on CNN#2 early, middle, late, after further training: ranks
    CURRICULA[2]: (39, 15, 16),
    CURRICULA[3]: (60, 35, 47),
}
MS_PER_EPISODE = 21.0  # on one core
EPISODES_OF_TRANSFER = 10_000
