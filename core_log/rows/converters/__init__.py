"""How the values of each column type look on the wire."""
