"""Advantage estimators, the staleness rule, and the plain-float losses that the tensor losses are tested against."""
