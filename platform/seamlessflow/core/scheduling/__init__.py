"""The scheduling decision: snapshot in, decisions with reasons out; no clock, no I/O."""
