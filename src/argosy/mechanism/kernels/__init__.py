"""The compiled half of the mechanism: bookkeeping, placement, admission, time.

All state lives in a few matrices (`layout.World`), so that one call crosses from Python with about twenty arguments
and a policy's View is made of row slices. Importing this package imports Numba.
"""
