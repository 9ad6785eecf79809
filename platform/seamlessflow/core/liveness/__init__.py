"""Who is at work and who only seems to be: rules over silences."""
