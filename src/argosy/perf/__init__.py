"""Performance models of jobs: throughput, interference, machine speeds, overheads, statistical efficiency.

base               locality levels and the protocol of a model
iteration          T_grad = α + β·m with sync by locality (Pollux): the default
table              measured throughputs with interpolation
parameter_server   f(p, w) of Optimus, and a smooth surface for DL2's jobs
rigid              linear in GPUs × type speed × locality slowdown
catalogue          fitted parameters of published networks, by name
tables             all of it compiled to arrays: the only thing the engine reads
interference, fluctuation, overhead, goodput, fit, gpus
"""
