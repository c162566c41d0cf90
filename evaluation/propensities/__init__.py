"""How often users look at each place of a list, from lists with places that were swapped by a coin."""
