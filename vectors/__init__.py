"""Catalogues re-embedded by an item map: the agent that writes versions, the measure that orders one, the sinks."""
