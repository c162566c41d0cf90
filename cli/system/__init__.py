"""The system as a whole: settings to begin with, a check before the start, and the state of what runs."""
