"""The trainer: a child process of the supervisor that turns batches into policy versions with DeepSpeed."""
