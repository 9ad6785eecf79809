"""Advantage estimators, the staleness rule, and the plain-float losses that tensor losses are held to."""
