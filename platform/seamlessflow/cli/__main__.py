"""`python -m seamlessflow.cli`: the command without its console script."""

from seamlessflow.cli.main import main

main()
