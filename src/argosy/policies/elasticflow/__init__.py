"""ElasticFlow: deadlines are promised on arrival, and kept with elastic sizes (Gu et al., ASPLOS'23).

`reservations` plans one job on the GPUs that are free from now on; `policy` admits jobs and gives away spare GPUs.
"""

from argosy.policies.elasticflow import policy

__all__ = ["policy"]
