"""Entry point of the trainer process."""

from seamlessflow_workers.train.main import main

main()
