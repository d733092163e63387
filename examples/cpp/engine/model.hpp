/*
 * A toy model: what it caches for a token, and which token comes next.
 *
 * Keys and values are bytes that follow from the token and its place. The next token follows from every cached byte of
 * every head, so that a single byte that is wrong gives another text.
 */
#ifndef ENGINE_MODEL_HPP
#define ENGINE_MODEL_HPP

#include <array>
#include <cstdint>
#include <vector>

namespace engine {

using Token = std::uint32_t;

constexpr std::uint32_t num_layers = 2, num_kv_heads = 8, head_size = 8;
/* bf16. */
constexpr std::uint64_t element_bytes = 2, head_bytes = head_size * element_bytes;
constexpr Token vocabulary = 50021;

/* Spreads the bits of a number. */
constexpr std::uint64_t mixed(std::uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* One head's key (part 0) or value (part 1) of a token at a position of the sequence. */
inline std::array<std::uint8_t, head_bytes> key_or_value(std::uint32_t layer, std::uint32_t part, std::uint32_t head,
                                                         std::uint64_t position, Token token)
{
    std::array<std::uint8_t, head_bytes> bytes = {};
    std::uint64_t state = mixed((layer * 2 + part) * num_kv_heads + head + 1) ^ mixed(position << 32 | token);
    for (std::uint8_t &byte : bytes) {
        state = mixed(state + 1);
        byte = static_cast<std::uint8_t>(state & 0xff);
    }
    return bytes;
}

/*
 * What one head's cached key or value adds to the sum that the next token is made of. Ranks add up their own heads'
 * numbers, and their sums; the order does not matter, so neither does the number of ranks.
 */
inline std::uint64_t contribution(std::uint32_t layer, std::uint32_t part, std::uint32_t head, std::uint64_t position,
                                  const std::uint8_t *bytes)
{
    std::uint64_t state = mixed((layer * 2 + part) * num_kv_heads + head + 1) ^ mixed(position);
    for (std::uint64_t i = 0; i < head_bytes; i++) {
        state = mixed(state ^ bytes[i]);
    }
    return state;
}

/* The token that the sum over all heads stands for. */
inline Token next_token(std::uint64_t sum)
{
    return static_cast<Token>(mixed(sum) % vocabulary);
}

/* A prompt of some tokens. */
inline std::vector<Token> prompt(std::uint32_t num_tokens)
{
    std::vector<Token> tokens;
    for (std::uint32_t i = 0; i < num_tokens; i++) {
        tokens.push_back(static_cast<Token>(mixed(i) % vocabulary));
    }
    return tokens;
}

} // namespace engine

#endif
