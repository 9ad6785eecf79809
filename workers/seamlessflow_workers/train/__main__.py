"""Entry point of the trainer process."""

from seamlessflow_workers.train.main import main
from seamlessflow_workers.train.rank_group import engine_load

main(engine_load)
