/* Everything of kvffi.hpp that says whose blocks are whose: leases, pulls, pushes and peers, between two workers. */
#include <poll.h>

#include "worker.hpp"

/* A worker with an exchange, and what it was told. */
struct Side : Worker {
    Side(const char *name, const kvffi::Loopback &network, std::uint8_t fill)
        : Worker(name, network, fill), exchange(kvffi::Exchange::create(agent)), news{agent.fd(), POLLIN, 0},
          id{name, agent.info().incarnation}
    {
    }

    kvffi::Peer join(const Side &other)
    {
        const kvffi::Bytes blob = other.agent.export_blob();
        return exchange.connect(blob.span());
    }

    kvffi::Exchange exchange;
    pollfd news;
    kvffi_peer_id id;
    std::vector<kvffi::Events> told;
    std::size_t batch = 0, index = 0;
};

/* Polls both until one is told this; what it was told before is dropped. */
static kvffi_event until(Side &side, Side &other, std::int32_t kind)
{
    for (;;) {
        for (; side.batch < side.told.size(); side.batch++, side.index = 0) {
            while (side.index < side.told[side.batch].size()) {
                const kvffi_event event = side.told[side.batch].get(side.index++);
                if (event.kind == kind) {
                    return event;
                }
            }
        }
        pollfd news[] = {side.news, other.news};
        CHECK(poll(news, 2, 60000) > 0);
        side.told.push_back(side.exchange.poll());
        other.told.push_back(other.exchange.poll());
    }
}

static void blocks_are_pulled_under_a_lease(Side &decode, Side &prefill)
{
    const kvffi_descriptor descriptors[] = {whole_block(3, 0)};
    const std::uint64_t lease = prefill.exchange.hold("r1", 11, 1);
    CHECK(thrown_by([&] { prefill.exchange.hold("r1", 12, 1); }) == KVFFI_ERR_REQUEST_HELD);
    decode.exchange.keep(prefill.id, lease);
    decode.exchange.let_go(prefill.id, lease);
    kvffi_pull_part parts[1] = {};
    parts[0].peer = prefill.id.name;
    parts[0].incarnation = prefill.id.incarnation;
    parts[0].request = "r1";
    parts[0].lease = lease;
    parts[0].descriptors = descriptors;
    parts[0].num_descriptors = 1;
    const std::uint64_t pull = decode.exchange.pull(21, {parts, 1});
    kvffi_event event = until(decode, prefill, KVFFI_EVENT_PULLED);
    CHECK(event.pull == pull && event.cookie == 21 && decode.block_is(3, 7) && decode.block_is(2, 0));
    event = until(prefill, decode, KVFFI_EVENT_FREED);
    CHECK(event.cookie == 11 && event.lease == lease && event.why == KVFFI_WHY_ALL_READ);
    CHECK(!decode.exchange.cancel_pull(pull) && !prefill.exchange.abort(lease));

    /* The number of readers is known late, and then nobody reads. */
    const std::uint64_t other = prefill.exchange.hold("r2", 12, KVFFI_READERS_UNKNOWN);
    CHECK(prefill.exchange.set_readers(other, 1) && prefill.exchange.abort(other));
    CHECK(until(prefill, decode, KVFFI_EVENT_FREED).why == KVFFI_WHY_ABORTED);
}

static void blocks_are_written_part_by_part(Side &decode, Side &prefill)
{
    const std::vector<std::uint32_t> blocks = {1};
    const kvffi_block_list lists[] = {kvffi::block_list(0, blocks)};
    const kvffi_push_source sources[] = {{"prefill", prefill.id.incarnation, lists, 1}};
    const std::uint64_t reservation = decode.exchange.reserve("p1", 31, sources);
    const std::uint64_t lease = prefill.exchange.hold("p1", 13, 1, 2);
    const kvffi_event push = until(prefill, decode, KVFFI_EVENT_PUSH);
    CHECK(push.lease == lease && push.reservation == reservation && push.lists[0].blocks[0] == 1);

    const kvffi_descriptor half[] = {{0, 0, block_bytes, block_bytes, block_bytes / 2}};
    const kvffi::Pushes first = prefill.exchange.ready(lease, 0);
    const std::vector<kvffi_push_id> whom = first.list();
    CHECK(whom.size() == 1 && whom[0].peer == std::string("decode") && whom[0].reservation == reservation);
    prefill.exchange.write(whom[0], 0, half);
    prefill.exchange.ready(lease, 1);
    CHECK(thrown_by([&] { prefill.exchange.write(whom[0], 0, half); }) == KVFFI_ERR_WRITE_REFUSED);

    /* The second part from an answer: all of the block. */
    kvffi_pair_options options = KVFFI_PAIR_OPTIONS_INIT;
    options.op = KVFFI_OP_WRITE;
    const kvffi::Peer peer = prefill.exchange.peer(decode.id);
    const auto pair = kvffi::Pair::create(prefill.spec, peer.layout(), options);
    auto answer = kvffi::Answer::create();
    pair.answer(kvffi::request(KVFFI_OP_WRITE, lists, {push.lists, push.num_lists}), answer);
    prefill.exchange.write(whom[0], 1, answer);
    CHECK(until(decode, prefill, KVFFI_EVENT_ARRIVED).cookie == 31 && decode.block_is(1, 7));

    const std::uint64_t unwanted = decode.exchange.reserve("p2", 32, sources);
    CHECK(decode.exchange.cancel_reservation(unwanted));
    CHECK(until(decode, prefill, KVFFI_EVENT_RETURNED_RESERVATION).cookie == 32);
}

static void peers_come_and_go(Side &decode, Side &prefill)
{
    CHECK(decode.exchange.want("prefill").what == KVFFI_WANTED_READY);
    CHECK(decode.exchange.want("other").what == KVFFI_WANTED_FETCH);
    decode.exchange.fetch_failed("other");
    const kvffi_wanted wanted = decode.exchange.want("other");
    // Or that time is over already.
    CHECK((wanted.what == KVFFI_WANTED_WAIT && wanted.wait_ms <= 100) || wanted.what == KVFFI_WANTED_FETCH);
    decode.exchange.release_peer("other");

    prefill.exchange.withdraw();
    CHECK(prefill.exchange.count_withdrawing() == 1);
    until(prefill, decode, KVFFI_EVENT_WITHDRAWN);
    CHECK(until(decode, prefill, KVFFI_EVENT_PEER_STALE).peer == std::string("prefill"));
    prefill.agent.deregister();
    prefill.agent.register_memory(kvffi::LocalPlan::create(prefill.spec));
    prefill.exchange.registered();
    const kvffi::Peer again = decode.join(prefill);
    CHECK(again.info().generation == 2);
    decode.exchange.peer_is_gone(prefill.id);

    CHECK(prefill.exchange.stats().lease_held == 3 && decode.exchange.stats().pull_pulled == 1);
    CHECK(decode.exchange.timeout_ms() <= 5000);
    decode.exchange.goodbye();
    CHECK(thrown_by([&] { decode.agent.shutdown(0); }) == KVFFI_ERR_IN_USE);
}

int main()
{
    kvffi::abi_check();
    const auto network = kvffi::Loopback::create();
    Side decode("decode", network, 0), prefill("prefill", network, 7);
    const kvffi::Peer there = decode.join(prefill), here = prefill.join(decode);
    blocks_are_pulled_under_a_lease(decode, prefill);
    blocks_are_written_part_by_part(decode, prefill);
    peers_come_and_go(decode, prefill);
    std::cout << "blocks changed hands\n";
}
