"""Hugging Face Trainer: a small BERT that tells sequences of mostly low numbers from those of mostly high ones."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

CLS, PAD, VOCABULARY = 1, 0, 64


class Sequences(Dataset):
    """Numbers, most of them low (label 0) or high (1), of several lengths, padded."""

    def __init__(self, size, seed, length=16):
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for i in range(size):
            n = int(torch.randint(6, length, (1,), generator=generator))
            label = i % 2
            low = torch.rand(n, generator=generator) < (0.2 if label else 0.8)
            numbers = torch.randint(2, VOCABULARY // 2, (n,), generator=generator)
            numbers = torch.where(low, numbers, numbers + VOCABULARY // 2 - 2)
            ids = torch.full((length,), PAD)
            ids[0], ids[1 : n + 1] = CLS, numbers
            self.rows.append({"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": label})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(3)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        pad_token_id=PAD,
    )
    arguments = TrainingArguments(
        output_dir="out",
        num_train_epochs=2,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        warmup_steps=4,
        weight_decay=0.01,
        max_grad_norm=1.0,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        logging_steps=4,
        report_to="none",
        use_cpu=True,
        seed=3,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Sequences(256, seed=0),
        eval_dataset=Sequences(64, seed=1),
        compute_metrics=accuracy,
    )
    trainer.train()
    print(f"steps {trainer.state.global_step}, held-out accuracy {trainer.evaluate()['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
