"""Where jobs really run. Each backend implements the protocol in `base`.

`fake` computes what runs would do; `local` starts processes on this machine.
"""
