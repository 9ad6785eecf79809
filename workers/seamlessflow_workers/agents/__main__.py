"""`python -m seamlessflow_workers.agents`: the agent runner. See `main`."""

from seamlessflow_workers.agents.main import main

if __name__ == "__main__":
    main()
