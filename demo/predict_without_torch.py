"""Load an artifact where PyTorch and LLVM cannot be imported, and print the digest of its predictions.

python demo/predict_without_torch.py FOLDER
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

for absent in ("torch", "llvmlite"):
    sys.modules[absent] = None  # type: ignore[assignment]  # from here on importing it raises ImportError

import isobit  # noqa: E402


def main() -> None:
    folder = Path(sys.argv[1])
    predict = isobit.load(folder / "digits.iso")
    predictions = predict(np.load(folder / "images.npy"))
    print(hashlib.sha256(predictions.tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
