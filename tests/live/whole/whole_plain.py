"""A job without the SDK: `whole_plain.py FOLDER STEPS CODE`. It saves its step by itself and ends with the code."""

import os
import sys
import time
from pathlib import Path

from whole_once import Once

folder, steps, code = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if "ARGOSY_ARRAY_INDEX" in os.environ:
    folder = folder / os.environ["ARGOSY_ARRAY_INDEX"]
once = Once(folder)
saved = folder / "saved"
done = int(saved.read_text()) if saved.exists() else 0
while done < steps:
    time.sleep(0.1)
    once.look()
    done += 1
    (folder / "saving").write_text(str(done))
    (folder / "saving").replace(saved)
    print(f"step {done}", flush=True)
(folder / "result").write_text(f"{done}\n")
sys.exit(code)
