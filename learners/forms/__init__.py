"""What algorithms of one kind share: linear maps, bilinear similarities, PSD matrices, steps by pairs and triplets."""
