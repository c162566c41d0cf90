"""Parts of events: what was done with lists that a service has shown, and where an event stands in a load."""
