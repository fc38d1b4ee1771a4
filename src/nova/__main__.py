"""`python -m nova`: the command line where its entry point is not on the path, say under `spark-submit`."""

from nova.cli import main

if __name__ == "__main__":
    main()
