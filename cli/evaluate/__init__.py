"""`kinstream evaluate` and `kinstream evaluate paper`: options in, a plan of `replay.evaluation` out.

No measure is calculated here.
"""
