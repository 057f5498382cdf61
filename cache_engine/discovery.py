"""Where the controller is: the variable FOREBAY_API, else the file that `forebay up` leaves in its state directory.

Nothing is asked over the network here: a stale address shows at the first call, whose error then says where the
address came from (`control.py`). The environment is an argument; only the edge reads os.environ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cache_engine.control import Control
from cache_engine.errors import ControllerUnavailable

CONTROLLER_FILE = "controller.json"


def state_directory(environ: Mapping[str, str]) -> Path:
    """$FOREBAY_HOME, else ~/.local/state/forebay. Raises ControllerUnavailable where neither is known."""
    if home := environ.get("FOREBAY_HOME"):
        return Path(home).absolute()
    if home := environ.get("HOME"):
        return Path(home) / ".local" / "state" / "forebay"
    raise ControllerUnavailable("neither FOREBAY_HOME nor HOME is set; set FOREBAY_HOME to the state directory")


def find_control(environ: Mapping[str, str]) -> Control:
    """The controller of this environment. Raises ControllerUnavailable where none was ever started."""
    if url := environ.get("FOREBAY_API"):
        return Control(url, origin="named by FOREBAY_API")
    path = state_directory(environ) / CONTROLLER_FILE
    try:
        document = json.loads(path.read_text())
        return Control(str(document["url"]), origin=f"named by {path}")
    except FileNotFoundError as error:
        message = f"no controller runs on {path.parent}; start one with `forebay up`, or set FOREBAY_API"
        raise ControllerUnavailable(message) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} does not name a controller ({error}); stop it with `forebay down`, then `forebay up`"
        raise ControllerUnavailable(message) from error
