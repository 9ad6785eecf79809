"""The data plane's tables (migrated here, written by gateways), and their read-only REST API."""
