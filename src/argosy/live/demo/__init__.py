"""`argosy demo`: a small cluster on this machine, real training jobs, and what a policy makes of them."""
