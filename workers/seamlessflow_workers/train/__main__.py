"""Entry point of the trainer process."""

from seamlessflow_workers.train.gang import gang_worker
from seamlessflow_workers.train.main import main
from seamlessflow_workers.train.rank_group import engine_load
from seamlessflow_workers.train.weight_offers import offers_open

main(engine_load, offers_open, gang_worker)
