"""Refuses answers that would not make a working project; each text says what to answer instead.

Cookiecutter renders this file and runs it alone, before it writes anything; ``torch-backplane new`` imports it and asks
again.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
from collections.abc import Callable

# What torch.device() parses as something else.
TORCH_DEVICE_TYPES = frozenset(
    """cpu cuda fpga hip hpu ideep ipu lazy maia meta mkldnn mps msnpu mtia opencl opengl ort privateuseone
    ve vulkan xla xpu""".split()
)
# Names of build targets and libraries that the device's own would collide with.
TAKEN_BY_THE_BUILD = frozenset(
    "all backplane clean depend help install shm test torch_cpu torch_python uninstall".split()
)
CPP_KEYWORDS = frozenset(
    """alignas alignof asm auto bool case catch char compl concept const consteval constexpr constinit decltype default
    delete do double enum explicit export extern float friend goto inline int long mutable namespace new noexcept
    nullptr operator private protected public register requires short signed sizeof static std struct switch template
    this throw typedef typeid typename union unsigned using virtual void volatile wchar_t""".split()
)
# Packages that the project itself needs, beside the standard library's.
NEEDED_PACKAGES = frozenset(
    "backplane backplane_sdk backplane_tools click cookiecutter numpy pytest rich torch torch_backplane".split()
)
NEEDED_PROJECTS = NEEDED_PACKAGES | {"torch-backplane", "backplane-sdk"}


def check(answers: dict[str, str]) -> list[str]:
    """What is wrong with the answers, a sentence each."""
    return [text for question in answers if (text := refuse(question, answers[question]))]


def refuse(question: str, answer: object) -> str | None:
    """Why ``answer`` cannot be taken, or None if it can."""
    if question.startswith("_"):
        return None
    text = str(answer)
    if text != text.strip() or not text:
        return f"{question} is {text!r}: it must not be empty, nor begin or end with a space."
    if not text.isprintable() or any(c in text for c in '"\\{}'):
        return f"{question} is {text!r}: leave out quotation marks, backslashes, braces and line breaks."
    if len(text) > LIMITS.get(question, 200):
        return f"{question} is {text!r}, {len(text)} characters long: {LIMITS.get(question, 200)} are the most."
    rule = RULES.get(question)
    return rule(text) if rule else None


def refuse_device_name(name: str) -> str | None:
    """It becomes torch.<name>, Tensor.is_<name>, Tensor.<name>() and the prefix of environment variables."""
    said = f"device_name is {name!r}: "
    if not re.fullmatch("[a-z][a-z_]*", name):
        return said + "torch reads only lower-case letters and underscores (no digits). Begin with a letter."
    if name in TORCH_DEVICE_TYPES:
        return said + "torch has a device type of that name. Choose another, for example your product's name."
    if keyword.iskeyword(name):
        return said + f"that is a word of Python, and torch.{name} could not be written. Choose another."
    if name in TAKEN_BY_THE_BUILD:
        return said + "a target or library of the build has that name. Choose another."
    if name in TORCH_NAMES:
        return (
            said + f"torch uses torch.{name}, Tensor.{name}, Module.{name} or Tensor.is_{name} itself. Choose another."
        )
    return None


def refuse_package_name(name: str) -> str | None:
    """The package is imported, and must not hide what the project needs."""
    said = f"package_name is {name!r}: "
    if not (name.isascii() and name.isidentifier()) or name != name.lower():
        return said + "use lower-case letters, digits and underscores, and do not begin with a digit."
    if keyword.iskeyword(name):
        return said + f"that is a word of Python, and `import {name}` could not be written. Choose another."
    if name in CPP_KEYWORDS:
        return said + "that is a word of C++, and the project's namespace is named so. Choose another."
    if name in sys.stdlib_module_names:
        return said + "it would hide the module of that name in Python's standard library. Choose another."
    if name in NEEDED_PACKAGES:
        return said + "it would hide a package that the project needs. Choose another."
    return None


def refuse_project_name(name: str) -> str | None:
    """What pip installs."""
    said = f"project_name is {name!r}: "
    if not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        return said + "use letters, digits, '-', '_' and '.', and begin and end with a letter or a digit."
    if re.sub("[-_.]+", "-", name).lower() in NEEDED_PROJECTS:
        return said + "pip knows another project by that name, and this one needs it. Choose another."
    return None


def one_of(question: str, *choices: str) -> Callable[[str], str | None]:
    """A rule for a question with a list of answers."""
    return lambda answer: None if answer in choices else f"{question} is {answer!r}: it is one of {', '.join(choices)}."


RULES: dict[str, Callable[[str], str | None]] = {
    "device_name": refuse_device_name,
    "package_name": refuse_package_name,
    "project_name": refuse_project_name,
    "license": one_of("license", "BSD-3-Clause", "Apache-2.0", "MIT", "Proprietary"),
    "driver": one_of("driver", "sim", "opencl", "vulkan", "cuda", "minimal", "minimal_cpp"),
    "kernels": one_of("kernels", "portable", "add", "none"),
    "ci": one_of("ci", "github", "none"),
}
LIMITS = {
    "device_name": 24,
    "package_name": 32,
    "project_name": 64,
    "vendor_name": 64,
    "author": 64,
    "description": 100,
}

# What a device name could hide: the attributes of torch, Tensor, Module, the storages and PackedSequence, and what
# follows an `is_` there. tests/template/test_answers.py holds this list against the installed torch.
TORCH_NAMES = frozenset(
    """
abs abs_ absolute absolute_ accelerator acos acos_ acosh acosh_ add add_ add_module addbmm addbmm_ addcdiv addcdiv_
addcmul addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint affine_grid_generator alias_copy all allclose
alpha_dropout alpha_dropout_ amax amin aminmax amp angle anomaly_check_nan_enabled anomaly_enabled any ao apply apply_
arange arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan_ arctanh arctanh_
are_deterministic_algorithms_enabled argmax argmin argsort argwhere as_strided as_strided_ as_strided_copy
as_strided_scatter as_subclass as_tensor asarray asin asin_ asinh asinh_ atan atan_ atanh atanh_ autocast
autocast_cache_enabled autocast_cpu_enabled autocast_decrement_nesting autocast_enabled autocast_increment_nesting
autocast_ipu_enabled autocast_xla_enabled autograd backends backward baddbmm baddbmm_ bartlett_window batch_norm
batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats batch_sizes bernoulli bernoulli_ bilinear
binary_cross_entropy_with_logits bincount binomial bit bitwise_and bitwise_and_ bitwise_left_shift bitwise_left_shift_
bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_
blackman_window block_diag bmm bool broadcast_shapes broadcast_tensors broadcast_to bucketize buffers builtins byte
byteswap call_super_init can_cast cartesian_prod cat cauchy_ ccol_indices ccol_indices_copy cdist cdouble ceil ceil_
celu celu_ cfloat chain_matmul chalf channel_shuffle channels_last char children cholesky cholesky_inverse
cholesky_solve choose_qparams_optimized chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ classes
classproperty clear_autocast_cache clip clip_ clone coalesce coalesced col_indices col_indices_copy column_stack
combinations compile compiler complex complex_double complex_float concat concatenate cond conj conj_physical
conj_physical_ const_data_ptr constant_pad_nd contiguous contiguous_format contrib conv_tbc convolution copy_ copysign
copysign_ corrcoef cos cos_ cosh cosh_ cosine_embedding_loss cosine_similarity count count_nonzero cov cpp cpu cross
crow_indices crow_indices_copy ctc_loss ctypes cuda cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution
cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable
cummax cummin cumprod cumprod_ cumsum cumsum_ cumulative_trapezoid data data_ptr default_generator dense_dim
dequantize det detach detach_ detach_copy deterministic_algorithms_warn_only_enabled device diag diag_embed diagflat
diagonal diagonal_copy diagonal_scatter diff digamma digamma_ dim dim_order dist distributed distributions div div_
divide divide_ dot double dropout dropout_ dsmm dsplit dstack dtype dump_patches e eig einsum element_size embedding
embedding_bag embedding_renorm_ empty empty_like empty_permuted empty_quantized empty_strided enable_grad eq eq_ equal
erf erf_ erfc erfc_ erfinv erfinv_ eval exp exp_ expand expand_as expand_copy exponential_ export extra_repr eye
fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fbgemm_linear_quantize_weight
fbgemm_pack_quantized_matrix feature_alpha_dropout feature_alpha_dropout_ feature_dropout feature_dropout_ fft
filename fill fill_ fill_diagonal_ finfo fix fix_ flatten flip fliplr flipud float float_power float_power_
floating_point floor floor_ floor_divide floor_divide_ fmax fmin fmod fmod_ foreach fork forward frac frac_ frexp
frobenius_norm from_buffer from_dlpack from_file from_numpy frombuffer full full_like func functional functools
fused_moving_avg_obs_fake_quant futures fx gather gcd gcd_ ge ge_ geometric_ geqrf ger get_autocast_cpu_dtype
get_autocast_dtype get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype get_buffer get_default_device
get_default_dtype get_deterministic_debug_mode get_device get_device_module get_extra_state get_file_path
get_num_interop_threads get_num_threads get_parameter get_rng_state get_submodule glob grad grad_dtype grad_enabled
grad_fn gradient greater greater_ greater_equal greater_equal_ grid_sampler group_norm gru gru_cell gt gt_ half
hamming_window hann_window hardshrink has_lapack has_mkl has_openmp has_spectral hash_tensor heaviside heaviside_
hinge_embedding_loss histc histogram histogramdd hpu hsmm hsplit hspmm hstack hub hypot hypot_ igamma igamma_ igammac
igammac_ iinfo imag import_ir_module import_ir_module_from_buffer importlib index index_add index_add_ index_copy
index_copy_ index_fill index_fill_ index_put index_put_ index_reduce index_reduce_ index_select indices indices_copy inf
inference inference_mode inference_mode_enabled init_num_threads initial_seed inner inspect instance_norm int int_repr
inverse ipu is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled
is_autocast_enabled is_autocast_ipu_enabled is_autocast_xla_enabled is_coalesced is_complex is_conj is_contiguous is_cpu
is_cuda is_deterministic_algorithms_warn_only_enabled is_distributed is_floating_point is_grad_enabled is_hpu
is_inference is_inference_mode_enabled is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_neg is_nested
is_nonzero is_pinned is_quantized is_same_size is_set_to is_shared is_signed is_sparse is_sparse_csr is_storage
is_tensor is_vulkan is_vulkan_available is_warn_always_enabled is_xla is_xpu isclose isfinite isin isinf isnan isneginf
isposinf isreal istft item itemsize jagged jit kaiser_window kl_div kron kthvalue layer_norm layout lcm lcm_ ldexp
ldexp_ le le_ leaf legacy_contiguous_format lerp lerp_ less less_ less_equal less_equal_ lgamma lgamma_ library linalg
linspace load load_state_dict lobpcg log log_ log_normal_ log_softmax logaddexp logcumsumexp logdet logical_and
logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit logit_ logspace logsumexp
long lstm lstm_cell lstsq lt lt_ lu lu_solve lu_unpack maia manual_seed map_ margin_ranking_loss masked masked_fill
masked_fill_ masked_scatter masked_scatter_ masked_select math matmul matrix_exp matrix_power matrix_rank max maximum
mean median memory_format merge_type_from_type_comment meshgrid meta min minimum miopen_batch_norm miopen_convolution
miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss
miopen_depthwise_convolution miopen_rnn mkldnn mkldnn_convolution mkldnn_linear_backward_weights mkldnn_rnn_layer mm
mode module_load modules monitor moveaxis movedim mps msort mtia mul mul_ multinomial multiply multiply_ multiprocessing
mv mvlgamma mvlgamma_ name named_buffers named_children named_modules named_parameters nan nan_to_num nan_to_num_
nanmean nanmedian nanquantile nansum narrow narrow_copy native_batch_norm native_channel_shuffle native_dropout
native_group_norm native_layer_norm native_norm nativert nbytes ndim ndimension ne ne_ neg neg_ negative negative_
nelement nested new new_empty new_empty_strided new_full new_ones new_tensor new_zeros newaxis nextafter nextafter_ nn
no_grad nonzero nonzero_static norm norm_except_dim normal normal_ not_equal not_equal_ nuclear_norm numa numel numpy
ones ones_like onnx ops optim orgqr ormqr os outer output_nr overrides package pairwise_distance parameters parse_ir
parse_schema parse_type_comment pca_lowrank pdist per_channel_affine per_channel_affine_float_qparams
per_channel_symmetric per_tensor_affine per_tensor_symmetric permute permute_copy pi pickle_storage_type pin_memory
pinned pinverse pixel_shuffle pixel_unshuffle platform poisson poisson_nll_loss polar polygamma polygamma_ positive pow
pow_ prelu prepare_multiprocessing_environment preserve_format prod profiler promote_types put put_ q_per_channel_axis
q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qr qscheme quantile quantization
quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized quantized_batch_norm quantized_gru
quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell quasirandom rand
rand_like randint randint_like randn randn_like random random_ randperm range ravel real reciprocal reciprocal_
record_stream register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
register_full_backward_hook register_full_backward_pre_hook register_hook register_load_state_dict_post_hook
register_load_state_dict_pre_hook register_module register_parameter register_post_accumulate_grad_hook
register_state_dict_post_hook register_state_dict_pre_hook reinforce relu relu_ remainder remainder_ renorm renorm_
repeat repeat_interleave requires_grad requires_grad_ reshape reshape_as resizable resize resize_ resize_as resize_as_
resize_as_sparse_ resolve_conj resolve_neg result_type retain_grad retains_grad return_types rms_norm rnn_relu
rnn_relu_cell rnn_tanh rnn_tanh_cell roll round round_ row_indices row_indices_copy row_stack rrelu rrelu_ rsqrt rsqrt_
rsub saddmm same_size save scalar_tensor scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_
searchsorted seed segment_reduce select select_copy select_scatter selu selu_ serialization set_ set_anomaly_enabled
set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled
set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled
set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode set_extra_state
set_flush_denormal set_grad_enabled set_num_interop_threads set_num_threads set_printoptions set_rng_state set_submodule
set_to set_warn_always sgn sgn_ shape share_memory share_memory_ shared short sigmoid sigmoid_ sign sign_ signal signbit
signed sin sin_ sinc sinc_ sinh sinh_ size slice_copy slice_inverse slice_scatter slogdet smm softmax solve sort
sorted_indices sparse sparse_bsc sparse_bsc_tensor sparse_bsr sparse_bsr_tensor sparse_compressed_tensor sparse_coo
sparse_coo_tensor sparse_csc sparse_csc_tensor sparse_csr sparse_csr_tensor sparse_dim sparse_mask sparse_resize_
sparse_resize_and_clear_ special split split_copy split_with_sizes split_with_sizes_copy spmm sqrt sqrt_ square square_
squeeze squeeze_ squeeze_copy sspaddmm stack state_dict std std_mean stft storage storage_offset storage_type stride
strided sub sub_ subtract subtract_ sum sum_to_size svd svd_lowrank swapaxes swapaxes_ swapdims swapdims_
sym_constrain_range sym_constrain_range_for_size sym_float sym_fresh_size sym_int sym_ite sym_max sym_min sym_not
sym_sqrt sym_sum symeig sys t t_ t_copy take take_along_dim tan tan_ tanh tanh_ tensor tensor_split tensordot testing
textwrap thread_safe_generator threading threshold threshold_ tile to to_dense to_dlpack to_empty to_mkldnn
to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr tolist topk torch
torch_version trace train transpose transpose_ transpose_copy trapezoid trapz triangular_solve tril tril_ tril_indices
triplet_margin_loss triu triu_ triu_indices true_divide true_divide_ trunc trunc_ type type_as typename types typing
typing_extensions unbind unbind_copy unflatten unfold unfold_copy uniform_ unify_type_list unique unique_consecutive
unravel_index unsafe_chunk unsafe_split unsafe_split_with_sizes unsorted_indices unsqueeze unsqueeze_ unsqueeze_copy
untyped untyped_storage use_deterministic_algorithms utils values values_copy vander var var_mean vdot version view
view_as view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy vmap volatile vsplit vstack vulkan
vulkan_available wait warn_always_enabled warnings where while_loop windows xla xlogy xlogy_ xpu zero_ zero_grad zeros
zeros_like
""".split()
)

if __name__ == "__main__":
    if problems := check(json.loads(r"""{{ cookiecutter | tojson }}""")):
        sys.exit("\n".join(["The project was not written:", *(f"  - {problem}" for problem in problems)]))
