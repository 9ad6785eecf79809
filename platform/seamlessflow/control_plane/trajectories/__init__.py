"""Tables of the data plane (migrated here, written by gateways) and their read-only views."""
