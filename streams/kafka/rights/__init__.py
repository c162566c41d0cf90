"""Rights on a cluster: what each role needs, and whether a login has it."""
