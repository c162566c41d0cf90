"""Metrics agent: the counts behind the online mistake rate and the utilisation, as Prometheus metrics."""
