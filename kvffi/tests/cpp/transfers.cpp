/* Everything of kvffi.hpp that moves bytes, between two agents of this process. */
#include <poll.h>

#include "worker.hpp"

static void bytes_move_both_ways(const Worker &decode, const Worker &prefill)
{
    const kvffi::Bytes blob = prefill.agent.export_blob();
    const kvffi::Peer peer = decode.agent.connect(blob.span());
    CHECK(peer.info().name == std::string("prefill-0") && peer.info().unsettled == 0);
    CHECK(std::string(decode.agent.info().name) == "decode-0" && decode.agent.info().generation == 1);
    const kvffi::Spec layout = peer.layout();
    CHECK(layout.to_json().view().find("layers.0") != std::string_view::npos);

    const auto pair = kvffi::Pair::create(decode.spec, layout);
    const std::vector<std::uint32_t> local = {3}, remote = {0};
    const kvffi_block_list local_lists[] = {kvffi::block_list(0, local)}, remote_lists[] = {kvffi::block_list(0, remote)};
    auto answer = kvffi::Answer::create();
    const kvffi_request request = kvffi::request(KVFFI_OP_READ, local_lists, remote_lists);
    CHECK(kvffi::Transfer(decode.agent.start(peer, pair, request, answer)).wait(10000));
    const char *const names[] = {"layers.0"};
    pair.answer(kvffi::with_layers(request, names), answer);
    CHECK(answer.totals().bytes > 0);
    pair.answer(kvffi::with_layer_range(request, 0, 0), answer);
    CHECK(answer.totals().bytes == 0);
    const std::vector<std::uint32_t> longer = {0, 1};
    const kvffi_block_list longer_lists[] = {kvffi::block_list(0, longer)};
    const kvffi_request tail = kvffi::request(KVFFI_OP_READ, local_lists, longer_lists);
    CHECK(thrown_by([&] { pair.answer(tail, answer); }) == KVFFI_ERR_REQUEST_REFUSED);
    pair.answer(kvffi::with_align(tail, KVFFI_REQUEST_ALIGN_TAIL), answer);
    CHECK(answer.descriptors().at(0).remote_offset == block_bytes);
    const char *const unknown[] = {"layers.99"};
    CHECK(thrown_by([&] { pair.answer(kvffi::with_layers(request, unknown), answer); }) == KVFFI_ERR_REQUEST_REFUSED);
    pair.answer(request, answer);
    const kvffi::Transfer read = decode.agent.start(peer, answer);
    CHECK(read.wait(10000) && read.poll() && read.wait_settled());
    CHECK(decode.block_is(3, 7) && decode.block_is(2, 0));
    CHECK(read.stats().bytes == block_bytes && read.stats().is_settled == 1);

    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    const std::uint8_t done[] = {'d', 'o', 'n', 'e'};
    options.notify = done;
    options.notify_len = sizeof done;
    const kvffi_descriptor descriptors[] = {whole_block(0, 1)};
    CHECK(kvffi::Transfer(decode.agent.start(peer, KVFFI_OP_WRITE, descriptors, options)).wait(10000));
    CHECK(prefill.block_is(1, 0) && prefill.block_is(2, 7));

    pollfd news = {prefill.agent.fd(), POLLIN, 0};
    CHECK(poll(&news, 1, 10000) == 1);
    prefill.agent.clear_fd();
    const kvffi::Notifications arrived = prefill.agent.take_notifications();
    CHECK(arrived.size() == 1);
    const std::vector<kvffi_notification> list = arrived.list();
    CHECK(list.at(0).sender == std::string("decode-0") && list[0].incarnation == decode.agent.info().incarnation);
    CHECK(std::string(reinterpret_cast<const char *>(list[0].message), list[0].message_len) == "done");
    decode.agent.notify(peer, "once more");
    prefill.agent.raise_fd();
    CHECK(poll(&news, 1, 10000) == 1);

    CHECK(decode.agent.stats().transfers_done == 3 && decode.agent.stats().bytes == 3 * block_bytes);
    std::uint64_t num_transfers = 0;
    for (const kvffi_bucket &bucket : decode.agent.histogram(KVFFI_HISTOGRAM_TRANSFER)) {
        num_transfers += bucket.count;
    }
    CHECK(num_transfers == 3);
    decode.agent.reconnect(peer);
    decode.agent.disconnect(peer);
    CHECK(thrown_by([&] { decode.agent.start(peer, KVFFI_OP_READ, descriptors); }) == KVFFI_ERR_PEER_GONE);
}

/* An agent of this library is none of those: its name on NIXL has an @. */
static void foreign_peers_have_names_without_incarnation(const Worker &decode, const Worker &prefill)
{
    const kvffi::Text name = prefill.agent.nixl_name();
    const kvffi::Bytes metadata = prefill.agent.nixl_metadata();
    CHECK(name.view().find("prefill-0@") == 0 && metadata.span().size() > 0);
    kvffi_foreign_peer foreign = KVFFI_FOREIGN_PEER_INIT;
    foreign.name = name.view().data();
    foreign.metadata = metadata.span().data();
    foreign.metadata_len = metadata.span().size();
    foreign.layout = prefill.spec.get();
    CHECK(thrown_by([&] { decode.agent.connect(foreign); }) == KVFFI_ERR_INVALID_ARGUMENT);
}

static void what_may_still_land_is_listed(kvffi::Loopback &network, const Worker &decode, const Worker &prefill)
{
    CHECK(kvffi::Quarantine(decode.agent.quarantine()).entries().empty());
    CHECK(kvffi::Notifications(decode.agent.take_notifications()).list().empty());
    network.set_faults(KVFFI_LOOPBACK_STALL);
    const kvffi::Bytes blob = prefill.agent.export_blob();
    const kvffi::Peer peer = decode.agent.connect(blob.span());
    const kvffi_descriptor descriptors[] = {whole_block(2, 2)};
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.request = "request 7";
    const kvffi::Transfer transfer = decode.agent.start(peer, KVFFI_OP_READ, descriptors, options);
    while (transfer.stats().requests == 0) {
        CHECK(!transfer.poll() && !transfer.wait(1));
    }
    transfer.cancel();
    CHECK(thrown_by([&] { transfer.wait(60000); }) == KVFFI_ERR_TRANSFER_UNSETTLED);
    CHECK(thrown_by([&] { transfer.wait_settled(20); }) == KVFFI_ERR_TRANSFER_UNSETTLED);
    CHECK(transfer.stats().cause == KVFFI_ERR_CANCELLED);
    kvffi::Quarantine quarantine = decode.agent.quarantine();
    while (quarantine.entries().empty()) {
        quarantine = decode.agent.quarantine();
    }
    const std::vector<kvffi_quarantined> entries = quarantine.entries();
    CHECK(entries.size() == 1 && entries[0].request == std::string("request 7") && entries[0].bytes == block_bytes);
    const std::vector<kvffi_quarantined_range> ranges = quarantine.ranges(0);
    CHECK(ranges.size() == 1 && ranges[0].len == block_bytes);
    CHECK(thrown_by([&] { decode.agent.deregister(); }) == KVFFI_ERR_IN_USE);

    /* The same memory is no change, and other memory is. */
    const std::uint64_t generation = kvffi_agent_info(decode.agent.info()).generation;
    decode.agent.reregister_memory(kvffi::LocalPlan::create(decode.spec));
    CHECK(kvffi_agent_info(decode.agent.info()).generation == generation + 1);
    CHECK(thrown_by([&] { decode.agent.reregister_memory(kvffi::LocalPlan::create(prefill.spec)); }) == KVFFI_ERR_IN_USE);

    network.set_faults(0);
    CHECK(thrown_by([&] { transfer.wait_settled(10000); }) == KVFFI_ERR_TRANSFER_FAILED);
    decode.agent.deregister();
    CHECK(thrown_by([&] { decode.agent.export_blob(); }) == KVFFI_ERR_WRONG_ORDER);
}

int main()
{
    kvffi::abi_check();
    kvffi_log_options everything = KVFFI_LOG_OPTIONS_INIT;
    everything.level = KVFFI_LOG_TRACE;
    const auto logs = kvffi::Logs::create(everything);
    CHECK(thrown_by([&] { kvffi::Logs::create(); }) == KVFFI_ERR_IN_USE);
    auto network = kvffi::Loopback::create();
    {
        const Worker decode("decode-0", network, 0), prefill("prefill-0", network, 7);
        bytes_move_both_ways(decode, prefill);
        foreign_peers_have_names_without_incarnation(decode, prefill);
        what_may_still_land_is_listed(network, decode, prefill);
        decode.agent.shutdown(1000);
        CHECK(thrown_by([&] { decode.agent.info(); }) == KVFFI_ERR_SHUT_DOWN);
    }
    pollfd news = {logs.fd(), POLLIN, 0};
    CHECK(poll(&news, 1, 10000) == 1);
    std::uint64_t num_dropped = 1;
    const kvffi::LogRecords records = logs.take(&num_dropped);
    CHECK(records.size() > 0 && records.list().size() == records.size() && num_dropped == 0);
    CHECK(std::string(records.list().at(0).target).find("kv") == 0 && records.list()[0].time_ns > 0);
    CHECK(logs.take().list().empty());
    std::cout << "bytes moved both ways\n";
}
