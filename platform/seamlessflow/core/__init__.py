"""Pure domain logic: no framework, no torch, no clock, no I/O. Everything else depends on it; it depends on nothing."""
