"""Trajectory trees: longest-prefix match, version spans, resumption, flattening."""
