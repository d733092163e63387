/* Text from the toy model: out of one cache, and out of decode ranks that pulled the prompt's cache from prefill ranks. */
#ifndef ENGINE_GENERATE_HPP
#define ENGINE_GENERATE_HPP

#include <iostream>

#include "scheduler.hpp"

namespace engine {

constexpr std::uint32_t num_prompt_tokens = 75, num_new_tokens = 12, num_blocks = 24;

/* Block ids that are neither in order nor neighbours, as after a while of serving. */
inline std::vector<std::uint32_t> some_blocks(std::uint32_t num, std::uint32_t step)
{
    std::vector<std::uint32_t> blocks;
    for (std::uint32_t i = 0; i < num; i++) {
        blocks.push_back((3 + i * step) % num_blocks);
    }
    return blocks;
}

/* What comes out of one cache that holds all heads, without a transfer. */
inline std::vector<Token> generate_alone()
{
    PagedCache cache(Shape{0, 1, 16, num_blocks, true});
    cache.blocks = some_blocks(cache.blocks_for(num_prompt_tokens + num_new_tokens), 1);
    std::uint64_t position = 0;
    for (const Token token : prompt(num_prompt_tokens)) {
        cache.write(position++, token);
    }
    std::vector<Token> text;
    while (text.size() < num_new_tokens) {
        text.push_back(next_token(cache.sum(position)));
        cache.write(position++, text.back());
    }
    return text;
}

constexpr std::uint32_t prefill_block = 32, decode_block = 16;

inline std::vector<std::uint32_t> decode_blocks_for(std::uint64_t num_tokens)
{
    return some_blocks(static_cast<std::uint32_t>((num_tokens + decode_block - 1) / decode_block), 7);
}

/* Shows all ranks of a worker the blobs of all ranks of the other. */
inline void connect(Worker &worker, const Worker &other)
{
    Message message;
    message.put(Command::Connect).put<std::uint64_t>(other.num_ranks());
    for (const auto &blob : other.blobs()) {
        message.put_list(blob.data(), blob.size());
    }
    worker.tell(message);
}

/* Prefill computes the prompt's cache and holds it, decode pulls it, and prefill has its blocks back. */
inline void move_prompt(Worker &prefill, Worker &decode)
{
    const auto from = some_blocks((num_prompt_tokens + prefill_block - 1) / prefill_block, 5);
    const auto to = decode_blocks_for(num_prompt_tokens);
    const auto tokens = prompt(num_prompt_tokens);
    const auto &reader = decode.spec();
    std::vector<Ticket> tickets;
    Message compute, pull;
    compute.put(Command::Prefill).put_list(from.data(), from.size()).put_list(tokens.data(), tokens.size());
    for (Message &answer : prefill.tell(compute.put_list(reader.data(), reader.size()))) {
        tickets.push_back(answer.get<Ticket>());
    }
    Moved moved = {};
    pull.put(Command::Pull).put_list(to.data(), to.size()).put_list(from.data(), from.size());
    for (Message &answer : decode.tell(pull.put_list(tickets.data(), tickets.size()))) {
        const auto of_rank = answer.get<Moved>();
        moved.num_peers += of_rank.num_peers;
        moved.num_descriptors += of_rank.num_descriptors;
        moved.num_bytes += of_rank.num_bytes;
    }
    std::uint64_t num_completions = 0;
    for (Message &answer : prefill.tell(Message().put(Command::AwaitFreed))) {
        num_completions += answer.get<std::uint64_t>();
    }
    std::cout << "TP" << prefill.num_ranks() << " -> TP" << decode.num_ranks() << ": " << moved.num_peers << " reads, "
              << moved.num_descriptors << " descriptors, " << moved.num_bytes << " bytes; all blocks free after "
              << num_completions << " completions\n";
}

/* Each step adds up what the ranks' heads say, takes the next token, and lets every rank cache it. */
inline std::vector<Token> decode_text(Worker &decode)
{
    std::vector<Token> text;
    for (std::uint64_t position = num_prompt_tokens; text.size() < num_new_tokens; position++) {
        std::uint64_t sum = 0;
        for (Message &answer : decode.tell(Message().put(Command::Sum).put(position))) {
            sum += answer.get<std::uint64_t>();
        }
        text.push_back(next_token(sum));
        const auto blocks = decode_blocks_for(position + 1);
        decode.tell(Message().put(Command::Append).put_list(blocks.data(), blocks.size()).put(position).put(text.back()));
    }
    return text;
}

/* Prefill and decode ranks, each a process; the scheduler is this one. */
inline std::vector<Token> generate_apart(std::uint32_t prefill_tp, std::uint32_t decode_tp, bool spoil)
{
    Worker prefill("prefill", prefill_tp, prefill_block, num_blocks, true);
    Worker decode("decode", decode_tp, decode_block, num_blocks, false);
    connect(decode, prefill);
    connect(prefill, decode);
    move_prompt(prefill, decode);
    if (spoil) {
        decode.tell(0, Message().put(Command::Spoil).put<std::uint64_t>(num_prompt_tokens / 2));
    }
    const auto text = decode_text(decode);
    /* All say goodbye before any of them ends. */
    decode.tell(Message().put(Command::Goodbye));
    prefill.tell(Message().put(Command::Goodbye));
    if (!decode.quit() || !prefill.quit()) {
        throw std::runtime_error("a rank did not end well");
    }
    return text;
}

} // namespace engine

#endif
