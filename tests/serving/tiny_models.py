"""Models that are small, random and the same each time, with a tokenizer whose words are numbers."""

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel

VOCABULARY = 256
LENGTH = 256
END = 2
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": LENGTH,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": END,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "tie_word_embeddings": False}
WINDOWS = {
    **GROUPED,
    "tie_word_embeddings": True,
    "head_dim": 16,
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
LATENT = {
    **SIZES,
    **{
        "tie_word_embeddings": False,
        "num_key_value_heads": 4,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
    },
    **{"v_head_dim": 16, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 32, "first_k_dense_replace": 1, "topk_group": 1},
}
LATENT2 = {**LATENT, "q_lora_rank": None, "n_group": 1, "topk_method": "greedy"}
LATENT3 = {**LATENT, "q_lora_rank": 24, "n_group": 2, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}

CONFIGURATIONS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "draft": ("LlamaForCausalLM", "LlamaConfig", {**GROUPED, "num_hidden_layers": 1}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**GROUPED, **EXPERTS}),
    "deepseek2": ("DeepseekV2ForCausalLM", "DeepseekV2Config", LATENT2),
    "deepseek3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", LATENT3),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**WINDOWS, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**WINDOWS, "sliding_window_pattern": 2}),
    "bloom": ("BloomForCausalLM", "BloomConfig", {**SIZES, "n_head": 4, "n_layer": 2}),
    "bert": ("BertModel", "BertConfig", SIZES),
}


def made(name, seed=7):
    architecture, config, options = CONFIGURATIONS[name]
    torch.manual_seed(seed)
    made = getattr(transformers, config)(**options)
    made._attn_implementation = "eager"  # torch's fused attention would leave caps of scores out
    model = getattr(transformers, architecture)(made).float().eval()
    with torch.no_grad():
        for name, one in (*model.named_parameters(), *model.named_buffers()):  # biases and norms: zeros and ones
            if one.dim() == 1 and "inv_freq" not in name:
                one += torch.randn_like(one) * 0.1
    return model


def save(name, folder):
    made(name).save_pretrained(folder)
    save_tokenizer(folder)


def save_tokenizer(folder):
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{str(index): index for index in range(3, VOCABULARY)}}
    fast = Tokenizer(WordLevel(words, unk_token="<pad>"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    _saved(fast, folder)


def save_characters(folder):
    """A tokenizer whose words are bytes; its ASCII characters by id."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCABULARY - 3]
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{symbol: 3 + index for index, symbol in enumerate(symbols)}}
    fast = Tokenizer(BPE(words, []))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    _saved(fast, folder)
    return {words[symbol]: text for symbol in symbols if (text := fast.decoder.decode([symbol])).isascii()}


def _saved(fast, folder):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<pad>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    tokenizer.save_pretrained(folder)


def prompts(count=4, seed=5, longest=40):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest, (count,), generator=generator).tolist()
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


class RoundedCache(transformers.DynamicCache):
    """Of keys and values that a function has rounded; (batch, heads, tokens, size) each."""

    def __init__(self, rounded):
        super().__init__()
        self.rounded = rounded

    def update(self, keys, values, *others, **options):
        return super().update(self.rounded(keys), self.rounded(values), *others, **options)


def greedy(model, prompts, count, rounded=None):
    model.generation_config.eos_token_id = None
    found = []
    for prompt in prompts:
        cache = {} if rounded is None else {"past_key_values": RoundedCache(rounded)}
        row = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, use_cache=True, **cache)
        found.append(row[0, len(prompt) :].tolist())
    return found


def shortfall(model, prompts, rows):
    """By how much a token of the rows is less likely than the best at its place, at most; in logarithms."""
    worst = 0.0
    for prompt, row in zip(prompts, rows, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *row]])).logits[0, len(prompt) - 1 : -1].float()
        chosen = logits.gather(1, torch.tensor(row)[:, None])[:, 0]
        worst = max(worst, (logits.amax(-1) - chosen).max().item())
    return worst
