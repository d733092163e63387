/*
 * kvffi.hpp: kvffi.h for C++17. Objects that free themselves, vectors and string views in place of pointers and lengths,
 * errors as exceptions or as results. It adds no logic: what a call means is said at its declaration in kvffi.h.
 *
 * By default a call that fails throws kvffi::Error. With KVFFI_RESULTS defined before the header is included, nothing is
 * thrown: every function returns kvffi::Result<T>, which holds a value or an Error. Use one of the two in a whole program.
 */
#ifndef KVFFI_HPP
#define KVFFI_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
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

inline Result<Done> finish(kvffi_status status, kvffi_error *error)
{
    return finish(status, error, Done());
}

/* Makes an object with a call whose last outputs are a handle and an error. */
template <typename Object, typename Handle, typename Call> Result<Object> make(Call call)
{
    Handle *handle = nullptr;
    kvffi_error *error = nullptr;
    const kvffi_status status = call(&handle, &error);
    return finish(status, error, Object(handle));
}

/* Calls a function that fills an array: once for its length, once for its elements. */
template <typename T, typename Call> Result<std::vector<T>> list(Call call)
{
    std::size_t len = 0;
    std::vector<T> values;
    kvffi_status status = call(nullptr, std::size_t{0}, &len, nullptr);
    kvffi_error *error = nullptr;
    if (status == KVFFI_ERR_BUFFER_TOO_SMALL) {
        values.resize(len);
    }
    if (status != KVFFI_OK) {
        status = call(values.data(), values.size(), &len, &error);
    }
    return finish(status, error, std::move(values));
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
        return detail::make<Spec, kvffi_spec>([&](kvffi_spec **spec, kvffi_error **error) {
            return kvffi_spec_from_json(json.data(), json.size(), spec, error);
        });
    }

    Result<Text> to_json() const
    {
        return detail::make<Text, kvffi_text>(
            [&](kvffi_text **text, kvffi_error **error) { return kvffi_spec_to_json(get(), text, error); });
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
        return detail::make<SpecBuilder, kvffi_spec_builder>([&](kvffi_spec_builder **builder, kvffi_error **error) {
            return kvffi_spec_builder_new(&worker, builder, error);
        });
    }

    /* Each returns the index of what was added. */
    Result<std::uint32_t> add(const kvffi_storage &storage) { return add(kvffi_spec_builder_add_storage, &storage); }
    Result<std::uint32_t> add(const kvffi_group &group) { return add(kvffi_spec_builder_add_group, &group); }
    Result<std::uint32_t> add(const kvffi_layer &layer) { return add(kvffi_spec_builder_add_layer, &layer); }

    Result<Done> add_part(std::uint32_t layer, const kvffi_part &part)
    {
        kvffi_error *error = nullptr;
        const kvffi_status status = kvffi_spec_builder_add_part(handle_.get(), layer, &part, &error);
        return detail::finish(status, error);
    }

    Result<Spec> build() const
    {
        return detail::make<Spec, kvffi_spec>([&](kvffi_spec **spec, kvffi_error **error) {
            return kvffi_spec_builder_build(handle_.get(), spec, error);
        });
    }

private:
    template <typename Function, typename T> Result<std::uint32_t> add(Function function, const T *what)
    {
        std::uint32_t index = 0;
        kvffi_error *error = nullptr;
        const kvffi_status status = function(handle_.get(), what, &index, &error);
        return detail::finish(status, error, index);
    }

    detail::Owned<kvffi_spec_builder, kvffi_spec_builder_free> handle_;
};

/* What one worker registers and advertises. */
class LocalPlan {
public:
    explicit LocalPlan(kvffi_local_plan *handle) noexcept : handle_(handle) {}

    static Result<LocalPlan> create(const Spec &spec, std::uint32_t flags = 0)
    {
        return detail::make<LocalPlan, kvffi_local_plan>([&](kvffi_local_plan **plan, kvffi_error **error) {
            return kvffi_local_plan_new(spec.get(), flags, plan, error);
        });
    }

    Result<std::vector<kvffi_memory_range>> memory_ranges() const
    {
        return detail::list<kvffi_memory_range>(
            [&](auto... array) { return kvffi_local_plan_get_memory_ranges(handle_.get(), array...); });
    }

    Result<std::vector<kvffi_region>> regions() const
    {
        return detail::list<kvffi_region>(
            [&](auto... array) { return kvffi_local_plan_get_regions(handle_.get(), array...); });
    }

    /* Their names live as long as the plan. */
    Result<std::vector<kvffi_member>> members(std::size_t region) const
    {
        return detail::list<kvffi_member>(
            [&](auto... array) { return kvffi_local_plan_get_members(handle_.get(), region, array...); });
    }

private:
    detail::Owned<kvffi_local_plan, kvffi_local_plan_free> handle_;
};

/* Descriptors and ranges to zero for one request. */
class Answer {
public:
    explicit Answer(kvffi_answer *handle) noexcept : handle_(handle) {}

    static Result<Answer> create()
    {
        return detail::make<Answer, kvffi_answer>(kvffi_answer_new);
    }

    Result<kvffi_answer_totals> totals() const
    {
        kvffi_answer_totals totals = {};
        kvffi_error *error = nullptr;
        const kvffi_status status = kvffi_answer_get_totals(handle_.get(), &totals, &error);
        return detail::finish(status, error, totals);
    }

    Result<std::vector<kvffi_descriptor>> descriptors() const
    {
        return detail::list<kvffi_descriptor>(
            [&](auto... array) { return kvffi_answer_get_descriptors(handle_.get(), array...); });
    }

    Result<std::vector<kvffi_zero_range>> zero_ranges() const
    {
        return detail::list<kvffi_zero_range>(
            [&](auto... array) { return kvffi_answer_get_zero_ranges(handle_.get(), array...); });
    }

    kvffi_answer *get() noexcept { return handle_.get(); }
    const kvffi_answer *get() const noexcept { return handle_.get(); }

private:
    detail::Owned<kvffi_answer, kvffi_answer_free> handle_;
};

/* Blocks of one group on one side; borrows the block ids. */
inline kvffi_block_list block_list(std::uint32_t group, const std::vector<std::uint32_t> &blocks, std::uint64_t first = 0)
{
    return {group, 0, first, blocks.data(), blocks.size()};
}

/* What to move; borrows the lists. */
inline kvffi_request request(std::int32_t op, const std::vector<kvffi_block_list> &local,
                             const std::vector<kvffi_block_list> &remote)
{
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.op = op;
    request.local = local.data();
    request.num_local = local.size();
    request.remote = remote.data();
    request.num_remote = remote.size();
    return request;
}

/* A plan between this worker and one peer. */
class Pair {
public:
    explicit Pair(kvffi_pair *handle) noexcept : handle_(handle) {}

    static Result<Pair> create(const Spec &local, const Spec &remote,
                               const kvffi_pair_options &options = KVFFI_PAIR_OPTIONS_INIT)
    {
        return detail::make<Pair, kvffi_pair>([&](kvffi_pair **pair, kvffi_error **error) {
            return kvffi_pair_new(local.get(), remote.get(), &options, pair, error);
        });
    }

    Result<Done> answer(const kvffi_request &request, Answer &answer) const
    {
        kvffi_error *error = nullptr;
        const kvffi_status status = kvffi_pair_answer(handle_.get(), &request, answer.get(), &error);
        return detail::finish(status, error);
    }

    Result<Done> verify(const Answer &answer) const
    {
        kvffi_error *error = nullptr;
        const kvffi_status status = kvffi_pair_verify(handle_.get(), answer.get(), &error);
        return detail::finish(status, error);
    }

    Result<Text> explain(std::int32_t form = KVFFI_FORM_TEXT) const
    {
        return detail::make<Text, kvffi_text>([&](kvffi_text **text, kvffi_error **error) {
            return kvffi_pair_explain(handle_.get(), form, text, error);
        });
    }

private:
    detail::Owned<kvffi_pair, kvffi_pair_free> handle_;
};

/* Whether the library that is loaded fits this header. */
inline Result<Done> abi_check()
{
    kvffi_error *error = nullptr;
    const kvffi_status status = kvffi_abi_check(KVFFI_VERSION, &error);
    return detail::finish(status, error);
}

} // namespace kvffi

#endif /* KVFFI_HPP */
