"""Allowances for rounding, in one place.

Amounts that are equal on paper differ in their last digits once they have been added up in different orders. Where two
of them are compared, one of these tolerances decides what still counts as equal.
"""

GPU_SLACK = 1e-9  # GPUs and shares of GPUs, against a capacity or a queue's limit
TIME_SLACK_S = 1e-9  # two moments of one clock
RESOURCE_SLACK = 1e-6  # CPUs and memory, which are taken and given back many times
COUNT_SLACK = 1e-9  # a quotient that is a whole number on paper, before it is rounded up or down
RELATIVE_SLACK = 1e-9  # two figures of any unit, as a part of one of them
WORK_SLACK_S = 1e-6  # work that is left: less than this counts as finished
TIMER_SLACK_S = 1e-6  # a timer that is due within this time is due now
