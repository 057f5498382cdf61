import sys

from dataset_controller.cli import main

if __name__ == "__main__":
    sys.exit(main(packages=("tests.dataset_controller.fake_forebay",)))
