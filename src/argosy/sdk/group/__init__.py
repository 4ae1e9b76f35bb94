"""The process group of a job's workers: how they meet, agree on what comes next, join, leave and recover.

`membership` is the worker's side of what `argosy.live.supervisor.membership` decides.
"""
