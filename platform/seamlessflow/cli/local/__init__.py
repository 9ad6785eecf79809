"""The embedded installation: PostgreSQL, Valkey and the processes of every plane on one machine."""
