"""`kinstream demo memory`: an agent asks a service over HTTP, says what it cited, and finds it higher next time."""
