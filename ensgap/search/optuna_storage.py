"""Where Optuna keeps a study: a journal file in the study's folder, or any database that SQLAlchemy reaches."""

import importlib.util
import json
import secrets
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from ensgap.errors import UserError
from ensgap.folder import write_json
from ensgap.secrets import mask
from ensgap.storage import Place


def open_storage(where: Path | str) -> BaseStorage:
    """The journal file or the database at this address; Optuna's own tools read both."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if isinstance(where, Path):
        return JournalStorage(JournalFileBackend(str(where)))
    try:
        return RDBStorage(_with_driver(where), engine_kwargs={"pool_pre_ping": True})  # a lost connection is made anew
    except Exception as error:  # of SQLAlchemy, of the driver, of Optuna: there is no common kind
        reason = mask(" ".join(str(error).split("\n")[0].split())).replace(where, mask(where))
        raise UserError(
            f"The Optuna storage {mask(where)} cannot be opened ({reason}); --optuna-storage takes a database address "
            "such as postgresql://user@host/database, whose driver must be installed (pip install 'psycopg[binary]')."
        ) from None


def _with_driver(address: str) -> str:
    """PostgreSQL by the driver that is there: psycopg, unless psycopg2 is."""
    scheme, colon, rest = address.partition(":")
    if scheme in ("postgresql", "postgres"):
        scheme = "postgresql" + ("+psycopg2" if importlib.util.find_spec("psycopg2") else "+psycopg")
    return scheme + colon + rest


def study_name(folder: Place, usual: str, address: str | None) -> str:
    """The name of the study in its storage. A database serves many studies, so there it is made unique, once, and kept
    in the folder's optuna.json.
    """
    if address is None:
        return usual
    file = folder / "optuna.json"
    if file.exists():
        return str(json.loads(file.read_bytes())["study"])
    name = f"{usual}-{secrets.token_hex(4)}"
    write_json(file, {"study": name, "storage": mask(address)})
    return name
