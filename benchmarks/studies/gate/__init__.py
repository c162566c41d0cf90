"""What the gate promises, measured with simulated users: `python -m benchmarks.studies.gate`."""
