/* SPDX-License-Identifier: Apache-2.0 */

/*
 * kvffi.hpp: kvffi.h for C++17. Objects that free themselves, spans, vectors and string views in place of pointers and
 * lengths, errors as exceptions or as results. It adds no logic: what a call means is said at its declaration in kvffi.h.
 *
 * Structs are those of kvffi.h and start as their KVFFI_..._INIT macro; what they point to is borrowed for the call.
 *
 * By default a call that fails throws kvffi::Error. With KVFFI_RESULTS defined before the header is included, nothing is
 * thrown: every function returns kvffi::Result<T>, which holds a value or an Error. Use one of the two in a whole program.
 */
#ifndef KVFFI_HPP
#define KVFFI_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kvffi.h"

namespace kvffi {

/* What went wrong in one call: its status, the full text, and the findings where several things are wrong. */
class Error : public std::runtime_error {
public:
    /* Takes the error over; it may be NULL. */
    Error(kvffi_status status, kvffi_error *error)
        : std::runtime_error(std::string(kvffi_status_name(status)) + ": " + kvffi_error_message(error)), status_(status)
    {
        for (std::size_t i = 0; i < kvffi_error_num_findings(error); i++) {
            findings_.emplace_back(kvffi_error_finding(error, i));
        }
        kvffi_error_free(error);
    }

    kvffi_status status() const noexcept { return status_; }
    const std::vector<std::string> &findings() const noexcept { return findings_; }

private:
    kvffi_status status_;
    std::vector<std::string> findings_;
};

/* Borrows consecutive elements that the caller keeps, as std::span does from C++20 on. */
template <typename T> class Span {
    using Value = std::remove_const_t<T>;

public:
    constexpr Span() noexcept = default;
    constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    Span(const std::vector<Value> &values) noexcept : data_(values.data()), size_(values.size()) {}
    template <std::size_t N> constexpr Span(const std::array<Value, N> &values) noexcept : data_(values.data()), size_(N) {}
    template <std::size_t N> constexpr Span(T (&values)[N]) noexcept : data_(values), size_(N) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* The value of a call that returns nothing. */
using Done = std::monostate;

#ifdef KVFFI_RESULTS

/* A value or an Error. */
template <typename T> class [[nodiscard]] Result {
public:
    explicit Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
    explicit Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

    explicit operator bool() const noexcept { return held_.index() == 0; }
    /* The value; only of a result that is true. */
    T &operator*() & noexcept { return *std::get_if<0>(&held_); }
    T &&operator*() && noexcept { return std::move(*std::get_if<0>(&held_)); }
    T *operator->() noexcept { return std::get_if<0>(&held_); }
    /* The error; only of a result that is false. */
    const Error &error() const noexcept { return *std::get_if<1>(&held_); }

private:
    std::variant<T, Error> held_;
};

#else

template <typename T> using Result = T;

#endif

namespace detail {

template <typename T, void (*Free)(T *)> struct Deleter {
    void operator()(T *handle) const noexcept { Free(handle); }
};

/* Owns a handle; moves, does not copy. */
template <typename T, void (*Free)(T *)> using Owned = std::unique_ptr<T, Deleter<T, Free>>;

template <typename T> Result<T> finish(kvffi_status status, kvffi_error *error, T value)
{
    if (status < 0) {
#ifdef KVFFI_RESULTS
        return Result<T>(Error(status, error));
#else
        throw Error(status, error);
#endif
    }
    return Result<T>(std::move(value));
}

/* Calls a function whose last output is an error. */
template <typename Function, typename... Arguments> Result<Done> done(Function function, Arguments... arguments)
{
    kvffi_error *error = nullptr;
    const kvffi_status status = function(arguments..., &error);
    return finish(status, error, Done());
}

template <typename T, typename = void> struct Grows : std::false_type {};
template <typename T> struct Grows<T, std::void_t<decltype(T::struct_size)>> : std::true_type {};

/* Calls a function whose last outputs are a value, or a struct that begins with its size, and an error. */
template <typename T, typename Function, typename... Arguments>
Result<T> value(Function function, Arguments... arguments)
{
    T value = T();
    if constexpr (Grows<T>::value) {
        value.struct_size = sizeof value;
    }
    kvffi_error *error = nullptr;
    const kvffi_status status = function(arguments..., &value, &error);
    return finish(status, error, value);
}

/* Calls a function whose last outputs are 0 or 1, and an error. */
template <typename Function, typename... Arguments> Result<bool> flag(Function function, Arguments... arguments)
{
    std::int32_t flag = 0;
    kvffi_error *error = nullptr;
    const kvffi_status status = function(arguments..., &flag, &error);
    return finish(status, error, flag != 0);
}

/* Calls a function whose last output is an error; false while what it tells of is in progress. */
template <typename Function, typename... Arguments> Result<bool> finished(Function function, Arguments... arguments)
{
    kvffi_error *error = nullptr;
    const kvffi_status status = function(arguments..., &error);
    return finish(status, error, status == KVFFI_OK);
}

/* Calls a function whose last outputs are a handle and an error. */
template <typename Object, typename Handle, typename Function, typename... Arguments>
Result<Object> make(Function function, Arguments... arguments)
{
    Handle *handle = nullptr;
    kvffi_error *error = nullptr;
    const kvffi_status status = function(arguments..., &handle, &error);
    return finish(status, error, Object(handle));
}

/* Calls a function that fills an array: once for its length, once for its elements. */
template <typename T, typename Function, typename... Arguments>
Result<std::vector<T>> list(Function function, Arguments... arguments)
{
    std::size_t len = 0;
    std::vector<T> values;
    kvffi_status status = function(arguments..., nullptr, 0, &len, nullptr);
    kvffi_error *error = nullptr;
    if (status == KVFFI_ERR_BUFFER_TOO_SMALL) {
        values.resize(len);
    }
    if (status != KVFFI_OK) {
        status = function(arguments..., values.data(), values.size(), &len, &error);
    }
    return finish(status, error, std::move(values));
}

/* Likewise of an object that is NULL when there is nothing to list. */
template <typename T, typename Function, typename Handle>
Result<std::vector<T>> list_of(Function function, Handle *handle)
{
    return handle == nullptr ? Result<std::vector<T>>(std::vector<T>()) : list<T>(function, handle);
}

inline const std::uint8_t *bytes(std::string_view text) noexcept
{
    return reinterpret_cast<const std::uint8_t *>(text.data());
}

} // namespace detail

/* A text that the library made. */
class Text {
public:
    explicit Text(kvffi_text *handle) noexcept : handle_(handle) {}
    std::string_view view() const noexcept { return {kvffi_text_data(handle_.get()), kvffi_text_len(handle_.get())}; }

private:
    detail::Owned<kvffi_text, kvffi_text_free> handle_;
};

/* What caches one worker has. */
class Spec {
public:
    explicit Spec(kvffi_spec *handle) noexcept : handle_(handle) {}

    static Result<Spec> from_json(std::string_view json)
    {
        return detail::make<Spec, kvffi_spec>(kvffi_spec_from_json, json.data(), json.size());
    }

    Result<Text> to_json() const { return detail::make<Text, kvffi_text>(kvffi_spec_to_json, get()); }

    /* Which ranks of the peer's stage this rank reads a layer from. The name ends with a NUL. */
    Result<std::vector<kvffi_share>> sources(const Spec &remote, const char *layer) const
    {
        return detail::list<kvffi_share>(kvffi_spec_get_sources, get(), remote.get(), layer);
    }

    /* Which ranks of the peer's stage this rank writes a layer to. The name ends with a NUL. */
    Result<std::vector<kvffi_share>> targets(const Spec &remote, const char *layer) const
    {
        return detail::list<kvffi_share>(kvffi_spec_get_targets, get(), remote.get(), layer);
    }

    /* How many of the destination's ranks this rank delivers something to. */
    Result<std::size_t> count_readers(Span<const kvffi_spec *const> stages) const
    {
        return detail::value<std::size_t>(kvffi_spec_count_readers, get(), stages.data(), stages.size());
    }

    const kvffi_spec *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_spec, kvffi_spec_free> handle_;
};

/* A spec from its parts. */
class SpecBuilder {
public:
    explicit SpecBuilder(kvffi_spec_builder *handle) noexcept : handle_(handle) {}

    static Result<SpecBuilder> create(const kvffi_worker &worker)
    {
        return detail::make<SpecBuilder, kvffi_spec_builder>(kvffi_spec_builder_new, &worker);
    }

    /* Each returns the index of what was added. */
    Result<std::uint32_t> add(const kvffi_storage &storage) { return add(kvffi_spec_builder_add_storage, &storage); }
    Result<std::uint32_t> add(const kvffi_group &group) { return add(kvffi_spec_builder_add_group, &group); }
    Result<std::uint32_t> add(const kvffi_layer &layer) { return add(kvffi_spec_builder_add_layer, &layer); }

    Result<Done> add_part(std::uint32_t layer, const kvffi_part &part)
    {
        return detail::done(kvffi_spec_builder_add_part, handle_.get(), layer, &part);
    }

    Result<Spec> build() const { return detail::make<Spec, kvffi_spec>(kvffi_spec_builder_build, handle_.get()); }

private:
    template <typename Function, typename T> Result<std::uint32_t> add(Function function, const T *what)
    {
        return detail::value<std::uint32_t>(function, handle_.get(), what);
    }

    detail::Owned<kvffi_spec_builder, kvffi_spec_builder_free> handle_;
};

/* What a layer's page holds. Texts end with a NUL. */
class Page {
public:
    explicit Page(kvffi_page *handle) noexcept : handle_(handle) {}

    static Result<Page> mla(const kvffi_rows &rows) { return make(kvffi_page_new_mla, &rows); }
    static Result<Page> indexer(const kvffi_rows &rows) { return make(kvffi_page_new_indexer, &rows); }

    static Result<Page> opaque(std::uint64_t bytes, const char *format, std::int32_t block_usage)
    {
        return make(kvffi_page_new_opaque, bytes, format, block_usage);
    }

    static Result<Page> ring(std::uint64_t capacity_tokens, std::uint64_t row_bytes, const char *format,
                             std::uint64_t num_heads, std::int32_t sharding)
    {
        return make(kvffi_page_new_ring, capacity_tokens, row_bytes, format, num_heads, sharding);
    }

    static Result<Page> attention(const kvffi_attention &attention) { return make(kvffi_page_new_attention, &attention); }

    static Result<Page> token_head_quant(const kvffi_attention &attention, std::uint64_t scale_bytes)
    {
        return make(kvffi_page_new_token_head_quant, &attention, scale_bytes);
    }

    static Result<Page> block_scaled(const kvffi_attention &attention, std::int32_t scale_element,
                                     std::uint64_t scales_per_head, std::uint64_t tokens_per_scale)
    {
        return make(kvffi_page_new_block_scaled, &attention, scale_element, scales_per_head, tokens_per_scale);
    }

    static Result<Page> nvfp4(const kvffi_attention &attention) { return make(kvffi_page_new_nvfp4, &attention); }

    static Result<Page> mamba1(std::uint64_t intermediate_size, std::uint64_t state_size, std::uint64_t conv_kernel,
                               const kvffi_state_options &options = KVFFI_STATE_OPTIONS_INIT)
    {
        return make(kvffi_page_new_mamba1, intermediate_size, state_size, conv_kernel, &options);
    }

    static Result<Page> mamba2(std::uint64_t num_heads, std::uint64_t head_size, std::uint64_t num_groups,
                               std::uint64_t state_size, std::uint64_t conv_kernel,
                               const kvffi_state_options &options = KVFFI_STATE_OPTIONS_INIT)
    {
        return make(kvffi_page_new_mamba2, num_heads, head_size, num_groups, state_size, conv_kernel, &options);
    }

    static Result<Page> gated_delta_net(std::uint64_t num_key_heads, std::uint64_t key_size, std::uint64_t num_value_heads,
                                        std::uint64_t value_size, std::uint64_t conv_kernel,
                                        const kvffi_state_options &options = KVFFI_STATE_OPTIONS_INIT)
    {
        return make(kvffi_page_new_gated_delta_net, num_key_heads, key_size, num_value_heads, value_size, conv_kernel,
                    &options);
    }

    const kvffi_page *get() const noexcept { return handle_.get(); }

private:
    template <typename Function, typename... Arguments> static Result<Page> make(Function function, Arguments... arguments)
    {
        return detail::make<Page, kvffi_page>(function, arguments...);
    }

    detail::Owned<kvffi_page, kvffi_page_free> handle_;
};

/* A layer of a group; borrows its name, which ends with a NUL, and its page. */
inline kvffi_page_layer page_layer(const char *name, const Page &page, std::uint32_t group = 0) noexcept
{
    kvffi_page_layer layer = KVFFI_PAGE_LAYER_INIT;
    layer.name = name;
    layer.page = page.get();
    layer.group = group;
    return layer;
}

/* Pools, groups and layers that are to be given places. */
class Arrangement {
public:
    explicit Arrangement(kvffi_arrangement *handle) noexcept : handle_(handle) {}

    static Result<Arrangement> create(const kvffi_worker &worker)
    {
        return detail::make<Arrangement, kvffi_arrangement>(kvffi_arrangement_new, &worker);
    }

    Result<Done> add(const kvffi_pool &pool) { return detail::done(kvffi_arrangement_add_pool, handle_.get(), &pool); }

    /* Returns the group's index. */
    Result<std::uint32_t> add(const kvffi_blocks &blocks)
    {
        return detail::value<std::uint32_t>(kvffi_arrangement_add_group, handle_.get(), &blocks);
    }

    Result<Done> add(const kvffi_page_layer &layer)
    {
        return detail::done(kvffi_arrangement_add_layer, handle_.get(), &layer);
    }

    /* Bytes to allocate for each storage. */
    Result<std::vector<std::uint64_t>> storage_lens() const
    {
        return detail::list<std::uint64_t>(kvffi_arrangement_get_storage_lens, handle_.get());
    }

    Result<Spec> build(Span<const std::uint64_t> bases) const
    {
        return detail::make<Spec, kvffi_spec>(kvffi_arrangement_build, handle_.get(), bases.data(), bases.size());
    }

private:
    detail::Owned<kvffi_arrangement, kvffi_arrangement_free> handle_;
};

/* A tensor; borrows shape, strides in bytes, and labels, which end with a NUL. */
inline kvffi_tensor tensor(const void *data, Span<const std::uint64_t> shape, Span<const std::int64_t> strides,
                           const char *axes, std::uint64_t element_size) noexcept
{
    kvffi_tensor tensor = KVFFI_TENSOR_INIT;
    tensor.ptr = reinterpret_cast<std::uintptr_t>(data);
    tensor.shape = shape.data();
    tensor.strides = strides.data();
    tensor.num_axes = shape.size() < strides.size() ? shape.size() : strides.size();
    tensor.axes = axes;
    tensor.element_size = element_size;
    return tensor;
}

/* An engine's layers with the tensors that hold them. */
class Tensors {
public:
    explicit Tensors(kvffi_tensors *handle) noexcept : handle_(handle) {}

    static Result<Tensors> create(const kvffi_worker &worker)
    {
        return detail::make<Tensors, kvffi_tensors>(kvffi_tensors_new, &worker);
    }

    Result<Done> add(const kvffi_storage &storage)
    {
        return detail::done(kvffi_tensors_add_storage, handle_.get(), &storage);
    }

    /* Returns the group's index. */
    Result<std::uint32_t> add(const kvffi_group &group)
    {
        return detail::value<std::uint32_t>(kvffi_tensors_add_group, handle_.get(), &group);
    }

    /* Returns the layer's index. */
    Result<std::uint32_t> add(const kvffi_page_layer &layer)
    {
        return detail::value<std::uint32_t>(kvffi_tensors_add_layer, handle_.get(), &layer);
    }

    Result<Done> add_tensor(std::uint32_t layer, const kvffi_tensor &tensor)
    {
        return detail::done(kvffi_tensors_add_tensor, handle_.get(), layer, &tensor);
    }

    Result<Spec> build() const { return detail::make<Spec, kvffi_spec>(kvffi_tensors_build, handle_.get()); }

private:
    detail::Owned<kvffi_tensors, kvffi_tensors_free> handle_;
};

/* What one worker registers and advertises. */
class LocalPlan {
public:
    explicit LocalPlan(kvffi_local_plan *handle) noexcept : handle_(handle) {}

    static Result<LocalPlan> create(const Spec &spec, std::uint32_t flags = 0)
    {
        return detail::make<LocalPlan, kvffi_local_plan>(kvffi_local_plan_new, spec.get(), flags);
    }

    Result<std::vector<kvffi_memory_range>> memory_ranges() const
    {
        return detail::list<kvffi_memory_range>(kvffi_local_plan_get_memory_ranges, handle_.get());
    }

    Result<std::vector<kvffi_region>> regions() const
    {
        return detail::list<kvffi_region>(kvffi_local_plan_get_regions, handle_.get());
    }

    /* Their names live as long as the plan. */
    Result<std::vector<kvffi_member>> members(std::size_t region) const
    {
        return detail::list<kvffi_member>(kvffi_local_plan_get_members, handle_.get(), region);
    }

    const kvffi_local_plan *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_local_plan, kvffi_local_plan_free> handle_;
};

/* Descriptors and ranges to zero for one request. */
class Answer {
public:
    explicit Answer(kvffi_answer *handle) noexcept : handle_(handle) {}

    static Result<Answer> create() { return detail::make<Answer, kvffi_answer>(kvffi_answer_new); }

    Result<kvffi_answer_totals> totals() const
    {
        return detail::value<kvffi_answer_totals>(kvffi_answer_get_totals, handle_.get());
    }

    Result<std::vector<kvffi_descriptor>> descriptors() const
    {
        return detail::list<kvffi_descriptor>(kvffi_answer_get_descriptors, handle_.get());
    }

    Result<std::vector<kvffi_zero_range>> zero_ranges() const
    {
        return detail::list<kvffi_zero_range>(kvffi_answer_get_zero_ranges, handle_.get());
    }

    kvffi_answer *get() noexcept { return handle_.get(); }
    const kvffi_answer *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_answer, kvffi_answer_free> handle_;
};

/* Blocks of one group on one side; borrows the block ids. */
inline kvffi_block_list block_list(std::uint32_t group, Span<const std::uint32_t> blocks, std::uint64_t first = 0) noexcept
{
    return {group, 0, first, blocks.data(), blocks.size()};
}

/* What to move; borrows the lists. */
inline kvffi_request request(std::int32_t op, Span<const kvffi_block_list> local,
                             Span<const kvffi_block_list> remote) noexcept
{
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.op = op;
    request.local = local.data();
    request.num_local = local.size();
    request.remote = remote.data();
    request.num_remote = remote.size();
    return request;
}

/* The same for some layers only, which either spec names; borrows the names. */
inline kvffi_request with_layers(kvffi_request request, Span<const char *const> layers) noexcept
{
    request.flags |= KVFFI_REQUEST_LAYERS;
    request.layers = layers.data();
    request.num_layers = layers.size();
    return request;
}

/* The same for the layers from one index of the local spec up to, not including, another. */
inline kvffi_request with_layer_range(kvffi_request request, std::uint32_t from, std::uint32_t to) noexcept
{
    request.flags |= KVFFI_REQUEST_LAYER_RANGE;
    request.from_layer = from;
    request.to_layer = to;
    return request;
}

/* The same with a word on lists that do not say where they begin: KVFFI_REQUEST_ALIGN_HEAD or KVFFI_REQUEST_ALIGN_TAIL. */
inline kvffi_request with_align(kvffi_request request, std::uint32_t align) noexcept
{
    request.flags |= align;
    return request;
}

/* A plan between this worker and one peer. */
class Pair {
public:
    explicit Pair(kvffi_pair *handle) noexcept : handle_(handle) {}

    static Result<Pair> create(const Spec &local, const Spec &remote,
                               const kvffi_pair_options &options = KVFFI_PAIR_OPTIONS_INIT)
    {
        return detail::make<Pair, kvffi_pair>(kvffi_pair_new, local.get(), remote.get(), &options);
    }

    /* Whether the two exchange nothing, whatever the request. */
    Result<bool> is_empty() const { return detail::flag(kvffi_pair_is_empty, handle_.get()); }

    Result<Done> answer(const kvffi_request &request, Answer &answer) const
    {
        return detail::done(kvffi_pair_answer, handle_.get(), &request, answer.get());
    }

    Result<Done> answer_json(std::string_view json, Answer &answer) const
    {
        return detail::done(kvffi_pair_answer_json, handle_.get(), json.data(), json.size(), answer.get());
    }

    Result<Done> verify(const Answer &answer) const
    {
        return detail::done(kvffi_pair_verify, handle_.get(), answer.get());
    }

    Result<Text> explain(std::int32_t form = KVFFI_FORM_TEXT) const
    {
        return detail::make<Text, kvffi_text>(kvffi_pair_explain, handle_.get(), form);
    }

    const kvffi_pair *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_pair, kvffi_pair_free> handle_;
};

/* Bytes that the library made. */
class Bytes {
public:
    explicit Bytes(kvffi_bytes *handle) noexcept : handle_(handle) {}
    Span<const std::uint8_t> span() const noexcept
    {
        return {kvffi_bytes_data(handle_.get()), kvffi_bytes_len(handle_.get())};
    }

private:
    detail::Owned<kvffi_bytes, kvffi_bytes_free> handle_;
};

/* Agents of one process that can reach each other without NIXL, for tests. */
class Loopback {
public:
    explicit Loopback(kvffi_loopback *handle) noexcept : handle_(handle) {}

    static Result<Loopback> create() { return detail::make<Loopback, kvffi_loopback>(kvffi_loopback_new); }

    Result<Done> set_faults(std::uint32_t faults)
    {
        return detail::done(kvffi_loopback_set_faults, handle_.get(), faults);
    }

    const kvffi_loopback *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_loopback, kvffi_loopback_free> handle_;
};

/* A peer that an agent has connected. */
class Peer {
public:
    explicit Peer(kvffi_peer *handle) noexcept : handle_(handle) {}

    /* Its name lives as long as the peer. */
    Result<kvffi_peer_info> info() const { return detail::value<kvffi_peer_info>(kvffi_peer_get_info, get()); }

    /* What caches it has, to plan against. */
    Result<Spec> layout() const { return detail::make<Spec, kvffi_spec>(kvffi_peer_get_layout, get()); }

    Result<Done> declare_gone() const { return detail::done(kvffi_peer_declare_gone, get()); }

    const kvffi_peer *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_peer, kvffi_peer_free> handle_;
};

/* Notifications that have arrived. */
class Notifications {
public:
    explicit Notifications(kvffi_notifications *handle) noexcept : handle_(handle) {}

    std::size_t size() const noexcept { return kvffi_notifications_len(handle_.get()); }

    /* What they point to lives as long as this object. */
    Result<std::vector<kvffi_notification>> list() const
    {
        return detail::list_of<kvffi_notification>(kvffi_notifications_get, handle_.get());
    }

private:
    detail::Owned<kvffi_notifications, kvffi_notifications_free> handle_;
};

/* Bytes that move. Freed while in progress it is cancelled; its blocks are in use until it has settled. */
class Transfer {
public:
    explicit Transfer(kvffi_transfer *handle) noexcept : handle_(handle) {}

    /* Whether every byte is in place; false while it is in progress. Failure is an error, settled or not. */
    Result<bool> poll() const { return detail::finished(kvffi_transfer_poll, handle_.get()); }

    /* Like poll, after a wait of at most so many milliseconds. */
    Result<bool> wait(std::uint64_t timeout_ms = KVFFI_FOREVER) const
    {
        return detail::finished(kvffi_transfer_wait, handle_.get(), timeout_ms);
    }

    /* Like poll, after a wait until nothing can land any more, of at most so many milliseconds. */
    Result<bool> wait_settled(std::uint64_t timeout_ms = KVFFI_FOREVER) const
    {
        return detail::finished(kvffi_transfer_wait_settled, handle_.get(), timeout_ms);
    }

    Result<Done> cancel() const { return detail::done(kvffi_transfer_cancel, handle_.get()); }

    Result<kvffi_transfer_stats> stats() const
    {
        return detail::value<kvffi_transfer_stats>(kvffi_transfer_get_stats, handle_.get());
    }

private:
    detail::Owned<kvffi_transfer, kvffi_transfer_free> handle_;
};

/* Transfers that have failed and not settled, as it was when it was asked for. */
class Quarantine {
public:
    explicit Quarantine(kvffi_quarantine *handle) noexcept : handle_(handle) {}

    /* What they point to lives as long as this object. */
    Result<std::vector<kvffi_quarantined>> entries() const
    {
        return detail::list_of<kvffi_quarantined>(kvffi_quarantine_get_entries, handle_.get());
    }

    Result<std::vector<kvffi_quarantined_range>> ranges(std::size_t entry) const
    {
        return detail::list<kvffi_quarantined_range>(kvffi_quarantine_get_ranges, handle_.get(), entry);
    }

private:
    detail::Owned<kvffi_quarantine, kvffi_quarantine_free> handle_;
};

/* One worker's end of all transfers. Texts end with a NUL. */
class Agent {
public:
    explicit Agent(kvffi_agent *handle) noexcept : handle_(handle) {}

    static Result<Agent> create(const char *name, const kvffi_agent_options &options = KVFFI_AGENT_OPTIONS_INIT)
    {
        return detail::make<Agent, kvffi_agent>(kvffi_agent_new, name, &options);
    }

    /* Its name lives as long as the agent. */
    Result<kvffi_agent_info> info() const { return detail::value<kvffi_agent_info>(kvffi_agent_get_info, get()); }

    /* The memory must stay mapped: see kvffi_agent_register. */
    Result<Done> register_memory(const LocalPlan &plan) const
    {
        return detail::done(kvffi_agent_register, get(), plan.get());
    }

    /* Storages are added and taken away, the others are left alone: see kvffi_agent_reregister. */
    Result<Done> reregister_memory(const LocalPlan &plan) const
    {
        return detail::done(kvffi_agent_reregister, get(), plan.get());
    }

    Result<Done> deregister() const { return detail::done(kvffi_agent_deregister, get()); }

    /* The blob that peers connect to. */
    Result<Bytes> export_blob() const { return detail::make<Bytes, kvffi_bytes>(kvffi_agent_export, get()); }

    Result<Peer> connect(Span<const std::uint8_t> blob) const
    {
        return detail::make<Peer, kvffi_peer>(kvffi_agent_connect, get(), blob.data(), blob.size());
    }

    /* Only the peer of this name. */
    Result<Peer> connect(const char *name, Span<const std::uint8_t> blob) const
    {
        return detail::make<Peer, kvffi_peer>(kvffi_agent_connect_named, get(), name, blob.data(), blob.size());
    }

    /* A peer that is not of this library. */
    Result<Peer> connect(const kvffi_foreign_peer &peer) const
    {
        return detail::make<Peer, kvffi_peer>(kvffi_agent_connect_foreign, get(), &peer);
    }

    /* What peers that are not of this library need. */
    Result<Text> nixl_name() const { return detail::make<Text, kvffi_text>(kvffi_agent_get_nixl_name, get()); }
    Result<Bytes> nixl_metadata() const { return detail::make<Bytes, kvffi_bytes>(kvffi_agent_get_nixl_metadata, get()); }

    Result<Done> reconnect(const Peer &peer) const { return detail::done(kvffi_agent_reconnect, get(), peer.get()); }

    Result<Done> disconnect(const Peer &peer) const { return detail::done(kvffi_agent_disconnect, get(), peer.get()); }

    Result<Done> notify(const Peer &peer, std::string_view message) const
    {
        return detail::done(kvffi_agent_notify, get(), peer.get(), detail::bytes(message), message.size());
    }

    Result<Notifications> take_notifications() const
    {
        return detail::make<Notifications, kvffi_notifications>(kvffi_agent_take_notifications, get());
    }

    Result<Transfer> start(const Peer &peer, std::int32_t op, Span<const kvffi_descriptor> descriptors,
                           const kvffi_transfer_options &options = KVFFI_TRANSFER_OPTIONS_INIT) const
    {
        return detail::make<Transfer, kvffi_transfer>(kvffi_agent_start, get(), peer.get(), op, descriptors.data(),
                                                      descriptors.size(), &options);
    }

    Result<Transfer> start(const Peer &peer, const Answer &answer,
                           const kvffi_transfer_options &options = KVFFI_TRANSFER_OPTIONS_INIT) const
    {
        return detail::make<Transfer, kvffi_transfer>(kvffi_agent_start_answer, get(), peer.get(), answer.get(),
                                                      &options);
    }

    /* Answers the request and starts it, in one call. */
    Result<Transfer> start(const Peer &peer, const Pair &pair, const kvffi_request &request, Answer &answer,
                           const kvffi_transfer_options &options = KVFFI_TRANSFER_OPTIONS_INIT) const
    {
        return detail::make<Transfer, kvffi_transfer>(kvffi_agent_start_request, get(), peer.get(), pair.get(), &request,
                                                      answer.get(), &options);
    }

    /* A descriptor to wait on: see kvffi_agent_get_fd. */
    Result<std::int32_t> fd(std::uint64_t look_every_us = 0) const
    {
        return detail::value<std::int32_t>(kvffi_agent_get_fd, get(), look_every_us);
    }

    Result<Done> clear_fd() const { return detail::done(kvffi_agent_clear_fd, get()); }

    Result<Done> raise_fd() const { return detail::done(kvffi_agent_raise_fd, get()); }

    Result<Quarantine> quarantine() const
    {
        return detail::make<Quarantine, kvffi_quarantine>(kvffi_agent_get_quarantine, get());
    }

    Result<kvffi_agent_stats> stats() const { return detail::value<kvffi_agent_stats>(kvffi_agent_get_stats, get()); }

    Result<std::vector<kvffi_bucket>> histogram(std::int32_t histogram) const
    {
        return detail::list<kvffi_bucket>(kvffi_agent_get_histogram, get(), histogram);
    }

    /* Ends the agent; what is in progress may settle for so many milliseconds. */
    Result<Done> shutdown(std::uint64_t timeout_ms) const
    {
        return detail::done(kvffi_agent_shutdown, get(), timeout_ms);
    }

    const kvffi_agent *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_agent, kvffi_agent_free> handle_;
};

/* The name of a kind of event, such as "KVFFI_EVENT_PULLED". Static. */
inline const char *event_name(std::int32_t kind) noexcept { return kvffi_event_name(kind); }

/* What has happened at an exchange since the last poll, in order. */
class Events {
public:
    explicit Events(kvffi_events *handle) noexcept : handle_(handle) {}

    std::size_t size() const noexcept { return kvffi_events_len(handle_.get()); }
    /* What it points to lives as long as this object. */
    Result<kvffi_event> get(std::size_t index) const
    {
        return detail::value<kvffi_event>(kvffi_events_get, handle_.get(), index);
    }

private:
    detail::Owned<kvffi_events, kvffi_events_free> handle_;
};

/* Registrations that a part is to be written to. */
class Pushes {
public:
    explicit Pushes(kvffi_pushes *handle) noexcept : handle_(handle) {}

    /* What they point to lives as long as this object. */
    Result<std::vector<kvffi_push_id>> list() const
    {
        return detail::list_of<kvffi_push_id>(kvffi_pushes_get, handle_.get());
    }

private:
    detail::Owned<kvffi_pushes, kvffi_pushes_free> handle_;
};

/* Leases, pulls, pushes and peers of one agent. Texts end with a NUL. */
class Exchange {
public:
    explicit Exchange(kvffi_exchange *handle) noexcept : handle_(handle) {}

    static Result<Exchange> create(const Agent &agent, const kvffi_exchange_options &options = KVFFI_EXCHANGE_OPTIONS_INIT)
    {
        return detail::make<Exchange, kvffi_exchange>(kvffi_exchange_new, agent.get(), &options);
    }

    /* What to do to use a peer by this name. */
    Result<kvffi_wanted> want(const char *name)
    {
        return detail::value<kvffi_wanted>(kvffi_exchange_want, handle_.get(), name);
    }

    Result<Peer> connect(Span<const std::uint8_t> blob)
    {
        return detail::make<Peer, kvffi_peer>(kvffi_exchange_connect, handle_.get(), blob.data(), blob.size());
    }

    /* Only the peer of this name. */
    Result<Peer> connect(const char *name, Span<const std::uint8_t> blob)
    {
        return detail::make<Peer, kvffi_peer>(
            kvffi_exchange_connect_named, handle_.get(), name, blob.data(), blob.size());
    }

    /* A peer that is connected, to plan with. */
    Result<Peer> peer(const kvffi_peer_id &peer)
    {
        return detail::make<Peer, kvffi_peer>(kvffi_exchange_get_peer, handle_.get(), &peer);
    }

    Result<Done> fetch_failed(const char *name)
    {
        return detail::done(kvffi_exchange_fetch_failed, handle_.get(), name);
    }
    Result<Done> release_peer(const char *name)
    {
        return detail::done(kvffi_exchange_release_peer, handle_.get(), name);
    }
    Result<Done> peer_is_gone(const kvffi_peer_id &peer)
    {
        return detail::done(kvffi_exchange_peer_is_gone, handle_.get(), &peer);
    }

    /* Tells peers that the memory is about to go. */
    Result<Done> withdraw() { return detail::done(kvffi_exchange_withdraw, handle_.get()); }
    /* Peers that have not answered that. */
    Result<std::size_t> count_withdrawing()
    {
        return detail::value<std::size_t>(kvffi_exchange_count_withdrawing, handle_.get());
    }
    /* Tells peers that memory was registered anew. */
    Result<Done> registered() { return detail::done(kvffi_exchange_registered, handle_.get()); }
    Result<Done> goodbye() { return detail::done(kvffi_exchange_goodbye, handle_.get()); }

    /* Producer: holds a request's blocks; returns the lease. */
    Result<std::uint64_t> hold(const char *request, std::uint64_t cookie, std::uint64_t readers, std::uint32_t num_parts = 0)
    {
        return detail::value<std::uint64_t>(kvffi_exchange_hold, handle_.get(), request, cookie, readers, num_parts);
    }

    /* Whether the lease was in force. */
    Result<bool> set_readers(std::uint64_t lease, std::uint64_t readers)
    {
        return detail::flag(kvffi_exchange_set_readers, handle_.get(), lease, readers);
    }

    /* Says that a part is computed; returns whom to write it to. */
    Result<Pushes> ready(std::uint64_t lease, std::uint32_t part)
    {
        return detail::make<Pushes, kvffi_pushes>(kvffi_exchange_ready, handle_.get(), lease, part);
    }

    /* Refuses a registration; whether there was something to refuse. */
    Result<bool> refuse(const kvffi_push_id &push, const char *reason)
    {
        return detail::flag(kvffi_exchange_refuse, handle_.get(), &push, reason);
    }

    /* Whether the lease was in force. */
    Result<bool> abort(std::uint64_t lease) { return detail::flag(kvffi_exchange_abort, handle_.get(), lease); }

    Result<Done> write(const kvffi_push_id &push, std::uint32_t part, Span<const kvffi_descriptor> descriptors,
                       std::uint64_t padding_bytes = 0)
    {
        return detail::done(kvffi_exchange_write, handle_.get(), &push, part, descriptors.data(), descriptors.size(),
                            padding_bytes);
    }

    Result<Done> write(const kvffi_push_id &push, std::uint32_t part, const Answer &answer)
    {
        return detail::done(kvffi_exchange_write_answer, handle_.get(), &push, part, answer.get());
    }

    /* Consumer: reads a request; returns the pull's number. */
    Result<std::uint64_t> pull(std::uint64_t cookie, Span<const kvffi_pull_part> parts,
                               std::uint64_t deadline_ms = KVFFI_DEFAULT_DEADLINE_MS)
    {
        return detail::value<std::uint64_t>(kvffi_exchange_pull, handle_.get(), cookie, parts.data(), parts.size(),
                                            deadline_ms);
    }

    /* Whether it was in progress. */
    Result<bool> cancel_pull(std::uint64_t pull) { return detail::flag(kvffi_exchange_cancel_pull, handle_.get(), pull); }

    /* Heartbeats for a lease of a request that waits for its pull. */
    Result<Done> keep(const kvffi_peer_id &peer, std::uint64_t lease)
    {
        return detail::done(kvffi_exchange_keep, handle_.get(), &peer, lease);
    }
    Result<Done> let_go(const kvffi_peer_id &peer, std::uint64_t lease)
    {
        return detail::done(kvffi_exchange_let_go, handle_.get(), &peer, lease);
    }

    /* Has a request written into blocks of this worker; returns the reservation's number. */
    Result<std::uint64_t> reserve(const char *request, std::uint64_t cookie, Span<const kvffi_push_source> sources,
                                  std::uint64_t deadline_ms = KVFFI_DEFAULT_DEADLINE_MS)
    {
        return detail::value<std::uint64_t>(kvffi_exchange_reserve, handle_.get(), request, cookie, sources.data(),
                                            sources.size(), deadline_ms);
    }

    /* Whether it was held. */
    Result<bool> cancel_reservation(std::uint64_t reservation)
    {
        return detail::flag(kvffi_exchange_cancel_reservation, handle_.get(), reservation);
    }

    /* Moves everything on; returns what has happened. Call it often, or when the agent's descriptor is readable. */
    Result<Events> poll() { return detail::make<Events, kvffi_events>(kvffi_exchange_poll, handle_.get()); }
    /* When to poll at the latest, in milliseconds from now. */
    Result<std::uint64_t> timeout_ms()
    {
        return detail::value<std::uint64_t>(kvffi_exchange_get_timeout, handle_.get());
    }

    Result<kvffi_exchange_stats> stats()
    {
        return detail::value<kvffi_exchange_stats>(kvffi_exchange_get_stats, handle_.get());
    }

private:
    detail::Owned<kvffi_exchange, kvffi_exchange_free> handle_;
};

/* Log records that were taken. */
class LogRecords {
public:
    explicit LogRecords(kvffi_log_records *handle) noexcept : handle_(handle) {}

    std::size_t size() const noexcept { return kvffi_log_records_len(handle_.get()); }
    /* What they point to lives as long as this object. */
    Result<std::vector<kvffi_log_record>> list() const
    {
        return detail::list_of<kvffi_log_record>(kvffi_log_records_get, handle_.get());
    }

private:
    detail::Owned<kvffi_log_records, kvffi_log_records_free> handle_;
};

/* The library's log records, from when this was made until it goes: one in a process at a time. */
class Logs {
public:
    explicit Logs(kvffi_logs *handle) noexcept : handle_(handle) {}

    static Result<Logs> create(const kvffi_log_options &options = KVFFI_LOG_OPTIONS_INIT)
    {
        return detail::make<Logs, kvffi_logs>(kvffi_logs_new, &options);
    }

    /* A descriptor that is readable while records wait. */
    Result<std::int32_t> fd() const { return detail::value<std::int32_t>(kvffi_logs_get_fd, handle_.get()); }

    /* Takes the records that wait; how many found no room is left in dropped, unless that is NULL. */
    Result<LogRecords> take(std::uint64_t *dropped = nullptr) const
    {
        return detail::make<LogRecords, kvffi_log_records>(
            [dropped](const kvffi_logs *logs, kvffi_log_records **records, kvffi_error **error) {
                return kvffi_logs_take(logs, records, dropped, error);
            },
            handle_.get());
    }

private:
    detail::Owned<kvffi_logs, kvffi_logs_free> handle_;
};

/* Version of the library that is loaded, as text. */
inline std::string_view version() noexcept
{
    return kvffi_version_text();
}

/* Whether the library that is loaded fits this header. */
inline Result<Done> abi_check() { return detail::done(kvffi_abi_check, std::uint32_t{KVFFI_VERSION}); }

} // namespace kvffi

#endif /* KVFFI_HPP */
