"""What values of other systems mean: names, labels, times, and the frame of a schema registry."""
