// The command interface, from the driver's side: delivery, life of the function, objects, error answers, faults.
#include <gtest/gtest.h>

#include "tests/systemc_models/rnic/mlx5_command_rig.h"

namespace orrery::test::mlx5_command_test {
namespace {

TEST_F(Mlx5Command, DeviceComesUp) {
  driver.bring_up();
  EXPECT_EQ(driver.read(0x014) & 0xffU, 0x56U);  // 32 slots of 64 bytes
  EXPECT_NE(driver.read(0x230), 0xffff'ffffU);
  EXPECT_EQ(driver.read(0xffc), 0U);
  const auto context = data->context<rnic::FunctionContext>(ContextKind::function, 0);
  EXPECT_EQ(context.enabled, 1U);
  EXPECT_EQ(context.lid, 1U);
  EXPECT_EQ(rnic.management().counters().commands_failed, 0U);
}

TEST_F(Mlx5Command, HealthCounterAdvances) {
  ASSERT_TRUE(driver.begin());
  const std::uint32_t before = driver.read(0x1010);
  EXPECT_NE(before, 0U);
  bus.simulation.events.advance_to(bus.simulation.now() + Picoseconds{2'000'000'000'000});
  EXPECT_NE(driver.read(0x1010), before);
}

TEST_F(Mlx5Command, CommandsBecomeEvents) {
  driver.bring_up();
  driver.create_command_eq();
  const std::size_t interrupts = port.interrupts.size();
  const Reply pd_reply = driver.run(0x800);
  EXPECT_TRUE(pd_reply.ok());
  EXPECT_TRUE(pd_reply.by_event);
  EXPECT_EQ(port.interrupts.size(), interrupts + 1);
  EXPECT_EQ(port.interrupts.back(), 0U);
  // The command EQ's end is polled for, and so is what follows.
  const Reply end = driver.run(0x302, 0, {driver.command_eqn});
  EXPECT_TRUE(end.ok());
  EXPECT_FALSE(end.by_event);
  driver.forget_command_eq();
  EXPECT_TRUE(driver.run(0x800).ok());
}

TEST_F(Mlx5Command, ManySlotsAtOnce) {
  driver.bring_up();
  for (unsigned slot = 0; slot < 32; ++slot) {
    driver.prepare(slot, Mlx5Driver::command(0x800), 16);
  }
  driver.write(0x018, 0xffff'ffffU);
  bus.run();
  std::set<std::uint32_t> numbers;
  for (unsigned slot = 0; slot < 32; ++slot) {
    const Reply reply = driver.collect(slot);
    EXPECT_TRUE(reply.ok());
    numbers.insert(reply.handle());
  }
  EXPECT_EQ(numbers.size(), 32U);
}

TEST_F(Mlx5Command, UnknownOpcode) {
  driver.bring_up();
  const Reply reply = driver.run(0xfff);
  EXPECT_EQ(reply.status, number(Status::bad_opcode));
  EXPECT_EQ(reply.syndrome, static_cast<std::uint32_t>(Syndrome::unknown_opcode));
}

TEST_F(Mlx5Command, NothingBeforeInit) {
  ASSERT_TRUE(driver.begin());
  EXPECT_EQ(driver.run(0x800).status, number(Status::bad_system_state));
  EXPECT_EQ(driver.run(0x100, 1, {}, 4112).status, number(Status::bad_system_state));
  EXPECT_TRUE(driver.run(0x104, 0, {}, 12).ok());
  EXPECT_EQ(driver.run(0x104, 0, {}, 12).status, number(Status::bad_system_state));
  EXPECT_EQ(driver.run(0x800).status, number(Status::bad_system_state));
}

TEST_F(Mlx5Command, ShortLengths) {
  driver.bring_up();
  EXPECT_EQ(driver.run(Mlx5Driver::command(0x200), 16).status, number(Status::bad_input_length));
  EXPECT_EQ(driver.run(0x10a, 0, {}, 16).status, number(Status::bad_output_length));
  Words tiny(4);
  EXPECT_EQ(driver.run(tiny, 16).delivery, number(Delivery::input_length));
  EXPECT_EQ(driver.run(Mlx5Driver::command(0x800), 4).delivery, number(Delivery::output_length));
}

TEST_F(Mlx5Command, DamagedEntriesAndMailboxes) {
  driver.bring_up();
  const Words input = Mlx5Driver::command(0x200, 0, {}, 1600);
  const auto with = [&](auto&& damage) {
    driver.prepare(0, input, 1600);
    damage();
    driver.ring(0);
    bus.run();
    return driver.collect(0).delivery;
  };
  const auto poke = [&](std::uint64_t address, std::uint32_t value) {
    const std::uint32_t big = __builtin_bswap32(value);
    bus.write(address, &big, 4);
  };
  EXPECT_EQ(with([&] { poke(driver.queue(), 3U << 24); }), number(Delivery::descriptor));
  EXPECT_EQ(with([&] { poke(driver.queue() + 4, 0x7fff'ffff); }), number(Delivery::input_length));
  EXPECT_EQ(with([&] { poke(driver.queue() + 0x38, 0x7fff'ffff); }), number(Delivery::output_length));
  EXPECT_EQ(with([&] { poke(driver.queue() + 0xc, 0x1001); }), number(Delivery::input_pointer));
  EXPECT_EQ(with([&] { poke(driver.queue() + 0x34, 0x1001); }), number(Delivery::output_pointer));
  EXPECT_EQ(with([&] { poke(driver.input_chain(0)[1] + 0x23c, 0xff'0000); }), number(Delivery::token));
  EXPECT_EQ(with([&] { poke(driver.input_chain(0)[2] + 0x238, 1); }), number(Delivery::block_number));
  EXPECT_EQ(with([&] { poke(driver.input_chain(0)[0] + 0x234, 0); }), number(Delivery::input_pointer));
  EXPECT_EQ(with([&] { poke(driver.output_chain(0)[1] + 0x23c, 0xff'0000); }), number(Delivery::token));
  EXPECT_EQ(with([&] { poke(driver.output_chain(0)[3] + 0x238, 7); }), number(Delivery::block_number));
  // A chain that leads round in a circle ends with its length.
  EXPECT_EQ(with([&] { poke(driver.input_chain(0)[1] + 0x234, static_cast<std::uint32_t>(driver.input_chain(0)[1])); }),
            number(Delivery::block_number));
  // Outside guest memory.
  EXPECT_EQ(with([&] { bus.break_page(driver.input_chain(0)[0]); }), number(Delivery::firmware));
  bus.mend_page(driver.input_chain(0)[0]);
  EXPECT_EQ(with([&] { poke(driver.queue() + 8, 0xffff'ffff), poke(driver.queue() + 12, 0xffff'fe00); }),
            number(Delivery::firmware));
  // None of it left anything behind.
  EXPECT_TRUE(driver.run(0x800).ok());
}

TEST_F(Mlx5Command, EntryThatCannotBeRead) {
  driver.bring_up();
  driver.prepare(0, Mlx5Driver::command(0x800), 16);
  bus.break_page(driver.queue());
  driver.ring(0);
  bus.run();
  bus.mend_page(driver.queue());
  EXPECT_FALSE(driver.collect(0).answered);
  EXPECT_TRUE(driver.run(0x800, 0, {}, 16).ok());
}

TEST_F(Mlx5Command, DoorbellWithoutCommand) {
  driver.bring_up();
  const std::size_t before = commands.size();
  driver.write(0x018, 1U << 7);
  bus.run();
  EXPECT_EQ(commands.size(), before);
}

TEST_F(Mlx5Command, CapabilitiesCanOnlyBeLowered) {
  ASSERT_TRUE(driver.begin());
  ASSERT_TRUE(driver.run(0x104, 0, {}, 12).ok());
  Reply caps = driver.run(0x100, 0, {}, 4112);
  ASSERT_TRUE(caps.ok());
  constexpr firmware::Field log_max_qp{"log_max_qp", 0x10, 4, 0};
  const std::uint32_t most = caps.output.get(0x10, log_max_qp);
  Words set = caps.output;
  set.set(0, 0x109U << 16).set(4, 0).put(0x10, log_max_qp, most + 1);
  EXPECT_EQ(driver.run(set, 16).status, number(Status::bad_parameter));
  set.put(0x10, log_max_qp, 10);
  EXPECT_TRUE(driver.run(set, 16).ok());
  EXPECT_EQ(driver.run(0x100, 1, {}, 4112).output.get(0x10, log_max_qp), 10U);
  EXPECT_EQ(driver.run(0x100, 0, {}, 4112).output.get(0x10, log_max_qp), most);
}

TEST_F(Mlx5Command, PagesAreGivenAndTakenBack) {
  driver.bring_up();
  Words give = Mlx5Driver::command(0x108, 1, {0, 5});
  give.resize(0x10 + 5 * 8);
  for (std::uint32_t i = 0; i < 5; ++i) {
    give.set64(0x10 + i * 8, 0x5000'0000 + i * 0x1000);
  }
  EXPECT_TRUE(driver.run(give, 16).ok());
  const Reply back = driver.run(0x108, 2, {0, 3}, 0x10 + 3 * 8);
  EXPECT_TRUE(back.ok());
  EXPECT_EQ(back.output[8], 3U);
  EXPECT_EQ(driver.run(0x108, 2, {0, 100}, 0x10 + 100 * 8).output[8], 2U);
  EXPECT_EQ(driver.run(Mlx5Driver::command(0x108, 1, {0, 5}), 16).status, number(Status::bad_input_length));
}

TEST_F(Mlx5Command, ObjectsInUseStay) {
  objects();
  const std::uint32_t qpn = driver.create_qp({.pd = pd, .cqn = cqn}).handle();
  EXPECT_EQ(driver.run(0x801, 0, {pd}).status, number(Status::bad_resource_state));
  EXPECT_EQ(driver.run(0x401, 0, {cqn}).status, number(Status::bad_resource_state));
  EXPECT_EQ(driver.run(0x302, 0, {eqn}).status, number(Status::bad_resource_state));
  EXPECT_EQ(driver.run(0x803, 0, {driver.uar}).status, number(Status::bad_resource_state));
  EXPECT_TRUE(driver.run(0x501, 0, {qpn}).ok());
  EXPECT_TRUE(driver.run(0x401, 0, {cqn}).ok());
  EXPECT_TRUE(driver.run(0x801, 0, {pd}).ok());
  EXPECT_TRUE(driver.run(0x302, 0, {eqn}).ok());
  EXPECT_EQ(driver.run(0x801, 0, {pd}).status, number(Status::bad_resource));
  EXPECT_FALSE(data->has(ContextKind::qp, qpn));
}

TEST_F(Mlx5Command, CompletionQueueContext) {
  objects();
  const auto cq = data->context<rnic::CqContext>(ContextKind::cq, cqn);
  EXPECT_EQ(cq.eq, eqn);
  EXPECT_EQ(cq.log_entries, 4U);
  EXPECT_EQ(cq.entry_size, 64U);
  EXPECT_EQ(cq.uar, driver.uar);
  EXPECT_EQ(data->translation[cq.buffer.translation], driver.last_ring | 3U);
}

TEST_F(Mlx5Command, DestroyWaitsForTheHardware) {
  objects();
  const std::uint32_t qpn = ready_qp();
  data->slow.insert({ContextKind::qp, qpn});
  driver.prepare(0, Mlx5Driver::command(0x501, 0, {qpn}), 16);
  driver.ring(0);
  bus.run();
  EXPECT_FALSE(driver.collect(0).answered);
  // It is gone for the driver, but its number isn't free.
  data->finish(ContextKind::qp, qpn);
  bus.run();
  EXPECT_TRUE(driver.collect(0).ok());
}

TEST_F(Mlx5Command, Exhaustion) {
  driver.bring_up();
  std::vector<std::uint32_t> given;
  for (;;) {
    const Reply reply = driver.run(0x80e);
    if (!reply.ok()) {
      EXPECT_EQ(reply.status, number(Status::no_resources));
      break;
    }
    given.push_back(reply.handle());
  }
  EXPECT_EQ(given.size(), 4096U);
  EXPECT_TRUE(driver.run(0x80f, 0, {given.front()}).ok());
  EXPECT_TRUE(driver.run(0x80e).ok());
}

TEST_F(Mlx5Command, TranslationMemoryRunsOut) {
  objects();
  constexpr std::uint32_t octwords = 1U << 20;  // 2^21 entries of 2^22
  EXPECT_TRUE(driver.create_mkey(pd, 1, octwords, true, 1).ok());
  const std::uint32_t second = driver.create_mkey(pd, 1, octwords / 2, true, 1).handle();
  EXPECT_EQ(driver.create_mkey(pd, 1, octwords, true, 1).status, number(Status::no_resources));
  EXPECT_TRUE(driver.run(0x202, 0, {second}).ok());
}

TEST_F(Mlx5Command, InjectedFault) {
  objects();
  rnic.management().write32(rnic::reg::fault_opcode, 0x400);
  rnic.management().write32(rnic::reg::fault_status, number(Status::no_resources));
  rnic.management().write32(rnic::reg::fault_syndrome, 0x1234);
  rnic.management().write32(rnic::reg::fault_count, 1);
  const Reply reply = driver.create_cq(eqn);
  EXPECT_EQ(reply.status, number(Status::no_resources));
  EXPECT_EQ(reply.syndrome, 0x1234U);
  EXPECT_TRUE(driver.create_cq(eqn).ok());
}

TEST_F(Mlx5Command, RegisterFault) {
  objects();
  rnic::ManagementFaults& faults = rnic.management().faults();
  // The status register of contexts says "wrong state" once: the command that creates one fails with that, the next
  // doesn't.
  ASSERT_TRUE(faults.add(rnic::RegisterFault{.offset = rnic::reg::context_status, .value = 3}));
  const Reply reply = driver.create_cq(eqn);
  EXPECT_EQ(reply.syndrome, static_cast<std::uint32_t>(Syndrome::hardware) + 3);
  EXPECT_EQ(faults.struck(), 1U);
  EXPECT_FALSE(faults.any());
  EXPECT_TRUE(driver.create_cq(eqn).ok());
}

TEST_F(Mlx5Command, RegisterFaultOfAWrite) {
  objects();
  // What the firmware reports of its commands loses its status bits.
  ASSERT_TRUE(rnic.management().faults().add(
      rnic::RegisterFault{.offset = rnic::reg::trace_status, .write = true, .mask = 0xff, .value = 0x42, .count = 2}));
  EXPECT_TRUE(driver.run(0x800).ok());
  EXPECT_EQ(commands.back().status, 0x42U);
  EXPECT_TRUE(driver.run(0x800).ok());
  EXPECT_TRUE(driver.run(0x800).ok());
  EXPECT_EQ(commands.back().status, 0U);
}

TEST_F(Mlx5Command, DmaFault) {
  objects();
  // The first transfer of a command fetches its entry: without it there is nothing to answer.
  ASSERT_TRUE(rnic.management().faults().add(rnic::DmaFault{.channel = 0, .count = 1}));
  driver.prepare(0, Mlx5Driver::command(0x800), 16);
  driver.ring(0);
  bus.run();
  EXPECT_FALSE(driver.collect(0).answered);
  // Of a command with a mailbox the second fetches that.
  EXPECT_TRUE(driver.run(0x800).ok());
  EXPECT_EQ(rnic.management().faults().struck(), 1U);
}

TEST_F(Mlx5Command, FaultsAreBounded) {
  rnic::ManagementFaults faults;
  for (std::size_t i = 0; i < rnic::ManagementFaults::most; ++i) {
    EXPECT_TRUE(faults.add(rnic::DmaFault{.channel = 1}));
  }
  EXPECT_FALSE(faults.add(rnic::DmaFault{.channel = 1}));
  EXPECT_FALSE(faults.add(rnic::RegisterFault{.count = 0}));
  EXPECT_FALSE(faults.fails(0));
  EXPECT_TRUE(faults.fails(1));
}

TEST_F(Mlx5Command, LatencyIsOfDoorbellAndHandling) {
  driver.bring_up();
  bus.max_delay = 1'000'000;
  driver.prepare(0, Mlx5Driver::command(0x800), 16);
  driver.prepare(1, Mlx5Driver::command(0x800), 16);
  const Picoseconds rung = bus.simulation.now();
  driver.write(0x018, 3);
  bus.run();
  ASSERT_GE(commands.size(), 2U);
  const rnic::CommandRecord& first = commands[commands.size() - 2];
  const rnic::CommandRecord& second = commands.back();
  EXPECT_EQ(first.waited + first.handled, first.time - rung);
  EXPECT_EQ(second.waited + second.handled, second.time - rung);
  // One at a time: the second waited until the first was answered.
  EXPECT_GE(second.waited, first.waited + first.handled);
  EXPECT_GT(first.handled.count, 0U);
}

TEST_F(Mlx5Command, HardwareThatRefuses) {
  objects();
  data->refuse_writes = true;
  EXPECT_EQ(driver.create_cq(eqn).status, number(Status::bad_parameter));
  EXPECT_EQ(driver.create_qp({.pd = pd, .cqn = cqn}).status, number(Status::bad_parameter));
  data->refuse_writes = false;
  firmware::Firmware* fw = native_firmware();
  const std::uint32_t used = fw != nullptr ? fw->translations.used() : 0;
  EXPECT_TRUE(driver.create_cq(eqn).ok());
  if (fw != nullptr) {
    EXPECT_GT(fw->translations.used(), used);
  }
}

TEST_F(Mlx5Command, PageListLongerThanTheInput) {
  objects();
  Words in = Mlx5Driver::command(0x400);
  in.resize(0x118);
  in.put(0x10, layout::cqc::log_size, 12).put(0x10, layout::cqc::uar_page, driver.uar).put(0x10, layout::cqc::eqn, eqn);
  EXPECT_EQ(driver.run(in, 16).status, number(Status::bad_input_length));
}

TEST_F(Mlx5Command, QueuePairContextFollowsTheTransitions) {
  namespace qpc = layout::qpc;
  objects();
  const Reply created = driver.create_qp({.pd = pd, .cqn = cqn});
  const std::uint32_t qpn = created.handle();
  auto q = data->context<rnic::QpContext>(ContextKind::qp, qpn);
  EXPECT_EQ(q.state, rnic::QpState::reset);
  EXPECT_EQ(q.send_offset, 16U << 2);
  EXPECT_EQ(q.log_send_blocks, 4U);
  EXPECT_EQ(q.receive_cq, cqn);

  EXPECT_EQ(driver.modify_qp(0x503, qpn, [](Words&) {}).status, number(Status::bad_qp_state));
  EXPECT_TRUE(
      driver.modify_qp(0x502, qpn, [](Words& in) { in.put(0x18, qpc::remote_write, 1).put(0x18, qpc::user_index, 9); })
          .ok());
  q = data->context<rnic::QpContext>(ContextKind::qp, qpn);
  EXPECT_EQ(q.state, rnic::QpState::init);
  EXPECT_EQ(q.flags & rnic::qp_remote_write, rnic::qp_remote_write);
  EXPECT_EQ(q.user_index, 0U);

  const Reply rtr = driver.modify_qp(0x503, qpn, [](Words& in) {
    in.put(0, qpc::opt_mask, 0xe).put(0x18, qpc::mtu, 5).put(0x18, qpc::log_message, 30);
    in.put(0x18, qpc::remote_qpn, 0x123456).put(0x18, qpc::next_receive_psn, 0xabcdef);
    in.put(0x18, qpc::remote_read, 1).put(0x18, qpc::log_rra_max, 2).put(0x18, qpc::min_rnr_nak, 12);
    in.put(0x30, layout::ads::rlid, 0x11).put(0x30, layout::ads::service_level, 3);
  });
  EXPECT_TRUE(rtr.ok());
  q = data->context<rnic::QpContext>(ContextKind::qp, qpn);
  EXPECT_EQ(q.state, rnic::QpState::rtr);
  EXPECT_EQ(q.mtu, 4096U);
  EXPECT_EQ(q.remote_qp, 0x123456U);
  EXPECT_EQ(q.receive_psn, 0xabcdefU);
  EXPECT_EQ(q.max_read_in, 4U);
  EXPECT_EQ(q.min_rnr_timer, 12U);
  EXPECT_EQ(q.path.remote_lid, 0x11U);
  EXPECT_EQ(q.path.service_level, 3U);
  // The option mask names all three rights.
  EXPECT_EQ(q.flags & (rnic::qp_remote_read | rnic::qp_remote_write), rnic::qp_remote_read);

  EXPECT_TRUE(driver
                  .modify_qp(0x504, qpn,
                             [](Words& in) {
                               in.put(0x18, qpc::next_send_psn, 77).put(0x18, qpc::retry_count, 7);
                               in.put(0x18, qpc::rnr_retry, 6).put(0x30, layout::ads::ack_timeout, 14);
                             })
                  .ok());
  const Reply query = driver.run(0x50b, 0, {qpn}, 272);
  EXPECT_TRUE(query.ok());
  EXPECT_EQ(query.output.get(0x18, qpc::state), 3U);
  EXPECT_EQ(query.output.get(0x18, qpc::mtu), 5U);
  EXPECT_EQ(query.output.get(0x18, qpc::next_send_psn), 77U);
  EXPECT_EQ(query.output.get(0x18, qpc::retry_count), 7U);
  EXPECT_EQ(query.output.get(0x30, layout::ads::ack_timeout), 14U);
  EXPECT_EQ(query.output.get(0x18, qpc::cqn_send), cqn);
  EXPECT_TRUE(driver.modify_qp(0x507, qpn, [](Words&) {}).ok());
  EXPECT_EQ(data->context<rnic::QpContext>(ContextKind::qp, qpn).state, rnic::QpState::error);
  EXPECT_TRUE(driver.run(0x50a, 0, {qpn}).ok());
}

TEST_F(Mlx5Command, QueuePairsOfNothing) {
  objects();
  EXPECT_EQ(driver.create_qp({.pd = 999, .cqn = cqn}).status, number(Status::bad_resource));
  EXPECT_EQ(driver.create_qp({.pd = pd, .cqn = 999}).status, number(Status::bad_resource));
  EXPECT_EQ(driver.create_qp({.service = 5, .pd = pd, .cqn = cqn}).status, number(Status::bad_parameter));
  EXPECT_EQ(driver.create_qp({.pd = pd, .cqn = cqn, .rq_type = 1, .srqn = 5}).status, number(Status::bad_resource));
  EXPECT_EQ(driver.create_qp({.service = 3, .pd = pd, .cqn = cqn, .xrcd = 77}).status, number(Status::bad_resource));
}

// As the stock driver creates it: no queue of its own, no UAR page, no CQ.
TEST_F(Mlx5Command, XrcTargetHasNoDoorbell) {
  objects();
  const std::uint32_t domain = driver.run(0x80e).handle();
  const Reply qp = driver.create_qp({.service = 3, .pd = pd, .cqn = 0, .rq_type = 3, .xrcd = domain, .target = true});
  ASSERT_TRUE(qp.ok());
  EXPECT_TRUE(driver.run(0x501, 0, {qp.handle()}).ok());
  EXPECT_TRUE(driver.run(0x80f, 0, {domain}).ok());
}

TEST_F(Mlx5Command, CountersOfASet) {
  objects();
  const std::uint32_t set = driver.run(0x771).handle();
  ASSERT_NE(set, 0U);
  // A QP counts for the set that its first transition names, if that is the function's own.
  const std::uint32_t qpn = driver.create_qp({.pd = pd, .cqn = cqn}).handle();
  const auto first = [&](std::uint32_t number_of_set) {
    return driver.modify_qp(0x502, qpn, [&](Words& in) { in.put(0x18, layout::qpc::counter_set, number_of_set); });
  };
  EXPECT_EQ(first(set + 1).syndrome, static_cast<std::uint32_t>(Syndrome::counter_set));
  ASSERT_TRUE(first(set).ok());
  EXPECT_EQ(data->context<rnic::QpContext>(ContextKind::qp, qpn).counter_set, set);
  rnic::QueueCounters counters;
  std::uint32_t next = 100;
  for (std::uint32_t* word = &counters.write_requests; word != &counters.reserved; ++word) {
    *word = next++;
  }
  data->write_context(ContextKind::queue_counters, set, std::as_bytes(std::span(&counters, 1)));
  Words query(32);
  query.set(0, 0x773U << 16).set(0x1c, set);
  const Reply reply = driver.run(query, 256);
  ASSERT_TRUE(reply.ok());
  // Offsets as the stock driver's structure has them.
  EXPECT_EQ(reply.output[0x10], counters.write_requests);
  EXPECT_EQ(reply.output[0x18], counters.read_requests);
  EXPECT_EQ(reply.output[0x20], counters.atomic_requests);
  EXPECT_EQ(reply.output[0x30], counters.out_of_buffer);
  EXPECT_EQ(reply.output[0x38], counters.out_of_sequence);
  EXPECT_EQ(reply.output[0x40], counters.duplicate_requests);
  EXPECT_EQ(reply.output[0x48], counters.received_rnr_naks);
  EXPECT_EQ(reply.output[0x60], counters.acknowledge_timeouts);
  EXPECT_EQ(reply.output[0x78], counters.responder_length);
  EXPECT_EQ(reply.output[0x94], counters.requester_errors);
  EXPECT_EQ(reply.output[0xa8], counters.requester_remote_access);
  EXPECT_EQ(reply.output[0xac], counters.responder_remote_access);
  EXPECT_EQ(reply.output[0xb4], counters.requester_retries_exceeded);
  EXPECT_EQ(reply.output[0xc0], counters.requester_flushed);
  query.set(0x18, 1U << 31);  // and begin anew
  EXPECT_TRUE(driver.run(query, 256).ok());
  EXPECT_FALSE(data->has(ContextKind::queue_counters, set));
  query.set(0x1c, set + 1);
  EXPECT_EQ(driver.run(query, 256).status, number(Status::bad_resource));
}

TEST_F(Mlx5Command, ErrorsReachTheAsynchronousQueue) {
  objects();
  const std::uint32_t qpn = ready_qp();
  const Reply asynchronous = driver.create_eq(0x1f'02be, 5, 0);
  const std::uint64_t ring = driver.last_ring;
  ASSERT_TRUE(asynchronous.ok());
  data->sink().on_hardware_event(
      {rnic::EventCode::qp_error, 0, qpn, static_cast<std::uint32_t>(rnic::QpErrorCause::access_violation)});
  bus.run();
  Words eqe(64);
  bus.read(ring, eqe.bytes().data(), 64);
  EXPECT_EQ(eqe[0] >> 16 & 0xffU, 0x11U);
  EXPECT_EQ(eqe[0x38], qpn);
  data->sink().on_hardware_event({rnic::EventCode::cq_overrun, 0, cqn, 0});
  bus.run();
  bus.read(ring + 64, eqe.bytes().data(), 64);
  EXPECT_EQ(eqe[0] >> 16 & 0xffU, 0x04U);
  EXPECT_EQ(eqe[0x20], cqn);
  EXPECT_EQ(std::to_integer<std::uint32_t>(eqe.bytes()[0x2b]), 1U);
}

TEST_F(Mlx5Command, PageFaultsGoToTheDriver) {
  objects();
  const std::uint32_t qpn = ready_qp();
  const auto fault = [&](std::uint32_t token, std::uint32_t flags) {
    rnic::FaultRecord record;
    record.token = token;
    record.qp = qpn;
    record.flags = flags;
    record.key = 0x1234'05;
    record.wqe_index = 7;
    record.address = 0x7f00'1234'5000;
    record.length = 65536;
    record.packet_length = 1024;
    record.committed = 512;
    static_cast<void>(data->write_context(ContextKind::fault, token, std::as_bytes(std::span(&record, 1))));
    data->sink().on_hardware_event({rnic::EventCode::page_fault, 0, qpn, token});
    bus.run();
  };
  // Nobody listens: it fails at once.
  fault(9, rnic::fault_responder | rnic::fault_rdma);
  EXPECT_EQ(data->resumed, (std::vector<std::pair<std::uint32_t, bool>>{{9, true}}));
  ASSERT_TRUE(driver.create_eq(1ULL << 0x0c, 5, 0).ok());
  const std::uint64_t ring = driver.last_ring;
  EXPECT_NE(data->context<rnic::FunctionContext>(ContextKind::function, 0).fault_eq, rnic::none);
  fault(10, rnic::fault_responder | rnic::fault_rdma | rnic::fault_write);
  Words eqe(64);
  bus.read(ring, eqe.bytes().data(), 64);
  EXPECT_EQ(eqe[0], 0x000c'0001U);
  EXPECT_EQ(eqe[0x20], 512U);
  EXPECT_EQ(eqe[0x24], 0x1234'05U);
  EXPECT_EQ(eqe[0x28], 1024U);
  EXPECT_EQ(eqe[0x2c], 65536U);
  EXPECT_EQ(eqe.get64(0x30), 0x7f00'1234'5000U);
  EXPECT_EQ(eqe[0x38], 0x0600'000aU);
  fault(11, 0);
  bus.read(ring + 64, eqe.bytes().data(), 64);
  EXPECT_EQ(eqe[0], 0x000c'0000U);
  EXPECT_EQ(eqe[0x24], 7U);
  EXPECT_EQ(eqe[0x2c], 11U);
  EXPECT_EQ(eqe[0x38], 0x0100'0000U | qpn);
  EXPECT_TRUE(driver.run(0x204, 0, {0x0600'000a, 10}).ok());
  EXPECT_TRUE(driver.run(0x204, 0, {0x8100'0000 | qpn, 11}).ok());
  EXPECT_EQ(data->resumed, (std::vector<std::pair<std::uint32_t, bool>>{{9, true}, {10, false}, {11, true}}));
  EXPECT_EQ(driver.run(0x204, 0, {0x0600'000a, 10}).status, number(Status::bad_resource));
}

}  // namespace
}  // namespace orrery::test::mlx5_command_test
