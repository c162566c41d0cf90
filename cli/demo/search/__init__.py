"""`kinstream demo search`: the documentation of Python packages is searched, and the search learns while one looks."""
