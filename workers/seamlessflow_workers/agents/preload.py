"""Imports all that an agent runner needs, for a fork server; nothing begins."""

# ruff: noqa: F401 - importing is the purpose

import seamlessflow_workers.agents.environments.arithmetic
import seamlessflow_workers.agents.environments.calculator
import seamlessflow_workers.agents.environments.command
import seamlessflow_workers.agents.main
