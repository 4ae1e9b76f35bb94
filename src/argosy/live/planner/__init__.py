"""The planner: the policy, in a process of its own, with an engine that follows the live cluster."""
