"""`kinstream demo search`: its page, its rankings, and the whole of it in a browser."""
