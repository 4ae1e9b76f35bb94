"""Learned placement: the tasks of one gang on devices, and jobs beside others whose speed they share.

`problem` is the small problem that `mirhoseini` and `spotlight` search; `gangs` is the same problem on the nodes of a
whole cluster, on which Spotlight's placer is trained; `harmony` trains the policy of that name.
"""
