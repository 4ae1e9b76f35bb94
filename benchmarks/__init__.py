"""Speed and memory of Argosy, measured: `python -m benchmarks`."""
