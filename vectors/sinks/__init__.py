"""Sinks of `kinstream.vectors`: the newest complete version of a space in a store of the user's."""
