/*
 * The process of one rank: it owns a cache, an agent, and does what the scheduler says.
 *
 * The moves are in Rank::receive (decode pulls) and Rank::await_readers (prefill learns that its blocks are free again).
 */
#ifndef ENGINE_RANK_HPP
#define ENGINE_RANK_HPP

#include <poll.h>

#include <string>
#include <vector>

#include "cache.hpp"
#include "channel.hpp"

namespace engine {

enum class Command : std::uint8_t { Prefill, Receive, AwaitReaders, Append, Sum, Spoil, Quit };

/* What a rank has moved. */
struct Moved {
    std::uint64_t num_transfers, num_descriptors, num_bytes;
};

class Rank {
public:
    Rank(const std::string &name, Shape shape)
        : cache_(shape), spec_(cache_.describe()), agent_(kvffi::Agent::create(name.c_str()))
    {
        agent_.register_memory(kvffi::LocalPlan::create(spec_));
    }

    /* Who this is, for the other side: its blob, and its spec as text. */
    Message introduction() const
    {
        Message message;
        const kvffi::Bytes blob = agent_.export_blob();
        const kvffi::Text json = spec_.to_json();
        message.put_list(blob.span().data(), blob.span().size());
        message.put_list(json.view().data(), json.view().size());
        return message;
    }

    /* Does as it is told until it is told to end. */
    void serve(Channel &scheduler)
    {
        for (;;) {
            Message message = scheduler.receive(), answer;
            switch (message.get<Command>()) {
            case Command::Prefill: {
                cache_.blocks = message.get_list<std::uint32_t>();
                std::uint64_t position = 0;
                for (const Token token : message.get_list<Token>()) {
                    cache_.write(position++, token);
                }
                break;
            }
            case Command::Receive: answer.put(receive(message)); break;
            case Command::AwaitReaders: answer.put(await_readers(message)); break;
            case Command::Append: {
                cache_.blocks = message.get_list<std::uint32_t>();
                const auto position = message.get<std::uint64_t>();
                cache_.write(position, message.get<Token>());
                break;
            }
            case Command::Sum: answer.put(cache_.sum(message.get<std::uint64_t>())); break;
            case Command::Spoil: *cache_.cell(num_layers - 1, 1, 0, message.get<std::uint64_t>()) ^= 1; break;
            case Command::Quit: agent_.shutdown(5000); return;
            }
            scheduler.send(answer);
        }
    }

private:
    /* Reads this rank's share of a request from every prefill rank that has some of it. */
    Moved receive(Message &message)
    {
        cache_.blocks = message.get_list<std::uint32_t>();
        const auto remote_blocks = message.get_list<std::uint32_t>();
        const kvffi_block_list local[] = {kvffi::block_list(0, cache_.blocks)};
        const kvffi_block_list remote[] = {kvffi::block_list(0, remote_blocks)};
        kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
        static constexpr std::uint8_t done[] = {'d', 'o', 'n', 'e'};
        options.notify = done;
        options.notify_len = sizeof done;
        options.deadline_ms = 30000;

        Moved moved = {};
        auto answer = kvffi::Answer::create();
        std::vector<kvffi::Transfer> transfers;
        for (auto num_peers = message.get<std::uint64_t>(); num_peers > 0; num_peers--) {
            const kvffi::Peer peer = agent_.connect(message.get_list<std::uint8_t>());
            const auto pair = kvffi::Pair::create(spec_, peer.layout());
            if (pair.is_empty()) {
                continue;
            }
            pair.answer(kvffi::request(KVFFI_OP_READ, local, remote), answer);
            transfers.push_back(agent_.start(peer, answer, options));
            moved.num_descriptors += answer.totals().num_descriptors;
            moved.num_bytes += answer.totals().bytes;
        }
        for (const kvffi::Transfer &transfer : transfers) {
            transfer.wait();
        }
        moved.num_transfers = transfers.size();
        return moved;
    }

    /* Waits until every decode rank that reads from this one has said so; returns how many there are. */
    std::uint64_t await_readers(Message &message)
    {
        const auto json = message.get_list<char>();
        const auto reader = kvffi::Spec::from_json({json.data(), json.size()});
        const kvffi_spec *const stages[] = {reader.get()};
        const std::size_t num_readers = spec_.count_readers(stages);
        pollfd news = {agent_.fd(), POLLIN, 0};
        for (std::size_t num_done = 0; num_done < num_readers;) {
            if (poll(&news, 1, 30000) != 1) {
                throw std::runtime_error("a reader says nothing");
            }
            agent_.clear_fd();
            num_done += agent_.take_notifications().size();
        }
        return num_readers;
    }

    PagedCache cache_;
    kvffi::Spec spec_;
    kvffi::Agent agent_;
};

} // namespace engine

#endif
