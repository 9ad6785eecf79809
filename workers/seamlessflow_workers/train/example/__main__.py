"""`python -m seamlessflow_workers.train.example --out DIR`: makes the example model. See `build`."""

from seamlessflow_workers.train.example.build import main

if __name__ == "__main__":
    main()
