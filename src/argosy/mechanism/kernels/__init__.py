"""The compiled half of the mechanism: bookkeeping, placement, admission, time.

All state is in a few matrices (`layout.World`), so that a call from Python passes about twenty arguments and a policy's
View consists of row slices. Importing this package imports Numba.
"""
