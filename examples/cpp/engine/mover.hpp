/*
 * One rank's end of all moves: an agent, and an exchange that says whose blocks are whose.
 *
 * A prefill rank holds a request's blocks under a lease until every decode rank that reads from it has done so. A decode
 * rank pulls its share from every prefill rank that has some of it, and may use the bytes once all leases are confirmed.
 */
#ifndef ENGINE_MOVER_HPP
#define ENGINE_MOVER_HPP

#include <poll.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kvffi.hpp"

namespace engine {

/* What a prefill rank gives to those who read from it, besides its blob. */
struct Ticket {
    std::uint64_t lease;
};

/* What a rank has moved. */
struct Moved {
    std::uint64_t num_peers, num_descriptors, num_bytes;
};

class Mover {
public:
    Mover(const std::string &name, const kvffi::Spec &spec)
        : agent_(kvffi::Agent::create(name.c_str())), exchange_(kvffi::Exchange::create(agent_))
    {
        agent_.register_memory(kvffi::LocalPlan::create(spec));
    }

    kvffi::Bytes blob() const { return agent_.export_blob(); }
    /* Readable when there is something to follow. */
    int fd() const { return agent_.fd(); }
    void connect(const std::vector<std::uint8_t> &blob) { peers_.push_back(exchange_.connect(blob)); }

    /* Keeps a request's blocks for so many readers. */
    Ticket hold(const char *request, std::uint64_t num_readers) { return {exchange_.hold(request, 0, num_readers)}; }

    /* Reads this rank's share of a request from all peers, in the order in which they were connected. */
    Moved pull(const kvffi::Spec &spec, const char *request, const std::vector<Ticket> &tickets,
               kvffi::Span<const kvffi_block_list> local, kvffi::Span<const kvffi_block_list> remote)
    {
        Moved moved = {};
        std::vector<kvffi_pull_part> parts;
        std::vector<kvffi::Answer> answers;
        for (std::size_t i = 0; i < peers_.size(); i++) {
            const auto pair = kvffi::Pair::create(spec, peers_[i].layout());
            if (pair.is_empty()) {
                continue;
            }
            answers.push_back(kvffi::Answer::create());
            pair.answer(kvffi::request(KVFFI_OP_READ, local, remote), answers.back());
            const kvffi_peer_info peer = peers_[i].info();
            kvffi_pull_part part = {};
            part.peer = peer.name;
            part.incarnation = peer.incarnation;
            part.request = request;
            part.lease = tickets.at(i).lease;
            part.answer = answers.back().get();
            parts.push_back(part);
            moved.num_peers++;
            moved.num_descriptors += answers.back().totals().num_descriptors;
            moved.num_bytes += answers.back().totals().bytes;
        }
        exchange_.pull(0, parts, 30000);
        await(num_pulled_);
        return moved;
    }

    /* Waits until the blocks that were held are free again; returns how many completions that took. */
    std::uint64_t await_freed()
    {
        await(num_freed_);
        return exchange_.stats().lease_completions;
    }

    /* Takes what has happened; never waits. */
    void follow()
    {
        const kvffi::Events events = exchange_.poll();
        for (std::size_t i = 0; i < events.size(); i++) {
            const kvffi_event event = events.get(i);
            if (event.kind == KVFFI_EVENT_PULL_FAILED) {
                throw std::runtime_error(event.message);
            }
            if (event.kind == KVFFI_EVENT_FREED && event.why != KVFFI_WHY_ALL_READ) {
                throw std::runtime_error("a lease ended before all had read");
            }
            num_pulled_ += event.kind == KVFFI_EVENT_PULLED;
            num_freed_ += event.kind == KVFFI_EVENT_FREED;
        }
    }

    /* Tells peers that they need not wait for anything of this rank. */
    void goodbye() { exchange_.goodbye(); }

private:
    /* Follows what happens until something was counted, and takes it off the count. */
    void await(std::uint64_t &count)
    {
        pollfd news = {fd(), POLLIN, 0};
        while (count == 0) {
            if (poll(&news, 1, 30000) != 1) {
                throw std::runtime_error("nothing happens for half a minute");
            }
            follow();
        }
        count--;
    }

    kvffi::Agent agent_;
    kvffi::Exchange exchange_;
    std::vector<kvffi::Peer> peers_;
    std::uint64_t num_pulled_ = 0, num_freed_ = 0;
};

} // namespace engine

#endif
