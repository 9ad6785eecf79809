"""From a submitted spec to a queued job: checks of the spec, of its files and of its model."""
