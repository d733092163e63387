/*
 * One rank's paged cache: memory in blocks, and the block table of the one request that it serves.
 *
 * A worker owns the KV heads [tp_rank * 8 / tp_size, (tp_rank + 1) * 8 / tp_size) and has its own block size and layout:
 *
 *     rows       [block][layer][K, V][head][token][bytes]    all layers' pages of a block lie together
 *     otherwise  [layer][block][K, V][head][token][bytes]    each layer apart
 */
#ifndef ENGINE_CACHE_HPP
#define ENGINE_CACHE_HPP

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kvffi.hpp"
#include "model.hpp"

namespace engine {

struct Shape {
    std::uint32_t tp_rank, tp_size, block_tokens, num_blocks;
    bool rows;
};

class PagedCache {
public:
    /* What nobody has written holds 0xee. */
    explicit PagedCache(Shape shape)
        : shape_(shape), num_heads_(num_kv_heads / shape.tp_size), first_head_(num_heads_ * shape.tp_rank),
          head_stride_(shape.block_tokens * head_bytes), part_stride_(num_heads_ * head_stride_),
          page_(2 * part_stride_), layer_stride_(shape.rows ? page_ : page_ * shape.num_blocks),
          block_stride_(shape.rows ? page_ * num_layers : page_), memory_(page_ * num_layers * shape.num_blocks, 0xee)
    {
    }

    /* The blocks that hold the request's tokens, in the order of the sequence. */
    std::vector<std::uint32_t> blocks;

    std::uint32_t blocks_for(std::uint64_t num_tokens) const
    {
        return static_cast<std::uint32_t>((num_tokens + shape_.block_tokens - 1) / shape_.block_tokens);
    }

    /* Where one head's key or value of a position lies; `head` counts within the rank. */
    std::uint8_t *cell(std::uint32_t layer, std::uint32_t part, std::uint32_t head, std::uint64_t position)
    {
        const std::uint64_t block = blocks.at(position / shape_.block_tokens), token = position % shape_.block_tokens;
        return memory_.data() + block * block_stride_ + layer * layer_stride_ + part * part_stride_ + head * head_stride_
               + token * head_bytes;
    }

    /* Computes and caches one token's keys and values. */
    void write(std::uint64_t position, Token token)
    {
        for_each_head(position, [&](std::uint32_t layer, std::uint32_t part, std::uint32_t head, std::uint8_t *cell) {
            const auto bytes = key_or_value(layer, part, head, position, token);
            std::copy(bytes.begin(), bytes.end(), cell);
        });
    }

    /* What this rank's heads add to the next token after so many. */
    std::uint64_t sum(std::uint64_t num_tokens)
    {
        std::uint64_t sum = 0;
        for (std::uint64_t position = 0; position < num_tokens; position++) {
            for_each_head(position, [&](std::uint32_t layer, std::uint32_t part, std::uint32_t head, std::uint8_t *cell) {
                sum += contribution(layer, part, head, position, cell);
            });
        }
        return sum;
    }

    /* The cache as the library sees it: a tensor for each layer, as data_ptr(), shape and stride() would say. */
    kvffi::Spec describe()
    {
        kvffi_worker worker = KVFFI_WORKER_INIT;
        worker.model = "toy";
        worker.tp_rank = shape_.tp_rank;
        worker.tp_size = shape_.tp_size;
        auto tensors = kvffi::Tensors::create(worker);

        kvffi_storage storage = KVFFI_STORAGE_INIT;
        storage.base = reinterpret_cast<std::uintptr_t>(memory_.data());
        storage.len = memory_.size();
        tensors.add(storage);
        kvffi_group group = KVFFI_GROUP_INIT;
        group.block_tokens = shape_.block_tokens;
        group.num_blocks = shape_.num_blocks;
        const std::uint32_t index = tensors.add(group);

        kvffi_attention attention = KVFFI_ATTENTION_INIT;
        attention.num_kv_heads = num_kv_heads;
        attention.head_size = head_size;
        attention.packing = KVFFI_PACKING_HALVES;
        const auto page = kvffi::Page::attention(attention);
        const std::uint64_t shape[] = {shape_.num_blocks, 2, num_heads_, shape_.block_tokens, head_size};
        const std::int64_t strides[] = {signed_of(block_stride_), signed_of(part_stride_), signed_of(head_stride_),
                                        signed_of(head_bytes), signed_of(element_bytes)};
        for (std::uint32_t layer = 0; layer < num_layers; layer++) {
            const std::string name = "layers." + std::to_string(layer);
            const std::uint32_t added = tensors.add(kvffi::page_layer(name.c_str(), page, index));
            const void *first = memory_.data() + layer * layer_stride_;
            tensors.add_tensor(added, kvffi::tensor(first, shape, strides, "B2HNC", element_bytes));
        }
        return tensors.build();
    }

private:
    static std::int64_t signed_of(std::uint64_t stride) { return static_cast<std::int64_t>(stride); }

    /* Calls with the layer, K or V, the head of the whole model, and its cell. */
    template <typename Call> void for_each_head(std::uint64_t position, Call call)
    {
        for (std::uint32_t layer = 0; layer < num_layers; layer++) {
            for (std::uint32_t part = 0; part < 2; part++) {
                for (std::uint32_t head = 0; head < num_heads_; head++) {
                    call(layer, part, first_head_ + head, cell(layer, part, head, position));
                }
            }
        }
    }

    Shape shape_;
    std::uint32_t num_heads_, first_head_;
    std::uint64_t head_stride_, part_stride_, page_, layer_stride_, block_stride_;
    std::vector<std::uint8_t> memory_;
};

} // namespace engine

#endif
