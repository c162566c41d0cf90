"""The command line: a thin layer over the packages. Every module imports its dependencies only when it runs."""
