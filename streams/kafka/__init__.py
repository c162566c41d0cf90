"""Clients of the brokers: how they log in, what they may do, what the cluster holds, reading a range, and the gapless
producer. No faust, no checkpoint and no agent.
"""
