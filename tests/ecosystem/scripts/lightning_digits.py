"""Lightning: a small convolutional network on scikit-learn's digits."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Digits(L.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        x, y = load_digits(return_X_y=True)
        images = torch.tensor(x, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
        everything = TensorDataset(images, torch.tensor(y))
        self.train, self.val = random_split(everything, [0.8, 0.2])

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, num_workers=1, persistent_workers=True)

    def val_dataloader(self):
        return DataLoader(self.val, 256)


class Classifier(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 16, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(7, workers=True)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        deterministic=True,
        log_every_n_steps=5,
        logger=CSVLogger("logs", version=0),
        callbacks=[
            ModelCheckpoint("checkpoints", filename="best", monitor="val_loss", save_last=True),
            EarlyStopping("val_loss", patience=3),
            LearningRateMonitor(),
        ],
    )
    trainer.fit(Classifier(), Digits())
    print(f"steps {trainer.global_step}, held-out accuracy {float(trainer.callback_metrics['val_acc']):.3f}")
