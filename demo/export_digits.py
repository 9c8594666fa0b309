"""Export the trained digits network, and print what PyTorch under Isobit makes of the held-out images.

    python demo/export_digits.py PARAMETERS FOLDER

writes FOLDER/digits.iso and FOLDER/images.npy and prints the digest of the predictions.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch

import isobit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from digits_cnn import DigitsNet, digits


def main() -> None:
    parameters, folder = Path(sys.argv[1]), Path(sys.argv[2])
    model = DigitsNet().eval()
    model.load_state_dict(torch.load(parameters))
    images = digits()[1].tensors[0]
    with isobit.exact(), torch.no_grad():
        predictions = model(images).numpy()
    isobit.export(model, (images,), folder / "digits.iso")
    np.save(folder / "images.npy", images.numpy())
    print(hashlib.sha256(predictions.tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
