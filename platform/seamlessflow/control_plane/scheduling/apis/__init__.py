"""Routes of this app: they check who asks, then call services and selectors."""
