"""A long steady run under faults: `python -m tests.soak`. No part of the test commands."""
