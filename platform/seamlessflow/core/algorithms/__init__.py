"""Advantage estimators, staleness rules and the plain-float reference losses that the tensor losses are tested against."""
