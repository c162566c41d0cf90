"""All agents of the settings as processes on this machine: their folder's lock, their start and stop, their metrics
pages. No options and no output of commands.
"""
