"""The SDK that training scripts import: `argosy.job()` makes a loop elastic; adapters connect other frameworks.

`job` is the entry point; `session` and `training` run the loop; the packages hold its parts: data, gradients, group,
checkpoints, growth, adapters. Nothing is imported here, so that a script pays only for what it uses.
"""
