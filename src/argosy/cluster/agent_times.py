"""The times by which a cluster agrees that a node is lost, and what they must be for the fence to hold.

When a lease ends, the session on the node kills its workers. If it hangs, the agent kills it, and then its workers. The
head gives the devices to others when lease and margin have passed, so the margin must cover all of that.
"""

from __future__ import annotations

LOOK_S = 0.25  # an agent looks at its sessions this often
LATE_S = 0.4  # a session that is alive this long after its lease is killed
KILL_S = 0.25  # from then until its workers are dead
LEAST_MARGIN_S = round(LOOK_S + LATE_S + KILL_S, 6)
SILENCE_S, LEASE_S, MARGIN_S = 2.0, 6.0, 1.0  # unless the cluster file says otherwise


def check_times(silence: float, lease: float, margin: float) -> None:
    """Raise ValueError if a device could be given out before its last user is dead, or if a lease is too short."""
    if lease < 2 * silence:
        raise ValueError(f"lease ({lease:g} s) must be at least twice silence ({silence:g} s)")
    if margin < LEAST_MARGIN_S:
        what = f"margin ({margin:g} s) is shorter than the {LEAST_MARGIN_S:g} s in which an agent kills what hangs"
        raise ValueError(f"{what}; leave it out, or give at least {LEAST_MARGIN_S:g}")
