"""What a candidate may name: modules, their members, tensor attributes, builtins. Anything else is a finding."""

from __future__ import annotations

import re

ALLOWED_IMPORTS = (
    "__future__", "collections", "collections.abc", "contextlib", "dataclasses", "enum", "functools", "itertools",
    "math", "torch", "torch.autograd", "torch.cuda", "torch.nn", "torch.nn.functional", "triton", "triton.language",
    "triton.language.extra", "triton.language.extra.libdevice", "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice", "triton.tools.tensor_descriptor", "triton.experimental",
    "triton.experimental.gluon", "typing",
)  # fmt: skip
"""Modules that may be imported; of others, only what lies below Gluon. Their members are judged one by one."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MEMBERS: dict[str, frozenset[str] | None] = {
    "__future__": None,
    "math": None,
    "collections.abc": None,
    "collections": words("namedtuple OrderedDict defaultdict abc"),
    "contextlib": words("nullcontext"),
    "dataclasses": words("dataclass field replace asdict astuple fields"),
    "enum": words("Enum IntEnum StrEnum Flag IntFlag auto unique"),
    "functools": words("lru_cache cache partial wraps"),
    "itertools": words("product chain repeat count pairwise"),
    "typing": words(
        "Any Callable Optional Tuple List Dict Set FrozenSet Type Sequence Union NamedTuple Literal Final"
        " TYPE_CHECKING TypeVar Iterable Iterator Mapping MutableMapping cast Generic Protocol ClassVar Annotated"
        " overload TypeAlias Self TypedDict NoReturn Never Generator ParamSpec Concatenate override"
    ),
}
"""Members of the standard library that may be named; None allows every public one."""

DTYPES = words(
    "float16 bfloat16 float32 float64 float half double int8 int16 int32 int64 int long short uint8 uint16 uint32"
    " uint64 bool float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu complex64 complex128"
)
ALLOCATORS = words(
    "empty empty_like empty_strided empty_permuted zeros zeros_like ones ones_like full full_like tensor"
)
VIEW_FUNCTIONS = words(
    "reshape permute transpose squeeze unsqueeze flatten movedim broadcast_to broadcast_tensors as_strided t"
    " view_as_real view_as_complex unbind narrow select swapaxes"
)
TORCH_FACTS = words(
    "Tensor Size device dtype layout memory_format contiguous_format channels_last channels_last_3d preserve_format"
    " strided finfo iinfo is_tensor is_floating_point numel promote_types result_type broadcast_shapes"
    " get_default_dtype is_grad_enabled no_grad inference_mode enable_grad inf nan pi __version__ nn cuda autograd"
    " version"
)
TORCH_DEEP = words(
    "torch.version.cuda torch.version.hip torch.nn.Module torch.nn.Parameter torch.nn.parameter.Parameter"
    " torch.autograd.Function torch.autograd.function.once_differentiable torch.cuda.is_available torch.cuda.device"
    " torch.cuda.get_device_properties torch.cuda.get_device_capability torch.cuda.get_device_name"
    " torch.cuda.current_device torch.cuda.device_count torch.cuda.device_of torch.cuda.is_bf16_supported"
    " torch.nn.parameter torch.autograd.function torch.nn.functional torch.nn.init"
)
HOLDERS = words(
    "Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LayerNorm GroupNorm RMSNorm"
    " BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d Embedding EmbeddingBag LSTM GRU"
    " RNN LSTMCell GRUCell RNNCell MultiheadAttention PReLU Sequential ModuleList ModuleDict ParameterList"
    " ParameterDict Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout ReLU ReLU6 LeakyReLU ELU SELU CELU GELU"
    " SiLU Mish Sigmoid LogSigmoid Tanh Tanhshrink Softmax Softmax2d LogSoftmax Softmin Softplus Softsign Softshrink"
    " Hardtanh Hardswish Hardsigmoid Hardshrink Threshold GLU MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d"
    " AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d"
    " AdaptiveMaxPool3d LocalResponseNorm Flatten Unflatten Upsample PixelShuffle ZeroPad2d ConstantPad1d ReflectionPad2d"
)
"""Classes of torch.nn that may hold parameters, or sizes. To call one is to compute."""

SETUP_FUNCTIONS = words(
    "randn rand randint randn_like rand_like arange linspace logspace eye tril triu outer cos sin exp log exp2 log2"
    " pow sqrt rsqrt cat stack meshgrid normal from_numpy as_tensor Generator"
)
"""Allowed besides while a module is imported or the entry's class is built: no input is there yet."""

TENSOR_FACTS = words(
    "shape dtype device ndim is_cuda is_cpu is_meta layout requires_grad is_leaf itemsize nbytes is_sparse names"
    " is_quantized"
)
TENSOR_QUERIES = words(
    "size stride dim numel nelement ndimension element_size is_contiguous storage_offset is_floating_point is_complex"
    " get_device is_pinned is_signed is_same_size is_set_to"
)
TENSOR_VIEWS = words(
    "view reshape contiguous clone detach transpose permute t T mT expand expand_as view_as reshape_as flatten ravel"
    " unflatten squeeze unsqueeze narrow select as_strided movedim moveaxis swapaxes swapdims broadcast_to diagonal"
    " unfold data adjoint"
)
TENSOR_ALLOCATORS = words("new_empty new_zeros new_full new_ones new_empty_strided new_tensor")
TENSOR_PIECES = words("split chunk unbind tensor_split hsplit vsplit dsplit")
FRESH_METHODS = words("zero_ fill_")
SETUP_METHODS = words(
    "to cuda cpu half float bfloat16 double normal_ uniform_ zero_ fill_ requires_grad_ cos sin exp log pow sqrt rsqrt"
    " tril triu repeat copy_ int long item manual_seed tolist trunc_normal_ repeat_interleave kaiming_uniform_"
)
TENSOR_EVIDENCE = (
    TENSOR_FACTS | TENSOR_QUERIES | TENSOR_VIEWS | TENSOR_ALLOCATORS | words("data_ptr")
) - words("names count data device dtype layout T t size view split")
"""An attribute of this name says that its owner is a tensor."""

CONTAINER_METHODS = words(
    "append extend insert pop items keys values get setdefault update add copy index count sort reverse remove discard"
    " union join format startswith endswith split strip lower upper replace removeprefix removesuffix popitem clear"
    " bit_length is_integer to_bytes name value kwargs block_shape base layout strides from_tensor total_memory major"
    " minor multi_processor_count warp_size shared_memory_per_block_optin shared_memory_per_block type"
    " max_threads_per_multi_processor regs_per_multiprocessor L2_cache_size gcnArchName padding num_warps num_stages"
    " save_for_backward saved_tensors needs_input_grad mark_non_differentiable set_materialize_grads mark_dirty"
    " all_kwargs num_ctas maxnreg eps weight bias args lstrip rstrip title isdigit zfill partition primitive_bitwidth"
)
"""What containers, text, device properties, configurations and autograd contexts answer to."""

STATE_CHANGES = words(
    "append extend insert pop setdefault update add popitem clear remove discard sort reverse move_to_end appendleft"
)
GROWTH = words("append insert add extend update setdefault appendleft")
AMBIGUOUS = words("add sort type")
"""Methods of containers, and of tensors: their result is no number."""

CONVERSIONS = words("float half bfloat16 double")
BUILDERS = words("__init__ __post_init__ reset_parameters")
REGISTRATION = words(
    "register_buffer register_parameter register_module add_module load_state_dict"
)
MODULE_METHODS = words(
    "register_buffer register_parameter add_module parameters named_parameters buffers named_buffers modules children"
    " named_children state_dict load_state_dict to cuda cpu half float bfloat16 double train eval training"
    " requires_grad_ extra_repr reset_parameters zero_grad type get_parameter get_buffer"
)
NEVER = words(
    "f_back f_locals f_globals f_code f_builtins f_trace tb_frame tb_next gi_frame gi_code cr_frame cr_code ag_frame"
    " ag_code func_globals co_code co_consts co_names mro with_traceback as_subclass untyped_storage storage"
    " register_hook register_post_accumulate_grad_hook register_forward_hook register_forward_pre_hook"
    " register_full_backward_hook register_full_backward_pre_hook register_module_forward_hook"
    " register_state_dict_pre_hook add_pre_run_hook cuda_stream format_map"
)
"""Frames, code objects, raw storage and hooks, whatever they are asked of."""

BUILTINS = words(
    "abs all any bool bytes callable chr classmethod complex dict divmod enumerate filter float frozenset getattr"
    " hasattr hash int isinstance issubclass iter len list map max min next object ord pow property range repr reversed"
    " round set slice sorted staticmethod str sum super tuple type zip NotImplemented Ellipsis format True False None"
    " __name__ __debug__ print bin hex oct ascii"
)
READS_TENSORS = words(
    "abs all any bool complex divmod filter float int map max min pow round sorted sum repr str format hash ascii bytes"
    " bytearray range hex bin oct chr"
)
"""Builtins that compute with, or read, a tensor handed to them."""

FOREIGN_CODE = words("extern_libs ir_override ptx_options")
"""Options of a launch that put other code in the kernel's place."""

LAUNCH_OPTIONS = words(
    "num_warps num_stages num_ctas maxnreg enable_fp_fusion launch_cooperative_grid launch_cluster launch_pdl debug"
    " sanitize_overflow waves_per_eu matrix_instr_nonkdim kpack schedule_hint cluster_dims num_consumer_groups"
    " num_buffers_warp_spec reg_dec_producer reg_inc_consumer warp_size allow_fp8e4nv max_num_imprecise_acc_default"
)

KERNEL_BUILTINS = words(
    "range min max abs len int float bool tuple list slice isinstance print str zip enumerate sum reversed True False None"
)
KERNEL_NEVER = words("handle builder fn src numpy data tolist item run cache func")
TASK_NAMES = words("reference make_inputs get_inputs get_init_inputs Model")
DUNDER_METHODS = words(
    "__init__ __post_init__ __call__ __repr__ __str__ __len__ __getitem__ __iter__ __hash__ __eq__ __slots__ __doc__"
    " __all__ __annotations__ __constants__ __contains__ __bool__ __version__ __author__"
)
DUNDER_READS = words("__name__ __version__ __init__ __doc__ __debug__")

_HOST_LANGUAGE = re.compile(
    r"(constexpr|dtype|tensor|cdiv|next_power_of_2|(float|bfloat|int|uint)\d+\w*|void|pointer_type|block_type"
    r"|static_range|[A-Z]\w*(\.(get_default_for|with_dim|[A-Z]\w*))?)"
)
_PYTHON_MODULES = words(
    "core builtins builtin inspect sys os torch functools importlib warnings types typing ast re itertools textwrap"
    " semantic contextlib operator threading json time copy numpy np subprocess math_module runtime testing"
)
_TRITON = words(
    "jit autotune heuristics Config cdiv next_power_of_2 __version__ set_allocator constexpr_function language tools"
    " experimental OutOfResources"
)
_TRITON_DEEP = words(
    "triton.runtime.driver.active.get_current_target triton.runtime.driver.active.get_active_torch_device"
    "triton.tools.tensor_descriptor triton.tools.tensor_descriptor.TensorDescriptor"
    " triton.tools.tensor_descriptor.TensorDescriptor.from_tensor triton.experimental.gluon"
)
_ENGINES = words(
    "compile jit library ops _C utils fx export package hub load save serialization multiprocessing distributed"
    " overrides futures _dynamo _inductor onnx ao classes func vmap frombuffer from_file sys os types"
)
_FLAGS = re.compile(
    r"torch\.(backends\b|set_|use_deterministic|manual_seed|seed$|initial_seed|random\b|Generator|get_rng|default_gen"
    r"|cuda\.(manual_seed|seed|get_rng|set_rng|initial_seed|set_|memory|empty_cache|caching|reset)"
    r"|autograd\.(set_|grad_mode|anomaly|graph|profiler|detect)|are_det|is_det|fill_un|get_float32_m)"
)
_STREAMS = re.compile(
    r"torch\.(cuda|Stream|Event|accelerator|cpu)(\.|$)(?!is_|get_device|current_device|device)"
)
_HARNESS = re.compile(
    r"(torch\.(testing|profiler|utils\.benchmark|allclose|isclose|equal)|triton\.(testing|profiler))\b"
)


def judge_path(path: str, setup: bool) -> str | None:
    """Return the rule that the dotted name breaks in host code, or None where it may be named."""
    head, _, rest = path.partition(".")
    if head == "torch":
        return _judge_torch(path, rest, setup)
    if head == "triton":
        return None if _host_triton(path, rest) else _harness(path) or "S-triton"
    if head == "builtins":
        return None if rest in BUILTINS or _is_error(rest) else "S-dynamic"
    module = "collections.abc" if path.startswith("collections.abc") else head
    if path == module:
        return None if module in MEMBERS else "S-import"
    if module not in MEMBERS:
        return "S-import"
    member = path[len(module) + 1 :].split(".")[0]
    allowed = MEMBERS[module]
    fine = not member.startswith("_") if allowed is None else member in allowed
    return None if fine else "S-import"


def is_holder(path: str) -> bool:
    """Whether the dotted name is a class of torch.nn that holds parameters."""
    return path.removeprefix("torch.nn.") in HOLDERS and path.startswith("torch.nn.")


def _is_error(name: str) -> bool:
    return name.endswith(("Error", "Warning")) or name in {"Exception", "StopIteration"}


def _judge_torch(path: str, rest: str, setup: bool) -> str | None:
    if not rest:
        return None
    names = rest.split(".")
    leaves = DTYPES | ALLOCATORS | VIEW_FUNCTIONS | TORCH_FACTS
    if names[0] in DTYPES and len(names) <= 2 and not names[-1].startswith("_"):
        return None
    if (len(names) == 1 and rest in leaves) or path in TORCH_DEEP:
        return None
    if names[0] == "nn" and len(names) == 2 and names[1] in HOLDERS:
        return None
    if setup and (
        rest in SETUP_FUNCTIONS or (names[:2] == ["nn", "init"] and names[-1].endswith("_"))
    ):
        return None
    if rule := _harness(path):
        return rule
    if _FLAGS.match(path):
        return "S-flag"
    if _STREAMS.match(path):
        return "S-stream"
    if names[0] in _ENGINES or any(name.startswith("_") for name in names):
        return "S-engine"
    return "S-torch"


def _harness(path: str) -> str | None:
    return "S-harness" if _HARNESS.match(path) else None


def _host_triton(path: str, rest: str) -> bool:
    if not rest or rest in _TRITON or path in _TRITON_DEEP:
        return True
    if path in ALLOWED_IMPORTS:
        return True
    if path.startswith("triton.language."):
        return bool(_HOST_LANGUAGE.fullmatch(path.removeprefix("triton.language.")))
    if path.startswith("triton.experimental.gluon."):
        return _clean(path.removeprefix("triton.experimental.gluon."))
    return False


def kernel_path_allowed(path: str) -> bool:
    """Whether the body of a jit function may name this: `tl.NAME`, `tl.math`, libdevice, Gluon."""
    if path.startswith("triton.experimental.gluon."):
        return _clean(path.removeprefix("triton.experimental.gluon."))
    if path in {"triton.cdiv", "triton.next_power_of_2"}:
        return True
    if not path.startswith("triton.language."):
        return False
    return _clean(path.removeprefix("triton.language."))


def _clean(tail: str) -> bool:
    names = tail.split(".")
    return not any(
        name.startswith("_") or name in _PYTHON_MODULES or name.startswith("globaltimer")
        for name in names
    )
