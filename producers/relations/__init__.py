"""Relations between two items, as files hold them and as a block holds them."""
