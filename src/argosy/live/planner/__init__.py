"""The planner: the policy, in a process of its own, deciding about a mirror of the live cluster."""
