/* The process of one rank: it owns a cache, and does what the scheduler says while it follows its exchange. */
#ifndef ENGINE_RANK_HPP
#define ENGINE_RANK_HPP

#include <string>
#include <vector>

#include "cache.hpp"
#include "channel.hpp"
#include "mover.hpp"

namespace engine {

enum class Command : std::uint8_t { Connect, Prefill, Pull, AwaitFreed, Append, Sum, Spoil, Goodbye, Quit };

class Rank {
public:
    Rank(const std::string &name, Shape shape) : cache_(shape), spec_(cache_.describe()), mover_(name, spec_) {}

    /* Who this is, for the other side: its blob, and its spec as text. */
    Message introduction() const
    {
        Message message;
        const kvffi::Bytes blob = mover_.blob();
        const kvffi::Text json = spec_.to_json();
        message.put_list(blob.span().data(), blob.span().size());
        message.put_list(json.view().data(), json.view().size());
        return message;
    }

    /* Does as it is told until it is told to end. */
    void serve(Channel &scheduler)
    {
        pollfd watched[] = {{scheduler.fd(), POLLIN, 0}, {mover_.fd(), POLLIN, 0}};
        for (bool goes_on = true; goes_on;) {
            if (poll(watched, 2, 60000) <= 0) {
                throw std::runtime_error("the scheduler says nothing for a minute");
            }
            if (watched[1].revents != 0) {
                mover_.follow();
            }
            if (watched[0].revents != 0) {
                Message message = scheduler.receive(), answer;
                goes_on = obey(message, answer);
                scheduler.send(answer);
            }
        }
    }

private:
    static constexpr const char *request = "request-1";

    /* False if this was the last. */
    bool obey(Message &message, Message &answer)
    {
        switch (message.get<Command>()) {
        case Command::Connect:
            for (auto num_peers = message.get<std::uint64_t>(); num_peers > 0; num_peers--) {
                mover_.connect(message.get_list<std::uint8_t>());
            }
            break;
        case Command::Prefill: answer.put(prefill(message)); break;
        case Command::Pull: answer.put(pull(message)); break;
        case Command::AwaitFreed: answer.put(mover_.await_freed()); break;
        case Command::Append: {
            cache_.blocks = message.get_list<std::uint32_t>();
            const auto position = message.get<std::uint64_t>();
            cache_.write(position, message.get<Token>());
            break;
        }
        case Command::Sum: answer.put(cache_.sum(message.get<std::uint64_t>())); break;
        case Command::Spoil: *cache_.cell(num_layers - 1, 1, 0, message.get<std::uint64_t>()) ^= 1; break;
        case Command::Goodbye: mover_.goodbye(); break;
        case Command::Quit: return false;
        }
        return true;
    }

    /* Computes a prompt's cache and holds it for its readers; the spec of any decode rank says how many there are. */
    Ticket prefill(Message &message)
    {
        cache_.blocks = message.get_list<std::uint32_t>();
        std::uint64_t position = 0;
        for (const Token token : message.get_list<Token>()) {
            cache_.write(position++, token);
        }
        const auto json = message.get_list<char>();
        const auto reader = kvffi::Spec::from_json({json.data(), json.size()});
        const kvffi_spec *const stages[] = {reader.get()};
        return mover_.hold(request, spec_.count_readers(stages));
    }

    Moved pull(Message &message)
    {
        cache_.blocks = message.get_list<std::uint32_t>();
        const auto remote_blocks = message.get_list<std::uint32_t>();
        const kvffi_block_list local[] = {kvffi::block_list(0, cache_.blocks)};
        const kvffi_block_list remote[] = {kvffi::block_list(0, remote_blocks)};
        return mover_.pull(spec_, request, message.get_list<Ticket>(), local, remote);
    }

    PagedCache cache_;
    kvffi::Spec spec_;
    Mover mover_;
};

} // namespace engine

#endif
