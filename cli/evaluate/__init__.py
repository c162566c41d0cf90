"""`kinstream evaluate`: options in, a plan of `replay.evaluation` out.

No measure is calculated here.
"""
