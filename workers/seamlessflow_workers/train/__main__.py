"""Entry point of the trainer process."""

from seamlessflow_workers.train.distributed.gang import gang_worker
from seamlessflow_workers.train.distributed.rank_group import engine_load
from seamlessflow_workers.train.main import main
from seamlessflow_workers.train.weight_offers import offers_open

main(engine_load, offers_open, gang_worker)
