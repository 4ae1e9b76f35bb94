"""The process group of a job's workers: how they connect, agree on what to do next, join, leave and recover.

`membership` carries out in a worker what `argosy.live.supervisor.membership` decides.
"""
