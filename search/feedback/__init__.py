"""What the service has shown, and feedback on it, written to `kinstream.feedback`."""
