/* Messages between the scheduler and its ranks: numbers and lists, over a socket. What fails, or takes too long, throws. */
#ifndef ENGINE_CHANNEL_HPP
#define ENGINE_CHANNEL_HPP

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace engine {

/* A message in the making, or one that is being taken apart, in the order in which it was made. */
class Message {
public:
    template <typename T> Message &put(const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto *bytes = reinterpret_cast<const std::uint8_t *>(&value);
        bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
        return *this;
    }

    template <typename T> Message &put_list(const T *values, std::size_t size)
    {
        put<std::uint64_t>(size);
        for (std::size_t i = 0; i < size; i++) {
            put(values[i]);
        }
        return *this;
    }

    template <typename T> T get()
    {
        T value;
        if (bytes_.size() - read_ < sizeof value) {
            throw std::runtime_error("a message ends too early");
        }
        std::memcpy(&value, bytes_.data() + read_, sizeof value);
        read_ += sizeof value;
        return value;
    }

    template <typename T> std::vector<T> get_list()
    {
        std::vector<T> values;
        for (auto size = get<std::uint64_t>(); size > 0; size--) {
            values.push_back(get<T>());
        }
        return values;
    }

    std::vector<std::uint8_t> &bytes() { return bytes_; }

private:
    std::vector<std::uint8_t> bytes_;
    std::size_t read_ = 0;
};

/* One end of a socket; closed at the end. */
class Channel {
public:
    explicit Channel(int fd) : fd_(fd)
    {
        const timeval patience = {60, 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    Channel(Channel &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Channel &operator=(Channel &&) = delete;
    ~Channel()
    {
        if (fd_ >= 0) {
            close(fd_);
        }
    }

    int fd() const { return fd_; }

    void send(Message &message)
    {
        const std::uint64_t size = message.bytes().size();
        write_all(reinterpret_cast<const std::uint8_t *>(&size), sizeof size);
        write_all(message.bytes().data(), size);
    }

    Message receive()
    {
        std::uint64_t size = 0;
        read_all(reinterpret_cast<std::uint8_t *>(&size), sizeof size);
        Message message;
        message.bytes().resize(size);
        read_all(message.bytes().data(), size);
        return message;
    }

private:
    void write_all(const std::uint8_t *bytes, std::size_t size)
    {
        while (size > 0) {
            const ssize_t sent = ::send(fd_, bytes, size, MSG_NOSIGNAL);
            if (sent <= 0) {
                throw std::runtime_error("the other end of a channel is gone");
            }
            bytes += sent;
            size -= static_cast<std::size_t>(sent);
        }
    }

    void read_all(std::uint8_t *bytes, std::size_t size)
    {
        while (size > 0) {
            const ssize_t got = recv(fd_, bytes, size, 0);
            if (got <= 0) {
                throw std::runtime_error(got == 0 ? "the other end of a channel is gone" : "no answer for a minute");
            }
            bytes += got;
            size -= static_cast<std::size_t>(got);
        }
    }

    int fd_;
};

} // namespace engine

#endif
