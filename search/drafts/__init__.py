"""The lists of a space with a gate that services show: whose they are, which queries get them, and their figures."""
