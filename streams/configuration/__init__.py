"""The parts of the settings: sections, the layers that they come from, and texts of their faults."""
