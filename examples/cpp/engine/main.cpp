/*
 * A toy paged engine with disaggregated serving: prefill ranks fill their caches, decode ranks, of another number, block
 * size and layout, pull them over NIXL and generate tokens from what they got. The same text has to come out as from one
 * cache that nothing was moved into: each token follows from every cached byte.
 *
 *     engine [--prefill-tp N] [--decode-tp N] [--spoil]      N: 1, 2, 4 or 8
 *
 * --spoil changes one byte of a decode rank's cache after the transfer, and the text has to come out wrong. Files:
 * model.hpp (what is cached, which token is next), cache.hpp (blocks, and how they are described), mover.hpp (leases and
 * pulls), rank.hpp, scheduler.hpp and channel.hpp (processes, and how they are told what to do), generate.hpp (a request).
 *
 * Build and run, from the root of the repository after `cargo build --release -p kvffi`:
 *
 *     c++ -std=c++17 -Iinclude examples/cpp/engine/main.cpp target/release/libkvffi.a -lpthread -ldl -lm -o engine && ./engine
 */
#include <cstdlib>
#include <iostream>

#include "generate.hpp"

namespace engine {

static void print(const char *who, const std::vector<Token> &text)
{
    std::cout << who;
    for (const Token token : text) {
        std::cout << ' ' << token;
    }
    std::cout << '\n';
}

static int run(const std::vector<std::string> &words)
{
    const auto number = [&](std::size_t i) { return static_cast<std::uint32_t>(std::stoul(words.at(i))); };
    if (!words.empty() && words[0] == "--rank") {
        Channel scheduler(static_cast<int>(number(2)));
        Rank rank(words.at(1), Shape{number(3), number(4), number(5), number(6), number(7) != 0});
        Message introduction = rank.introduction();
        scheduler.send(introduction);
        rank.serve(scheduler);
        return 0;
    }
    std::uint32_t prefill_tp = 2, decode_tp = 4;
    bool spoil = false;
    for (std::size_t i = 0; i < words.size(); i++) {
        if (words[i] == "--spoil") {
            spoil = true;
        } else if (words[i] == "--prefill-tp" || words[i] == "--decode-tp") {
            (words[i] == "--prefill-tp" ? prefill_tp : decode_tp) = number(i + 1);
            i++;
        } else {
            throw std::runtime_error("unknown word " + words[i]);
        }
    }
    for (const std::uint32_t tp : {prefill_tp, decode_tp}) {
        if (tp == 0 || num_kv_heads % tp != 0) {
            throw std::runtime_error("the model has 8 KV heads: as many ranks as divide them");
        }
    }
    kvffi::abi_check();
    const auto alone = generate_alone(), apart = generate_apart(prefill_tp, decode_tp, spoil);
    print("alone:", alone);
    print("apart:", apart);
    std::cout << (alone == apart ? "the same text\n" : "ANOTHER TEXT\n");
    return alone == apart ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace engine

int main(int argc, char **argv)
{
    try {
        return engine::run(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const std::exception &error) {
        std::cerr << (argc > 2 ? argv[2] : "engine") << ": " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}
