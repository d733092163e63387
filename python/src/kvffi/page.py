"""What a layer's page holds, by kind."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

from . import _declarations as c
from ._checked import text
from ._handle import Handle, Owner, make
from ._library import functions
from ._names import Conv, Element, Packing, Rows, Sharding, Span, Usage, number


class Page(Handle):
    """What a layer's page holds: its parts, how they are sharded and how large a cell is, but not where it lies.

    Immutable, and may be closed as soon as it was added to an arrangement or to tensors. Counts of heads, groups and
    channels are those of the whole model.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("a Page is made by one of its class methods, such as Page.mla")

    @classmethod
    def _of(cls, function: Callable[..., int], *args: Any) -> Page:
        return cls._wrap(make(functions().kvffi_page_free, function, *args))

    @classmethod
    def _wrap(cls, owner: Owner) -> Page:
        page = cls.__new__(cls)
        page._owner = owner
        return page

    @classmethod
    def mla(
        cls,
        rows: Rows = "bf16",
        *,
        row_bytes: int = 0,
        format: str | None = None,
        span: Span = "full",
        tokens_per_state: int | tuple[int, int] = 1,
        page_align: int = 1,
    ) -> Page:
        """Multi-head latent attention: the part "latent", replicated.

        `rows`: "bf16" is 1152 bytes, "fp8" 656; "own" is what `row_bytes` and `format` say.
        """
        struct = _rows(rows, row_bytes, format, span, tokens_per_state, page_align)
        return cls._of(functions().kvffi_page_new_mla, byref(struct))

    @classmethod
    def indexer(
        cls,
        rows: Rows = "fp8",
        *,
        row_bytes: int = 0,
        format: str | None = None,
        tokens_per_state: int | tuple[int, int] = 1,
        page_align: int = 1,
    ) -> Page:
        """The index cache of a sparse-attention layer: the part "index", replicated; "fp8" is 132 bytes a row."""
        struct = _rows(rows, row_bytes, format, "full", tokens_per_state, page_align)
        return cls._of(functions().kvffi_page_new_indexer, byref(struct))

    @classmethod
    def opaque(cls, num_bytes: int, *, format: str | None = None, usage: Usage = "tokens") -> Page:
        """Bytes that the library does not interpret, of each token or of each request: the part "aux", replicated."""
        known = number("USAGE", usage)
        return cls._of(functions().kvffi_page_new_opaque, num_bytes, _optional(format, "format"), known)

    @classmethod
    def ring(
        cls,
        capacity_tokens: int,
        row_bytes: int,
        *,
        format: str,
        num_heads: int = 1,
        sharding: Sharding = "replicated",
    ) -> Page:
        """A circular buffer of each request: the part "ring". `row_bytes` are those of one head's row."""
        known = number("SHARDING", sharding)
        arguments = (capacity_tokens, row_bytes, text(format, "format"), num_heads, known)
        return cls._of(functions().kvffi_page_new_ring, *arguments)

    @classmethod
    def attention(
        cls,
        num_kv_heads: int,
        head_size: int,
        *,
        value_head_size: int = 0,
        element: Element = "default",
        packing: Packing = "packed",
        span: Span = "full",
        format: str | None = None,
    ) -> Page:
        """Attention, that is MHA, GQA or MQA: the parts "k" and "v", sharded by KV head.

        The element is bf16 by default. `packing`: "packed" is K V K V ... in the rows of each head and token, "halves"
        all of a block's K before its V, "apart" K and V in buffers of their own.
        """
        struct = _attention(num_kv_heads, head_size, value_head_size, element, packing, span, format)
        return cls._of(functions().kvffi_page_new_attention, byref(struct))

    @classmethod
    def token_head_quant(
        cls,
        num_kv_heads: int,
        head_size: int,
        scale_bytes: int,
        *,
        value_head_size: int = 0,
        element: Element = "fp8_e4m3",
        packing: Packing = "packed",
    ) -> Page:
        """Attention with a scale for each token and head inside the row: the parts "k" and "v"."""
        struct = _attention(num_kv_heads, head_size, value_head_size, element, packing, "full", None)
        return cls._of(functions().kvffi_page_new_token_head_quant, byref(struct), scale_bytes)

    @classmethod
    def block_scaled(
        cls,
        num_kv_heads: int,
        head_size: int,
        scales_per_head: int,
        *,
        tokens_per_scale: int = 1,
        scale_element: Element = "default",
        value_head_size: int = 0,
        element: Element = "fp8_e4m3",
        packing: Packing = "packed",
        format: str | None = None,
    ) -> Page:
        """Attention whose scales lie in buffers of their own: the parts "k", "v", "k_scale" and "v_scale"."""
        struct = _attention(num_kv_heads, head_size, value_head_size, element, packing, "full", format)
        scales = (number("ELEMENT", scale_element), scales_per_head, tokens_per_scale)
        return cls._of(functions().kvffi_page_new_block_scaled, byref(struct), *scales)

    @classmethod
    def nvfp4(cls, num_kv_heads: int, head_size: int, *, value_head_size: int = 0) -> Page:
        """NVFP4 attention: the parts "k", "k_scale", "v" and "v_scale", each for all heads before the next."""
        struct = c.Attention(num_kv_heads=num_kv_heads, head_size=head_size, value_head_size=value_head_size)
        return cls._of(functions().kvffi_page_new_nvfp4, byref(struct))

    @classmethod
    def mamba1(
        cls,
        intermediate_size: int,
        state_size: int,
        conv_kernel: int,
        *,
        conv_element: Element = "default",
        state_element: Element = "default",
        conv_order: Conv = "channels_first",
        replicated: bool = False,
    ) -> Page:
        """Mamba1: the parts "conv.x" and "ssm", sharded by channel."""
        options = _state(conv_element, state_element, conv_order, replicated, whole_groups=False)
        arguments = (intermediate_size, state_size, conv_kernel, byref(options))
        return cls._of(functions().kvffi_page_new_mamba1, *arguments)

    @classmethod
    def mamba2(
        cls,
        num_heads: int,
        head_size: int,
        num_groups: int,
        state_size: int,
        conv_kernel: int,
        *,
        conv_element: Element = "default",
        state_element: Element = "default",
        conv_order: Conv = "channels_first",
        replicated: bool = False,
        whole_groups: bool = False,
    ) -> Page:
        """Mamba2: the parts "conv.x", "conv.b", "conv.c" and "ssm", sharded by channel and head.

        With one group B and C are replicated. `whole_groups`: they are sharded by whole groups and not by channel.
        """
        options = _state(conv_element, state_element, conv_order, replicated, whole_groups)
        arguments = (num_heads, head_size, num_groups, state_size, conv_kernel, byref(options))
        return cls._of(functions().kvffi_page_new_mamba2, *arguments)

    @classmethod
    def gated_delta_net(
        cls,
        num_key_heads: int,
        key_size: int,
        num_value_heads: int,
        value_size: int,
        conv_kernel: int,
        *,
        conv_element: Element = "default",
        state_element: Element = "default",
        conv_order: Conv = "channels_first",
        replicated: bool = False,
    ) -> Page:
        """A gated delta net: the parts "conv.q", "conv.k", "conv.v" and "ssm", sharded by channel and head."""
        options = _state(conv_element, state_element, conv_order, replicated, whole_groups=False)
        arguments = (num_key_heads, key_size, num_value_heads, value_size, conv_kernel, byref(options))
        return cls._of(functions().kvffi_page_new_gated_delta_net, *arguments)


def _optional(value: str | None, what: str) -> bytes | None:
    return None if value is None else text(value, what)


def fraction(tokens_per_state: int | tuple[int, int]) -> tuple[int, int]:
    """A number of tokens per state as numerator and denominator."""
    if isinstance(tokens_per_state, tuple):
        numerator, denominator = tokens_per_state
        return numerator, denominator
    return tokens_per_state, 1


def _rows(
    rows: Rows,
    row_bytes: int,
    format: str | None,
    span: Span,
    tokens_per_state: int | tuple[int, int],
    page_align: int,
) -> c.Rows:
    numerator, denominator = fraction(tokens_per_state)
    return c.Rows(
        preset=number("ROWS", rows),
        span=number("SPAN", span),
        row_bytes=row_bytes,
        format=_optional(format, "format"),
        tokens_per_state_num=numerator,
        tokens_per_state_den=denominator,
        page_align=page_align,
    )


def _attention(
    num_kv_heads: int,
    head_size: int,
    value_head_size: int,
    element: Element,
    packing: Packing,
    span: Span,
    format: str | None,
) -> c.Attention:
    return c.Attention(
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        value_head_size=value_head_size,
        element=number("ELEMENT", element),
        packing=number("PACKING", packing),
        span=number("SPAN", span),
        format=_optional(format, "format"),
    )


def _state(
    conv_element: Element, state_element: Element, conv_order: Conv, replicated: bool, whole_groups: bool
) -> c.StateOptions:
    flags = c.KVFFI_STATE_REPLICATED if replicated else 0
    flags |= c.KVFFI_STATE_WHOLE_GROUPS if whole_groups else 0
    return c.StateOptions(
        conv_element=number("ELEMENT", conv_element),
        state_element=number("ELEMENT", state_element),
        conv_order=number("CONV", conv_order),
        flags=flags,
    )
