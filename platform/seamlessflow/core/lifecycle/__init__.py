"""Tables of allowed moves: the only definition of which status may follow which."""
