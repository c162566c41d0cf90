"""How numbers are computed: compiled loops, and what they share. No room of the project is imported here, and no
value of a stream."""
