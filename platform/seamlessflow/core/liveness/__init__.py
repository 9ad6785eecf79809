"""Rules that tell from silences who is at work and who only seems to be."""
