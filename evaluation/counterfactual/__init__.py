"""What a model would have scored on lists that others have shown: estimates from drafted lists of the log."""
