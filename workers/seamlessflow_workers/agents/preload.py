"""Imports everything that an agent runner needs, for the fork server; starts nothing."""

# ruff: noqa: F401 - importing is the purpose

import seamlessflow_workers.agents.environments.arithmetic
import seamlessflow_workers.agents.environments.calculator
import seamlessflow_workers.agents.environments.command
import seamlessflow_workers.agents.main
