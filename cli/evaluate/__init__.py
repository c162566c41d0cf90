"""`kinstream evaluate`: options in, a plan of `kinstream.evaluation` out.

No measure is calculated here.
"""
