"""What every command needs before it begins: the settings and their checks, the agent of a role and a name, and
confirmation of irreversible changes.
"""
