"""Argosy on a live cluster: the daemon, its planner and database, the API, and the backends that run jobs.

The modules here are shared by all packages below: job files (`spec`), states, errors, the home folder, files, sockets.
"""
