"""What values of other systems mean: names, labels, numbers, times, and the frame of a schema registry."""
