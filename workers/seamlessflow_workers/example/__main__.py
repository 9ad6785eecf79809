"""`python -m seamlessflow_workers.example --out DIR`: makes the example model. See `build`."""

from seamlessflow_workers.example.build import main

if __name__ == "__main__":
    main()
