"""HTTP for the daemon and its clients: servers with limits on connections, the local socket, and TLS.

Nothing here knows what a request means; that is `argosy.live.api`.
"""
