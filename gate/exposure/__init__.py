"""What users were shown and clicked in a space, counted from the same lists that the gate reads."""
