"""The README's Python blocks run as they stand there: one after the other, in one namespace, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.long
@pytest.mark.slow
def test_the_python_blocks_of_the_readme_run(tmp_path: Path) -> None:
    blocks = python_blocks((ROOT / "README.md").read_text())
    assert len(blocks) >= 2
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(f"print('--- block {i}', flush=True)\n{block}" for i, block in enumerate(blocks)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "model.safetensors").exists()


def test_blocks_are_found() -> None:
    assert python_blocks("a\n```python\nx = 1\n```\n```sh\nls\n```\n```python\ny = 2\n```\n") == ["x = 1\n", "y = 2\n"]
