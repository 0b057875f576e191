// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One call in flight on an MPI group: the ranks compare it if required, then its data moves.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/call_record.hpp>
#include <shardwright/comm/mpi/call_guard.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/mpi/wait_checks.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/report.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

class MpiOperation final : public PendingOperation {
public:
  /// @param in_order The group's collectives, of which only the first one moves.
  MpiOperation(MpiGroup& group, const std::vector<MpiOperation*>& in_order)
      : group_(group), in_order_(in_order), most_data_(group.agreement().data_bytes(sizeof(Fingerprint))),
        checks_(group) {}

  /// Sets the call; its block spans are copied unless they live until it has ended.
  void begin(const CollectiveCall& call, std::uint64_t sequence, bool spans_live) {
    kept_.copy(call, spans_live);
    site_ = group_.site(call, sequence);
    tag_ = group_.collective_tag(sequence);
    stage_ = Stage::queued;
    error_ = nullptr;
    in_use_ = true;
    checks_.begin();
    publish();
  }

  [[nodiscard]] const CollectiveCall& call() const noexcept { return kept_.call; }
  [[nodiscard]] bool done() const noexcept { return stage_ == Stage::done; }
  /// Whether its handle has not been waited for yet.
  [[nodiscard]] bool in_use() const noexcept { return in_use_; }

  /// Advances as far as messages allow. @return whether anything has moved.
  bool advance() noexcept {
    const Stage stage = stage_;
    const std::size_t steps = transfer_.steps_done();
    try {
      advance_or_throw();
    } catch (const CollectiveMismatch& error) {
      // Every rank detects it if collectives are compared.
      group_.end(Failure::Kind::mismatch, error.what(),
                 sends_or_receives(kept_.call.operation) || !group_.world().options().check);
      fail(std::current_exception());
    } catch (const std::exception& error) {
      group_.end(Failure::Kind::failed, error.what(), true);
      fail(std::current_exception());
    }
    return stage_ != stage || transfer_.steps_done() != steps;
  }

  [[nodiscard]] bool ready() override {
    MpiWorld& world = group_.world();
    const MpiCallGuard guard(world.funneled(), [this] { return site_; });
    if (!done())
      world.progress();
    if (!done() && world.time_to_look_around()) {
      world.node().beat(std::chrono::steady_clock::now());
      world.look_around();
    }
    return done() || group_.failure_elsewhere();
  }
  [[nodiscard]] bool expire(std::chrono::nanoseconds polled) override {
    MpiWorld& world = group_.world();
    if (polled <= world.options().deadline)
      return false;
    const MpiCallGuard guard(world.funneled(), [this] { return site_; });
    if (!world.is_last(this))
      publish();
    check(true, false, false);
    return done();
  }

  void wait() override {
    const MpiCallGuard guard(group_.world().funneled(), [this] { return site_; });
    finish();
  }

  /// wait() for a caller that is already inside.
  void finish() {
    MpiWorld& world = group_.world();
    if (!done() && !world.is_last(this))
      publish();
    bool waits_long = false;
    Waiting waiting(world.options().deadline, world.polls());
    while (!done()) {
      if (world.progress())
        waiting.reset();
      if (done())
        break;
      waiting.pause([this] { return group_.peer_needs_this_core(kept_.call); });
      if (waiting.slow() && (waiting.expired() || world.time_to_look_around())) {
        waits_long = waits_long || waiting.past_notice(world.options().notice);
        check(waiting.expired(), true, waits_long);
      }
    }
    in_use_ = false;
    if (error_) {
      if (!checks_.late())
        world.node().withdraw_answers();
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

  /// Adds the world ranks for which this call, or the one whose turn it is before, waits; they may wait for
  /// others in turn.
  void add_waits(std::vector<int>& ranks) {
    if (done())
      return;
    if (sends_or_receives(kept_.call.operation))
      return ranks.push_back(group_.world_rank(kept_.call.root));
    if (stage_ == Stage::queued) {
      if (in_order_.front() != this)
        in_order_.front()->add_waits(ranks);
      return;
    }
    direct_.assign(static_cast<std::size_t>(group_.size()), false);
    transfer_.add_missing(direct_);
    group_.agreement().add_missing(direct_);
    for (int rank = 0; rank < group_.size(); ++rank) {
      const int world_rank = group_.world_rank(rank);
      // Comparing takes all ranks.
      if (direct_[static_cast<std::size_t>(rank)] || (stage_ == Stage::agreeing && rank != group_.rank() &&
                                                      !group_.has_entered(site_.sequence, world_rank)))
        ranks.push_back(world_rank);
    }
  }

  void abandon() noexcept override {
    in_use_ = false;
    const bool unwinding = std::uncaught_exceptions() > 0;
    std::string sentence;
    try {
      sentence = dropped_sentence(kept_.call, site_.sequence);
    } catch (...) {
      sentence.clear();
    }
    // A propagating exception is the original cause, and launch() reports it.
    group_.end(Failure::Kind::abandoned, std::move(sentence), !unwinding);
    fail(nullptr);
  }

private:
  enum class Stage { queued, agreeing, explaining, moving, done };

  void publish() noexcept { group_.publish(kept_.call, site_.sequence, this); }

  void advance_or_throw() {
    if (stage_ == Stage::queued)
      sends_or_receives(kept_.call.operation) ? begin_message() : begin_collective();
    if (stage_ == Stage::agreeing && sends_or_receives(kept_.call.operation)) {
      if (!header_requests_.test(site_))
        return;
      check_header();
      move();
    }
    if (stage_ == Stage::agreeing) {
      if (!group_.agreement().advance(group_.channel(), tag_, site_))
        return;
      judge();
    }
    if (stage_ == Stage::explaining && group_.agreement().advance(group_.channel(), tag_ + 1, site_))
      throw CollectiveMismatch(
          std::string(name_of(kept_.call.operation)) + ": " +
              mismatch_of_accounts(group_, "their sequence numbers differ",
                                   [this](int rank) { return group_.agreement().head(rank); }),
          site_.context());
    if (stage_ == Stage::moving && transfer_.advance([this] { return group_.may_be_given_up(site_); }) &&
        header_requests_.test(site_))
      succeed();
  }

  void succeed() {
    stage_ = Stage::done;
    if (kept_.call.times != nullptr)
      kept_.call.times->end();
    group_.world().publish_end(this);
  }

  void begin_collective() {
    const bool meets = kept_.call.operation == Operation::barrier || kept_.call.operation == Operation::split;
    if (group_.size() == 1 || (!meets && !group_.world().options().check))
      return move();
    const Fingerprint own = fingerprint(kept_.call, group_.rank(), group_.size(), site_.sequence);
    std::span<const std::byte> data(static_cast<const std::byte*>(kept_.call.in), data_beside_fingerprint());
    if (announces())
      data = std::as_bytes(
          transfer_.prepare(kept_.call, group_.channel(), group_.rank(), group_.size(), tag_ + 2, site_));
    group_.agreement().start(&own, sizeof own, data.data(), data.size(), most_data_);
    stage_ = Stage::agreeing;
  }

  /// The bytes of a small all_reduce, whose data is sent with the fingerprints to save a round of messages,
  /// or 0 for other calls.
  [[nodiscard]] std::size_t data_beside_fingerprint() const noexcept {
    const std::size_t bytes = kept_.call.count * size_of(kept_.call.element);
    return kept_.call.operation == Operation::all_reduce && bytes <= most_data_ ? bytes : 0;
  }

  void begin_message() {
    if (!group_.world().options().check)
      return move();
    const int tag = group_.world().user_tags() + kept_.call.tag;
    if (kept_.call.operation == Operation::receive) {
      header_requests_.receive(group_.channel(), &header_, sizeof header_, kept_.call.root, tag, site_);
      stage_ = Stage::agreeing;
      return;
    }
    header_ = {kept_.call, site_.sequence};
    header_requests_.send(group_.channel(), &header_, sizeof header_, kept_.call.root, tag, site_);
    move();
  }

  /// Whether the announcements of large blocks go with the fingerprint.
  [[nodiscard]] bool announces() const noexcept {
    return MpiTransfer::exchanges(kept_.call.operation) &&
           static_cast<std::size_t>(group_.size()) * sizeof(BlockOffer) <= most_data_;
  }

  /// @param announced As for MpiTransfer::start().
  void move(const MpiAgreement* announced = nullptr) {
    const int tag = sends_or_receives(kept_.call.operation) ? kept_.call.tag : tag_ + 2;
    if (kept_.call.times != nullptr)
      kept_.call.times->begin();
    transfer_.start(kept_.call, group_.channel(), group_.scratch(), group_.rank(), group_.size(), tag, site_,
                    announced);
    stage_ = Stage::moving;
  }

  /// Every rank sees the same fingerprints, so all reach the same verdict.
  void judge() {
    const MpiAgreement& agreement = group_.agreement();
    FingerprintComparison comparison;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const auto one = agreement.head_as<Fingerprint>(rank);
      comparison.add(one.common, one.unpaired());
    }
    if (comparison.agree())
      return data_beside_fingerprint() > 0 ? reduce_here() : move(announces() ? &agreement : nullptr);
    const std::vector<std::byte> own = CallAccount::pack(kept_.call, site_.sequence, group_.size());
    group_.agreement().start(own.data(), own.size(), nullptr, 0, 0);
    stage_ = Stage::explaining;
  }

  void reduce_here() {
    if (kept_.call.times != nullptr)
      kept_.call.times->begin();
    transfer_.reduce_here(kept_.call, group_.scratch(), group_.size(),
                          [this](int rank) { return group_.agreement().data(rank); });
    succeed();
  }

  void check_header() const {
    if (!header_.matches(kept_.call))
      throw CollectiveMismatch("receive: " + header_.mismatch(group_, kept_.call, site_.sequence),
                               site_.context());
  }

  /// The checks of a wait; the call may end by them.
  void check(bool expired, bool stays, bool waits_long) {
    try {
      checks_.run({kept_.call, site_}, expired, stays, waits_long,
                  [this](std::vector<int>& ranks) { add_waits(ranks); });
    } catch (const std::exception&) {
      group_.world().node().give_up();
      fail(std::current_exception());
    }
  }

  /// Ends the call without a result.
  void fail(std::exception_ptr error) noexcept {
    if (done())
      return;
    header_requests_.cancel();
    transfer_.cancel();
    if (!sends_or_receives(kept_.call.operation) &&
        (stage_ == Stage::agreeing || stage_ == Stage::explaining))
      group_.agreement().cancel();
    error_ = std::move(error);
    stage_ = Stage::done;
  }

  MpiGroup& group_;
  const std::vector<MpiOperation*>& in_order_;
  std::size_t most_data_; ///< Bytes of data that fit beside a fingerprint.
  KeptCall kept_;
  MpiCallSite site_;
  int tag_ = 0; ///< First of its tags, if it is a collective.
  Stage stage_ = Stage::done;
  bool in_use_ = false;
  MessageHeader header_; ///< Sent ahead of the data if calls are compared.
  MpiRequests header_requests_;
  MpiTransfer transfer_;
  std::exception_ptr error_;
  MpiWaitChecks checks_;
  std::vector<bool> direct_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
