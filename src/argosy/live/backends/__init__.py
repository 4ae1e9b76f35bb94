"""Backends run the jobs of the live daemon. Each implements the protocol in `base`.

`local` starts processes on this machine; `fake` only computes what runs would do, for tests and demonstrations.
"""
