"""The imports of this program, and a generator whose state must not be shared."""

# ruff: noqa: F401 - importing is the purpose

import numpy.random

import tests.fakes.forked
