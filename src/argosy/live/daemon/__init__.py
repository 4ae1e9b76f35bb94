"""The daemon: it polls the backend, asks the planner, writes rows, and sends orders; and it answers the API's calls.

`daemon` is the process, `bookkeeper` one pass of it, `service` what people can ask for.
"""
