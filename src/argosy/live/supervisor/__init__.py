"""The supervisor of one run: it starts the workers, listens to them, replaces lost ones, and records how the run ended.

`python -m argosy.live.supervisor RUN.json [LOCK]` is a process of its own and outlives the daemon. `zygote` and `child`
run under the user's interpreter and use the standard library only.
"""
