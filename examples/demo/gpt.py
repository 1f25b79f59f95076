"""A small GPT over characters and the text that it learns, this repository's own."""

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]


class Text:
    """A text as a tensor of character numbers."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        number = {character: i for i, character in enumerate(self.characters)}
        self.data = torch.tensor([number[character] for character in text])

    def batches(self, steps: int, size: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Windows of the text and the same windows one character on; the same on every call."""
        generator = torch.Generator().manual_seed(1)
        for _ in range(steps):
            begins = torch.randint(len(self.data) - context - 1, (size, 1), generator=generator)
            window = begins + torch.arange(context)
            yield self.data[window], self.data[window + 1]

    def decode(self, numbers: Tensor) -> str:
        """Numbers back to characters."""
        return "".join(self.characters[i] for i in numbers.tolist())


def repository_text() -> Text:
    """The documents and public headers of this repository."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("include/**/*.h")]
    return Text("\n".join(path.read_text(encoding="utf-8") for path in sorted(files)))


class Block(nn.Module):
    """Causal self-attention, then a small network for each position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Character and position embeddings, blocks, and a projection back to characters."""

    def __init__(self, characters: int, width: int = 64, heads: int = 4, layers: int = 2, context: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.context = context
        self.character = nn.Embedding(characters, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.character(tokens) + self.position(positions))))

    @torch.no_grad()
    def write(self, length: int) -> Tensor:
        """Characters that the model draws one after another, by the device's own random numbers."""
        tokens = torch.zeros(1, 1, dtype=torch.long, device=self.head.weight.device)
        for _ in range(length):
            chances = self(tokens[:, -self.context :])[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(chances, 1)], dim=1)
        return tokens[0, 1:].cpu()
