/* Starts the ranks of a worker, each a process of its own, and tells them what to do. */
#ifndef ENGINE_SCHEDULER_HPP
#define ENGINE_SCHEDULER_HPP

#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>

#include <memory>

#include "rank.hpp"

namespace engine {

/* One rank's process, as the scheduler sees it. It is ended and waited for at the end. */
class Process {
public:
    Process(const std::string &name, Shape shape)
    {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
            throw std::runtime_error("no socket");
        }
        fcntl(ends[0], F_SETFD, FD_CLOEXEC);
        std::vector<std::string> words = {"engine", "--rank", name, std::to_string(ends[1])};
        for (const std::uint32_t number :
             {shape.tp_rank, shape.tp_size, shape.block_tokens, shape.num_blocks, shape.rows ? 1U : 0U}) {
            words.push_back(std::to_string(number));
        }
        std::vector<char *> arguments;
        for (std::string &word : words) {
            arguments.push_back(word.data());
        }
        arguments.push_back(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            /* NIXL and this library are not for a child that was forked: start anew. */
            execv("/proc/self/exe", arguments.data());
            _exit(127);
        }
        close(ends[1]);
        channel_ = std::make_unique<Channel>(ends[0]);
        if (pid_ < 0) {
            throw std::runtime_error("no process");
        }
    }
    Process(Process &&other) noexcept : pid_(other.pid_), channel_(std::move(other.channel_)) { other.pid_ = -1; }
    Process &operator=(Process &&) = delete;
    ~Process()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }

    Channel &channel() { return *channel_; }

    /* Waits for a process that was told to end. */
    bool ended_well()
    {
        int status = 0;
        const bool well = waitpid(pid_, &status, 0) == pid_ && status == 0;
        pid_ = -1;
        return well;
    }

private:
    pid_t pid_ = -1;
    std::unique_ptr<Channel> channel_;
};

/* All ranks of a worker. */
class Worker {
public:
    Worker(const std::string &name, std::uint32_t tp_size, std::uint32_t block_tokens, std::uint32_t num_blocks, bool rows)
    {
        for (std::uint32_t rank = 0; rank < tp_size; rank++) {
            ranks_.emplace_back(name + "-" + std::to_string(rank), Shape{rank, tp_size, block_tokens, num_blocks, rows});
        }
        for (Process &rank : ranks_) {
            Message introduction = rank.channel().receive();
            blobs_.push_back(introduction.get_list<std::uint8_t>());
            specs_.push_back(introduction.get_list<char>());
        }
    }

    std::size_t num_ranks() const { return ranks_.size(); }
    const std::vector<std::vector<std::uint8_t>> &blobs() const { return blobs_; }
    /* The spec of any of its ranks. */
    const std::vector<char> &spec() const { return specs_.front(); }

    /* Tells all ranks the same, and returns what they answer. */
    std::vector<Message> tell(Message message)
    {
        for (Process &rank : ranks_) {
            rank.channel().send(message);
        }
        std::vector<Message> answers;
        for (Process &rank : ranks_) {
            answers.push_back(rank.channel().receive());
        }
        return answers;
    }

    /* Tells one rank. */
    Message tell(std::size_t rank, Message message)
    {
        ranks_.at(rank).channel().send(message);
        return ranks_.at(rank).channel().receive();
    }

    /* Ends all ranks, which have said goodbye. */
    bool quit()
    {
        tell(Message().put(Command::Quit));
        bool well = true;
        for (Process &rank : ranks_) {
            well = rank.ended_well() && well;
        }
        return well;
    }

private:
    std::vector<Process> ranks_;
    std::vector<std::vector<std::uint8_t>> blobs_;
    std::vector<std::vector<char>> specs_;
};

} // namespace engine

#endif
