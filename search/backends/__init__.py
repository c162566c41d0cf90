"""What a space answers from: our own index, or a store of others."""
