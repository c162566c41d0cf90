"""The command line: a thin roof over the packages. Every module loads what it needs only when it runs."""
