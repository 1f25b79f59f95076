"""What ``--experimental.custom_import`` adds to torchtitan: a Llama of two layers."""

from torchtitan.models.llama3 import TransformerModelArgs, llama3_args

llama3_args["tiny"] = TransformerModelArgs(dim=64, n_layers=2, n_heads=4, vocab_size=32, rope_theta=500000)
