"""`python -m privbench`."""

from privbench.cli.main import run

if __name__ == "__main__":
    run()
