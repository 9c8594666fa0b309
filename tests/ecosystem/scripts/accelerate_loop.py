"""Accelerate: the usual loop over a small GPT-2 that learns arithmetic progressions."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

VOCABULARY, LENGTH = 32, 24


def sequences(count):
    """Arithmetic progressions modulo the vocabulary."""
    start, stride = torch.randint(VOCABULARY, (count, 1)), torch.randint(1, 6, (count, 1))
    return TensorDataset((start + stride * torch.arange(LENGTH)) % VOCABULARY)


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    set_seed(11)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None
    )
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    loader = DataLoader(sequences(320), batch_size=16, shuffle=True)
    epochs = 2
    schedule = get_cosine_schedule_with_warmup(optimizer, 2, epochs * len(loader) // 2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    model.train()
    for epoch in range(epochs):
        for (tokens,) in loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=tokens, labels=tokens).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {accelerator.gather(loss.detach()).mean():.4f}")
    accelerator.save_state("state")
    accelerator.unwrap_model(model).save_pretrained("model", save_function=accelerator.save)


if __name__ == "__main__":
    main()
