"""Trajectory trees: longest-prefix match, version spans, answers across engines, flattening."""
