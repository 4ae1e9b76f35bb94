"""`argosy demo`: real training jobs on a small cluster on this machine, and how a policy schedules them.

`runner` runs it, `workload` names the jobs, `cluster` starts the daemon, `page` writes the report.
"""
