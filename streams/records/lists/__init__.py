"""What was done with lists that a service has shown."""
