"""Models and tokenizers that are small, the same each time, and made without a download."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = "a cat sat on the mat and dog ran to red tree under blue sky it was not there".split()

SIZES = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


def tokenizer():
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[BOS]", "[EOS]", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
    )


def llama(layers=2):
    torch.manual_seed(7)
    config = LlamaConfig(
        **SIZES,
        num_hidden_layers=layers,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=2,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def mixture(experts):
    """Four experts, two for each token; ``experts``: how Transformers multiplies them."""
    torch.manual_seed(7)
    config = MixtralConfig(
        **SIZES,
        num_hidden_layers=2,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
    )
    model = MixtralForCausalLM(config)
    model.set_experts_implementation(experts)
    return model


def bert():
    torch.manual_seed(7)
    config = BertConfig(
        **SIZES,
        num_hidden_layers=2,
        hidden_dropout_prob=0.0,  # devices draw other numbers
        attention_probs_dropout_prob=0.0,
    )
    return BertModel(config).eval()


def sentences(count=12):
    generator = torch.Generator().manual_seed(5)
    picks = torch.randint(len(WORDS), (count, 8), generator=generator).tolist()
    return [" ".join(WORDS[index] for index in pick) for pick in picks]


def token_rows(count=12):
    """Rows for a Trainer of a causal model."""
    made = tokenizer()
    return [{"input_ids": ids, "labels": ids} for ids in (made(text)["input_ids"] for text in sentences(count))]
