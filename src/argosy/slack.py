"""Allowances for rounding, in one place.

Amounts that are equal on paper differ in their last digits once they have been added up in different orders. Where two
of them are compared, one of these decides what still counts as equal.
"""

GPU_SLACK = 1e-9  # GPUs and shares of GPUs, against a capacity or a queue's limit
TIME_SLACK_S = 1e-9  # two moments of one clock
RESOURCE_SLACK = 1e-6  # CPUs and memory, which are taken and given back many times
TIMER_SLACK_S = 1e-6  # a timer that is due so soon is due now
