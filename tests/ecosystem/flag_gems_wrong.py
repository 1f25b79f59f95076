"""What is wrong in FlagGems 5.0.2, as test_flag_gems.py finds it: docs/site/ecosystem.py makes a table of it."""

FLOATS = "float32 float16 bfloat16 float64"
WHOLE = "int32 int64 bool"
ALL = f"{FLOATS} {WHOLE}"


def _each(names: str, dtypes: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), dtypes)


# What happens, whose it is, and the operators, each with dtypes.
WRONG: list[tuple[str, str, dict[str, str]]] = [
    (
        "`tl.dot` of integers of 32 or 64 bits, which Triton refuses",
        "FlagGems",
        _each("addmm addmm.out baddbmm bmm bmm.out mm mm.out", "int32 int64"),
    ),
    (
        "adds float64 to a sum of float32 that a loop carries, which Triton refuses",
        "FlagGems",
        _each(
            "addmm addmm.out baddbmm bmm bmm.out mm mm.out _conv_depthwise2d conv1d conv2d conv3d conv3d.padding "
            "avg_pool2d avg_pool2d_backward _upsample_bicubic2d_aa multinomial",
            "float64",
        ),
    ),
    (
        "the result has the dtype of the argument, not that of torch's promotion",
        "FlagGems",
        {
            **_each("atan2 erf log special_i1 native_dropout_backward", WHOLE),
            **_each("prod prod.dim_int", "int32 bool"),
            **_each("sum sum.dim_IntList", "int32"),
            **_each("square", "bool"),
            **_each("_weight_norm_interface", "float16 bfloat16"),
        },
    ),
    (
        "refuses the dtype",
        "FlagGems",
        {
            **_each("logit nan_to_num special_i0e special_i0e.out", WHOLE),
            **_each("linalg_vector_norm sinh_ softshrink softshrink.out", "float64"),
            **_each("gather_backward", "bfloat16"),
        },
    ),
    (
        "calls functions of libdevice, which are those of float32 and float64, with halves",
        "FlagGems",
        _each(
            "div.Tensor_mode div_.Tensor_mode divide.Tensor_mode divide_.Tensor_mode floor_divide floor_divide_.Tensor",
            "float16 bfloat16",
        ),
    ),
    (
        "calls libdevice's `fmod` with a float and an integer, if the divisor is an integer of Python",
        "FlagGems",
        _each(
            "div.Scalar_mode div_.Scalar_mode divide.Scalar_mode divide_.Scalar_mode floor_divide.Scalar "
            "floor_divide_.Scalar",
            FLOATS,
        ),
    ),
    (
        "divides `int1` by `int32`, which Triton refuses",
        "FlagGems",
        _each("div.Scalar divide.Scalar true_divide.Scalar remainder.Scalar", "bool"),
    ),
    (
        "atomic additions of `int1`, which Triton refuses",
        "FlagGems",
        _each("index_add index_add_ scatter_add_", "bool"),
    ),
    ("a loop carries `int1`, then `int32`: Triton refuses it", "FlagGems", _each("cummax cummin", "bool")),
    ("reads the bits of a float32 as float64, which Triton refuses", "FlagGems", _each("exponential_", "float64")),
    ("leaves the elements as they are", "FlagGems", _each("floor_ round round.out round_", "float64")),
    (
        "has no kernel of the dtype and calls torch's operator, which is itself: `RecursionError`",
        "FlagGems",
        {"selu_": "float64", "sgn_": "bool"},
    ),
    (
        "an `AttributeError`: it passes `out=None` on",
        "FlagGems",
        _each("bitwise_left_shift bitwise_right_shift", "int32 int64"),
    ),
    (
        "computes `nearest`, without half of a pixel",
        "FlagGems",
        _each("_upsample_nearest_exact1d", FLOATS),
    ),
    (
        "masks a group by the number of channels: wrong if its size is no power of two",
        "FlagGems",
        _each("native_group_norm_backward", FLOATS),
    ),
    (
        "statistics of other shapes than torch's",
        "FlagGems",
        {"native_batch_norm": "float32", "native_layer_norm": FLOATS},
    ),
    ("writes zeros into the argument, and returns it", "FlagGems", _each("zero", ALL)),
    ("refuses one index without a dimension", "FlagGems", _each("embedding_dense_backward", FLOATS)),
    ("refuses every stride that is a list", "FlagGems", _each("conv1d.padding conv2d.padding", FLOATS)),
    ("refuses a mask that has more dimensions than the tensor", "FlagGems", _each("masked_fill.Tensor", "float32")),
    ("refuses other dimensions than the last", "FlagGems", _each("topk", "float32")),
    (
        "loads no value behind the end of a row unless the dtype is float32 or a half: any may be among the largest",
        "FlagGems",
        _each("topk", "float64 int32 int64"),
    ),
    (
        "the CPU's result is infinite: it computes in float16, the kernel in float32",
        "torch's CPU",
        _each("soft_margin_loss", "float16"),
    ),
]
