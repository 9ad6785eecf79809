"""Entry point of the trainer process."""

from seamlessflow_workers.train.engine import engine_load
from seamlessflow_workers.train.main import main

main(engine_load)
