"""Tables of allowed moves: the only definition of what a status may become."""
