"""Messages between planes, one module per conversation; every message carries a protocol version."""
