"""How numbers are computed: compiled loops, and the helpers that they share. It imports no other package of the project
and no value of a stream."""
